// SPDX-License-Identifier: Apache-2.0
// Typed access to a section, for the core and, as eng_options, for plugins.
#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/config/config.hpp"

namespace eng {
namespace {

template <class T>
const T& typed(const Section& section, const Setting& setting, const std::string& key, const char* wanted) {
  if (const T* value = std::get_if<T>(&setting.value)) return *value;
  throw Error(Exit::bug, fmt::format("[{}] {} holds no {}", section.name(), key, wanted));
}

const Section& of(const eng_options* self) {
  return *static_cast<const Section*>(self->data);
}

// The setting of `key`; on failure nullptr, and `status` and the sink tell.
const Setting* lookup(const eng_options* self, const char* key, eng_error* error, eng_status& status) {
  status = ENG_OK;
  if (!self || !key) {
    status = report(error, ENG_INVALID, "options or key is NULL");
    return nullptr;
  }
  const Section& section = of(self);
  const auto found = section.settings().find(key);
  if (found != section.settings().end()) return &found->second;
  status = report(error, ENG_NOT_FOUND, fmt::format("[{}] has no key `{}`", section.name(), key));
  return nullptr;
}

// Looks `key` up as a T and gives it to `use`. Nothing may be thrown across the ABI.
template <class T, class Use>
eng_status get(const eng_options* self, const char* key, const char* wanted, const void* out, eng_error* error,
               Use use) noexcept {
  try {
    if (!out) return report(error, ENG_INVALID, "out is NULL");
    eng_status status;
    const Setting* setting = lookup(self, key, error, status);
    if (!setting) return status;
    if (const T* value = std::get_if<T>(&setting->value)) return use(*value);
    const bool none = std::holds_alternative<std::monostate>(setting->value);
    return report(error, none ? ENG_NOT_FOUND : ENG_INVALID,
                  none ? fmt::format("[{}] {} has no value", of(self).name(), key)
                       : fmt::format("[{}] {} is no {}", of(self).name(), key, wanted));
  } catch (...) {
    return ENG_INTERNAL;
  }
}

template <class T, class Out>
eng_status get_scalar(const eng_options* self, const char* key, const char* wanted, Out* out, eng_error* error) {
  return get<T>(self, key, wanted, out, error, [&](const T& value) {
    *out = static_cast<Out>(value);
    return ENG_OK;
  });
}

template <class T, class Use>
eng_status get_element(const eng_options* self, const char* key, uint32_t index, const char* wanted, const void* out,
                       eng_error* error, Use use) {
  return get<std::vector<T>>(self, key, wanted, out, error, [&](const std::vector<T>& list) {
    if (index >= list.size())
      return report(error, ENG_OUT_OF_RANGE,
                    fmt::format("[{}] {} has {} elements; {} was asked", of(self).name(), key, list.size(), index));
    use(list[index]);
    return eng_status{ENG_OK};
  });
}

eng_status get_count(const eng_options* self, const char* key, uint32_t* out, eng_error* error) {
  try {
    if (!out) return report(error, ENG_INVALID, "out is NULL");
    eng_status status;
    const Setting* setting = lookup(self, key, error, status);
    if (!setting) return status;
    if (const auto* texts = std::get_if<std::vector<std::string>>(&setting->value)) {
      *out = static_cast<uint32_t>(texts->size());
    } else if (const auto* numbers = std::get_if<std::vector<double>>(&setting->value)) {
      *out = static_cast<uint32_t>(numbers->size());
    } else if (std::holds_alternative<std::monostate>(setting->value)) {
      *out = 0;
    } else {
      return report(error, ENG_INVALID, fmt::format("[{}] {} is not a list", of(self).name(), key));
    }
    return ENG_OK;
  } catch (...) {
    return ENG_INTERNAL;
  }
}

int32_t is_set(const eng_options* self, const char* key) {
  try {
    eng_status status;
    const Setting* setting = lookup(self, key, nullptr, status);
    return setting && setting->given ? 1 : 0;
  } catch (...) {
    return 0;
  }
}

}  // namespace

const Setting& Section::at(const std::string& key) const {
  const auto found = settings_.find(key);
  if (found == settings_.end()) throw Error(Exit::bug, fmt::format("[{}] has no key `{}`", name_, key));
  return found->second;
}

bool Section::has(const std::string& key) const {
  const auto found = settings_.find(key);
  return found != settings_.end() && !std::holds_alternative<std::monostate>(found->second.value);
}

bool Section::boolean(const std::string& key) const {
  return typed<bool>(*this, at(key), key, "boolean");
}

int64_t Section::integer(const std::string& key) const {
  return typed<int64_t>(*this, at(key), key, "integer");
}

double Section::number(const std::string& key) const {
  if (const auto* whole = std::get_if<int64_t>(&at(key).value)) return static_cast<double>(*whole);
  return typed<double>(*this, at(key), key, "number");
}

const std::string& Section::string(const std::string& key) const {
  return typed<std::string>(*this, at(key), key, "string");
}

const std::vector<std::string>& Section::strings(const std::string& key) const {
  return typed<std::vector<std::string>>(*this, at(key), key, "list of strings");
}

const std::vector<double>& Section::numbers(const std::string& key) const {
  return typed<std::vector<double>>(*this, at(key), key, "list of numbers");
}

void Section::set(const std::string& key, Value value, std::string origin) {
  const Setting& old = at(key);
  const bool same = old.value.index() == value.index() || std::holds_alternative<std::monostate>(old.value) ||
                    std::holds_alternative<std::monostate>(value);
  if (!same) throw Error(Exit::bug, fmt::format("[{}] {} cannot change its type", name_, key));
  const bool given = origin != "default" && origin != "derived";
  settings_[key] = Setting{std::move(value), std::move(origin), given};
}

Options::Options(const Section& section) {
  table_.struct_size = sizeof(table_);
  table_.minor = ENG_ABI_MINOR;
  table_.data = const_cast<Section*>(&section);  // only ever read
  table_.get_bool = [](const eng_options* self, const char* key, int32_t* out, eng_error* error) {
    return get_scalar<bool>(self, key, "boolean", out, error);
  };
  table_.get_int = [](const eng_options* self, const char* key, int64_t* out, eng_error* error) {
    return get_scalar<int64_t>(self, key, "integer", out, error);
  };
  table_.get_float = [](const eng_options* self, const char* key, double* out, eng_error* error) {
    return get_scalar<double>(self, key, "number", out, error);
  };
  table_.get_string = [](const eng_options* self, const char* key, const char** out, eng_error* error) {
    return eng::get<std::string>(self, key, "string", out, error, [&](const std::string& text) {
      *out = text.c_str();
      return ENG_OK;
    });
  };
  table_.get_count = get_count;
  table_.get_float_at = [](const eng_options* self, const char* key, uint32_t index, double* out, eng_error* error) {
    return get_element<double>(self, key, index, "list of numbers", out, error, [&](double value) { *out = value; });
  };
  table_.get_string_at = [](const eng_options* self, const char* key, uint32_t index, const char** out,
                            eng_error* error) {
    return get_element<std::string>(self, key, index, "list of strings", out, error,
                                    [&](const std::string& value) { *out = value.c_str(); });
  };
  table_.is_set = is_set;
}

}  // namespace eng
