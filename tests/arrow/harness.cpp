// SPDX-License-Identifier: Apache-2.0
#include "harness.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "engine/plugin.h"

namespace arrow_test {
namespace {

const eng_documents& table(const std::string& format) {
  static const eng_plugin* const loaded = [] {
    void* library = dlopen((std::string(ENGINE_PLUGIN_DIR) + "/arrow/arrow.eng.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    const auto query = reinterpret_cast<eng_plugin_query_fn>(dlsym(library, "eng_plugin_query_1"));
    if (!query) throw std::runtime_error("no eng_plugin_query_1");
    return query(ENG_ABI_MINOR);
  }();
  const void* found = loaded->get_interface(ENG_DOCUMENTS_KIND, format.c_str());
  if (!found) throw std::runtime_error("no format " + format);
  return *static_cast<const eng_documents*>(found);
}

eng_options options_of(const How& how) {
  eng_options options{};
  options.struct_size = sizeof(options);
  options.data = const_cast<How*>(&how);
  options.get_string = [](const eng_options* self, const char* key, const char** out, eng_error*) -> eng_status {
    const How& with = *static_cast<const How*>(self->data);
    if (std::strcmp(key, "field") == 0)
      *out = with.field.c_str();
    else if (std::strcmp(key, "missing") == 0)
      *out = with.missing.c_str();
    else
      return ENG_NOT_FOUND;
    return ENG_OK;
  };
  return options;
}

struct Exchange {
  std::string_view content;
  const How& how;
  Read& result;
  std::size_t at = 0;
  std::string open = {};  // of a document that goes on
};

eng_status read_content(const eng_documents_in* in, void* out, uint64_t capacity, uint64_t* got, eng_error* error) {
  auto& me = *static_cast<Exchange*>(in->data);
  *got = std::min<uint64_t>(capacity, me.content.size() - me.at);
  if (me.at + *got > me.how.breaks) {
    error->set(error, ENG_UNAVAILABLE, "the disk is gone", 16);
    return ENG_UNAVAILABLE;
  }
  if (*got > 0) std::memcpy(out, me.content.data() + me.at, *got);
  me.at += *got;
  return ENG_OK;
}

eng_status seek_content(const eng_documents_in* in, uint64_t offset, eng_error*) {
  auto& me = *static_cast<Exchange*>(in->data);
  if (offset > me.content.size()) return ENG_OUT_OF_RANGE;
  me.at = offset;
  return ENG_OK;
}

eng_status put(const eng_documents_out* out, const char* text, uint64_t size, uint32_t flags, eng_error* error) {
  auto& me = *static_cast<Exchange*>(out->data);
  if (me.result.texts.size() == me.how.most) {
    error->set(error, ENG_UNAVAILABLE, "enough", 6);
    return ENG_UNAVAILABLE;
  }
  if (size > 0) me.open.append(text, size);
  if ((flags & ENG_TEXT_MORE) != 0) return ENG_OK;
  me.result.texts.push_back(std::move(me.open));
  me.open.clear();
  return ENG_OK;
}

eng_status begin_part(const eng_documents_out* out, uint64_t part, eng_error*) {
  Read& result = static_cast<Exchange*>(out->data)->result;
  result.parts.emplace_back(part, result.texts.size());
  return ENG_OK;
}

const How by_default;
const eng_options default_options = options_of(by_default);

eng_status give(const char* name, eng_format* out) {
  *out = {sizeof(*out), 0, name, &table(name), &default_options, "arrow"};
  return ENG_OK;
}

const char* claiming(std::string_view head) {
  if (head.substr(0, 4) == "PAR1" || head.substr(0, 4) == "PARE") return "parquet";
  using namespace std::literals;
  return head.substr(0, 8) == "ARROW1\0\0"sv || head.substr(0, 4) == "\xff\xff\xff\xff" ? "arrow" : nullptr;
}

}  // namespace

std::string file(const std::string& name) {
  std::ifstream in(golden + name, std::ios::binary);
  if (!in) throw std::runtime_error("no golden " + name);
  return {std::istreambuf_iterator<char>(in), {}};
}

Read read(const std::string& format, std::string_view content, const How& how) {
  Read result;
  const eng_documents& by = table(format);
  eng_error error = {sizeof(error), 0, &result, [](eng_error* self, eng_status, const char* said, uint64_t length) {
                       static_cast<Read*>(self->data)->error.assign(said, length);
                     }};
  Exchange exchange{content, how, result};
  const eng_documents_in in = {sizeof(in),
                               0,
                               &exchange,
                               "/data/file",
                               how.seeks ? content.size() : 0,
                               read_content,
                               how.seeks ? seek_content : nullptr,
                               how.first_part};
  const eng_documents_out out = {sizeof(out), 0, &exchange, put, begin_part};
  eng_documents_seen seen{};
  seen.struct_size = sizeof(seen);
  const eng_options options = options_of(how);
  void* self = nullptr;
  result.status = by.create(&options, &self, &error);
  if (result.status != ENG_OK) return result;
  result.status = by.read(self, &in, &out, &seen, &error);
  by.destroy(self);
  result.left_out = seen.left_out;
  return result;
}

Read read(std::string_view content, const How& how) {
  const char* const format = claiming(content);
  if (format) return read(std::string(format), content, how);
  Read none;
  none.status = ENG_NOT_FOUND;
  return none;
}

const eng_formats formats = {
    sizeof(eng_formats), 0,
    [](const eng_formats*, const char* name, eng_format* out, eng_error*) { return give(name, out); },
    [](const eng_formats*, const char*, const void* head, uint64_t size, eng_format* out, eng_error*) -> eng_status {
      const char* const name = claiming({static_cast<const char*>(head), size});
      return name ? give(name, out) : ENG_NOT_FOUND;
    }};

}  // namespace arrow_test
