// SPDX-License-Identifier: Apache-2.0
// Typed access to a section, for the engine and, as eng_options, for plugins.
#include "core/config/section.hpp"

namespace eng {
namespace {

// Passes the value of `key` to `use`. Throws nothing: the caller is a plugin.
template <class T, class Use>
eng_status with(const eng_options* self, const char* key, const void* out, eng_error* error, Use use) noexcept {
  bool has = false;
  try {
    if (!self || !key || !out) return report(error, ENG_INVALID, "options, key or out is NULL");
    const Section& section = *static_cast<const Section*>(self->data);
    has = section.has(key);
    return use(section.as<T>(key));
  } catch (const Error& e) {
    return report(error, has ? ENG_INVALID : ENG_NOT_FOUND, e.what());
  } catch (...) {
    return ENG_INTERNAL;
  }
}

template <class T, class Out>
Out plain(const T& value) {
  if constexpr (std::is_same_v<T, std::string>)
    return value.c_str();
  else
    return static_cast<Out>(value);
}

template <class T, class Out>
eng_status scalar(const eng_options* self, const char* key, Out* out, eng_error* error) {
  return with<T>(self, key, out, error, [&](const T& value) {
    *out = plain<T, Out>(value);
    return ENG_OK;
  });
}

template <class T, class Out>
eng_status element(const eng_options* self, const char* key, uint32_t index, Out* out, eng_error* error) {
  return with<std::vector<T>>(self, key, out, error, [&](const std::vector<T>& list) -> eng_status {
    if (index >= list.size())
      return report(error, ENG_OUT_OF_RANGE,
                    fmt::format("{} has {} elements; element {} was asked for", key, list.size(), index));
    *out = plain<T, Out>(list[index]);
    return ENG_OK;
  });
}

eng_status get_count(const eng_options* self, const char* key, uint32_t* out, eng_error* error) {
  const auto none = [&](std::monostate) { return *out = 0, ENG_OK; };
  const auto size = [&](const auto& list) { return *out = static_cast<uint32_t>(list.size()), ENG_OK; };
  if (with<std::monostate>(self, key, out, nullptr, none) == ENG_OK) return ENG_OK;
  if (with<std::vector<double>>(self, key, out, nullptr, size) == ENG_OK) return ENG_OK;
  return with<std::vector<std::string>>(self, key, out, error, size);
}

int32_t is_set(const eng_options* self, const char* key) noexcept {
  if (!self || !key) return 0;
  const auto& settings = static_cast<const Section*>(self->data)->settings();
  const auto found = settings.find(key);
  return found != settings.end() && found->second.given;
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

Section Section::with(const std::string& key, Value value) const {
  Section out = *this;
  out.settings_[key] = Setting{std::move(value), "derived", false};
  return out;
}

Options::Options(const Section& section) {
  table_.struct_size = sizeof(table_);
  table_.minor = ENG_ABI_MINOR;
  table_.data = const_cast<Section*>(&section);  // only ever read
  table_.get_bool = scalar<bool, int32_t>;
  table_.get_int = scalar<int64_t, int64_t>;
  table_.get_float = scalar<double, double>;
  table_.get_string = scalar<std::string, const char*>;
  table_.get_count = get_count;
  table_.get_float_at = element<double, double>;
  table_.get_string_at = element<std::string, const char*>;
  table_.is_set = is_set;
}

}  // namespace eng
