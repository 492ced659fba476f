// SPDX-License-Identifier: Apache-2.0
// Typed access to a section, for the core and, as eng_options, for plugins.
#include "core/config/config.hpp"

#include <fmt/format.h>

namespace eng {
namespace {

// Hands the section to `use`. Nothing may be thrown across the ABI.
template <class Use>
eng_status with(const eng_options* self, const char* key, const void* out, eng_error* error, Use use) noexcept {
  bool has = false;
  try {
    if (!self || !key || !out) return report(error, ENG_INVALID, "options, key or out is NULL");
    const Section& section = *static_cast<const Section*>(self->data);
    has = section.has(key);
    return use(section);
  } catch (const Error& e) {
    return report(error, has ? ENG_INVALID : ENG_NOT_FOUND, e.what());
  } catch (...) {
    return ENG_INTERNAL;
  }
}

void put(const std::string& text, const char** out) {
  *out = text.c_str();
}

template <class T, class Out>
void put(T value, Out* out) {
  *out = static_cast<Out>(value);
}

template <class T, class Out>
eng_status scalar(const eng_options* self, const char* key, Out* out, eng_error* error) {
  return with(self, key, out, error, [&](const Section& section) {
    put(section.as<T>(key), out);
    return ENG_OK;
  });
}

template <class T, class Out>
eng_status element(const eng_options* self, const char* key, uint32_t index, Out* out, eng_error* error) {
  return with(self, key, out, error, [&](const Section& section) -> eng_status {
    const auto& list = section.as<std::vector<T>>(key);
    if (index >= list.size())
      return report(error, ENG_OUT_OF_RANGE,
                    fmt::format("[{}] {} has {} elements; {} was asked", section.name(), key, list.size(), index));
    put(list[index], out);
    return ENG_OK;
  });
}

eng_status count(const eng_options* self, const char* key, uint32_t* out, eng_error* error) {
  return with(self, key, out, error, [&](const Section& section) {
    section.given(key);  // refuses a key that there is not
    const Value& value = section.settings().at(key).value;
    const auto* numbers = std::get_if<std::vector<double>>(&value);
    *out = static_cast<uint32_t>(value.index() == 0 ? 0 : numbers ? numbers->size() : section.strings(key).size());
    return ENG_OK;
  });
}

int32_t is_set(const eng_options* self, const char* key) {
  int32_t set = 0;
  with(self, key, &set, nullptr, [&](const Section& section) {
    set = section.given(key) ? 1 : 0;
    return ENG_OK;
  });
  return set;
}

}  // namespace

const Setting& Section::at(const std::string& key) const {
  const auto found = settings_.find(key);
  if (found == settings_.end()) throw Error(Exit::bug, fmt::format("[{}] has no key `{}`", name_, key));
  return found->second;
}

bool Section::has(const std::string& key) const {
  const auto found = settings_.find(key);
  return found != settings_.end() && found->second.value.index() != 0;
}

double Section::number(const std::string& key) const {
  const auto* whole = std::get_if<int64_t>(&at(key).value);
  return whole ? static_cast<double>(*whole) : as<double>(key);
}

void Section::set(const std::string& key, Value value, std::string origin) {
  const std::size_t old = at(key).value.index();
  if (old != 0 && value.index() != 0 && old != value.index())
    throw Error(Exit::bug, fmt::format("[{}] {} cannot change its type", name_, key));
  const bool given = origin != "default" && origin != "derived";
  settings_[key] = Setting{std::move(value), std::move(origin), given};
}

Options::Options(const Section& section) {
  table_.struct_size = sizeof(table_);
  table_.minor = ENG_ABI_MINOR;
  table_.data = const_cast<Section*>(&section);  // only ever read
  table_.get_bool = scalar<bool, int32_t>;
  table_.get_int = scalar<int64_t, int64_t>;
  table_.get_float = scalar<double, double>;
  table_.get_string = scalar<std::string, const char*>;
  table_.get_count = count;
  table_.get_float_at = element<double, double>;
  table_.get_string_at = element<std::string, const char*>;
  table_.is_set = is_set;
}

const Section& Config::section(const std::string& name) const {
  for (const Section& section : sections_)
    if (section.name() == name) return section;
  throw Error(Exit::bug, "no section [" + name + "]");
}

Section& Config::section(const std::string& name) {
  return const_cast<Section&>(static_cast<const Config&>(*this).section(name));
}

void Config::require(const std::string& name) const {
  if (name == "data" && !missing_data_.empty()) throw Error(Exit::usage, missing_data_);
}

}  // namespace eng
