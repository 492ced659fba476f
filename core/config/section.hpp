// SPDX-License-Identifier: Apache-2.0
// One section of the resolved configuration: every key with its type and origin, and the same as a plugin reads it.
#pragma once

#include <memory>

#include "core/base/error.hpp"
#include "core/config/value.hpp"

namespace eng {

// Complete: has the keys of the core's schema and of the section's plugin.
class Section {
 public:
  Section() = default;
  Section(std::string name, std::map<std::string, Setting> settings)
      : name_(std::move(name)), settings_(std::move(settings)) {}
  const std::string& name() const { return name_; }
  const std::map<std::string, Setting>& settings() const { return settings_; }
  bool has(const std::string& key) const;                             // has a value, given or default
  bool given(const std::string& key) const { return at(key).given; }  // by the user or a preset
  // These throw Error(Exit::bug) for an unknown key or a wrong type.
  template <class T>
  const T& as(const std::string& key) const {
    if (const T* value = std::get_if<T>(&at(key).value)) return *value;
    throw Error(Exit::bug, "[" + name_ + "] " + key + " is not of type " + kind_of(T{}));
  }
  bool boolean(const std::string& key) const { return as<bool>(key); }
  int64_t integer(const std::string& key) const { return as<int64_t>(key); }  // also for bytes
  double number(const std::string& key) const;                                // also for an integer
  const std::string& string(const std::string& key) const { return as<std::string>(key); }
  const std::vector<std::string>& strings(const std::string& key) const { return as<std::vector<std::string>>(key); }
  // A copy in which `key`, new or not, has this value.
  Section with(const std::string& key, Value value) const;
  // Replaces a value. Any origin but "default" and "derived" counts as given.
  void set(const std::string& key, Value value, std::string origin);

 private:
  const Setting& at(const std::string& key) const;
  std::string name_;
  std::map<std::string, Setting> settings_;
};

// A section as a plugin reads it. The section must outlive it.
class Options {
 public:
  explicit Options(const Section& section);
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
  const eng_options* get() const { return &table_; }

 private:
  eng_options table_{};
};

// A plugin's object, which destroys itself. `create` is given the options, what else it takes, and where to put itself.
// Throws Error(Exit::usage), prefixed with `where`.
template <class Table, class... More>
std::shared_ptr<void> make_object(const Table& table, const Section& section, const std::string& where, More... more) {
  Options options(section);
  void* self = nullptr;
  call_plugin(Exit::usage, where, table.create, options.get(), more..., &self);
  return std::shared_ptr<void>(self, [destroy = table.destroy](void* p) { destroy(p); });
}

}  // namespace eng
