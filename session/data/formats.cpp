// SPDX-License-Identifier: Apache-2.0
#include "session/data/formats.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "session/config/spelling.hpp"
#include "session/config/toml.hpp"

namespace eng {
namespace {

thread_local FormatsInUse* formats_here = nullptr;

// Runs the body of a function of the extension: no exception crosses the ABI.
template <class Body>
eng_status without_throwing(eng_error* error, const Body& body) noexcept try {
  return body();
} catch (const Error& e) {
  const std::string text = e.help().empty() ? e.what() : fmt::format("{}; {}", e.what(), e.help());
  return report(error, e.exit() == Exit::usage ? ENG_NOT_FOUND : ENG_UNAVAILABLE, text);
} catch (const std::bad_alloc&) {
  return report(error, ENG_NO_MEMORY, "eng.formats/1: out of memory");
} catch (const std::exception& e) {
  return report(error, ENG_INTERNAL, e.what());
}

void give(const eng_format& found, eng_format* out) {
  const uint32_t size = out->struct_size;
  std::memcpy(out, &found, std::min<std::size_t>(sizeof(found), size));
  out->struct_size = size;
}

eng_status find_format(const eng_formats*, const char* name, eng_format* out, eng_error* error) {
  return without_throwing(error, [&]() -> eng_status {
    if (!formats_here) return report(error, ENG_PRECONDITION, "eng.formats/1: called outside of create and build");
    give(formats_here->get(name), out);
    return ENG_OK;
  });
}

eng_status recognise_format(const eng_formats*, const char* name, const void* head, uint64_t size, eng_format* out,
                            eng_error* error) {
  return without_throwing(error, [&]() -> eng_status {
    if (!formats_here) return report(error, ENG_PRECONDITION, "eng.formats/1: called outside of create and build");
    const auto all = formats_here->claiming(name, {static_cast<const char*>(head), size});
    if (all.empty()) return report(error, ENG_NOT_FOUND, "no format claims the file");
    if (all.size() > 1)
      return report(error, ENG_INVALID,
                    fmt::format("is claimed by several formats: set [data] format to one of {}", fmt::join(all, ", ")));
    give(formats_here->get(all.front()), out);
    return ENG_OK;
  });
}

constexpr eng_formats formats_table = {sizeof(eng_formats), 0, find_format, recognise_format};

// True if `head` begins with the bytes that `hex` spells.
bool begins_with(std::string_view head, const std::string& hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  if (hex.size() / 2 > head.size()) return false;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    if (static_cast<unsigned char>(head[i / 2]) != digit(hex[i]) * 16 + digit(hex[i + 1])) return false;
  return true;
}

}  // namespace

struct FormatsInUse::Held {
  Held(const eng_documents& from, Section with) : table(from), section(std::move(with)), options(section) {}
  const eng_documents table;
  const Section section;
  const Options options;
  std::string identity = {};
};

FormatsInUse::FormatsInUse(Registry& registry, const Section& data)
    : registry_(registry), data_(data), before_(std::exchange(formats_here, this)) {
  set_extensions(
      [](const std::string& id) -> const void* { return id == ENG_FORMATS_EXTENSION ? &formats_table : nullptr; });
}

FormatsInUse::~FormatsInUse() {
  formats_here = before_;
}

eng_format FormatsInUse::get(const std::string& name) {
  const Provided* one = registry_.find(ENG_DOCUMENTS_KIND, name);
  if (!one)
    throw Error(Exit::usage, fmt::format("no plugin provides a format `{}`", name),
                fmt::format("there are: {}", fmt::join(registry_.names(ENG_DOCUMENTS_KIND), ", ")));
  auto& held = held_[name];
  if (!held) {
    Section section = data_;
    for (const Option& option : one->schema.options) {
      if (section.settings().count(option.key)) continue;
      if (option.required)
        throw Error(Exit::usage, fmt::format("the format `{}` needs the option `{}`", name, option.key),
                    fmt::format("set [data] format = \"{}\" and {}", name, option.key));
      section = section.with(option.key, option.fallback);
    }
    held = std::make_unique<Held>(registry_.table<eng_documents>(ENG_DOCUMENTS_KIND, name), std::move(section));
    const Description& by = registry_.providers(ENG_DOCUMENTS_KIND, name).front()->description;
    held->identity = fmt::format("{} {} {}", by.id, by.version, name);
    for (const Registry::Loaded& loaded : registry_.loaded())
      if (loaded.id == by.id) held->identity += " " + loaded.sha256;
    for (const Option& option : one->schema.options)
      if (option.resume != "free")
        held->identity +=
            fmt::format("\n{} = {}", option.key, toml_text(held->section.settings().at(option.key).value));
  }
  return {sizeof(eng_format), 0, one->name.c_str(), &held->table, held->options.get(), held->identity.c_str()};
}

std::vector<std::string> FormatsInUse::claiming(const std::string& file, std::string_view head) const {
  const std::string path = lower_case(file);
  std::vector<std::string> out;
  for (const std::string& name : registry_.names(ENG_DOCUMENTS_KIND)) {
    const Provided* one = registry_.find(ENG_DOCUMENTS_KIND, name);
    const auto begins = texts_in(one->facts, "begins"), endings = texts_in(one->facts, "endings");
    const auto begun = [&](const std::string& hex) { return begins_with(head, hex); };
    const auto named = [&](const std::string& ending) { return path.ends_with(lower_case(ending)); };
    if (begins.empty() && endings.empty()) continue;
    if ((begins.empty() || std::any_of(begins.begin(), begins.end(), begun)) &&
        (endings.empty() || std::any_of(endings.begin(), endings.end(), named)))
      out.push_back(name);
  }
  return out;
}

}  // namespace eng
