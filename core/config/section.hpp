// SPDX-License-Identifier: Apache-2.0
// One section of the resolved configuration: every key, typed, with its origin; and as plugins see it.
#pragma once

#include "core/base/error.hpp"
#include "core/config/value.hpp"

namespace eng {

// One section, complete: keys of the core's schema and of the section's plugin.
class Section {
 public:
  Section() = default;
  Section(std::string name, std::map<std::string, Setting> settings)
      : name_(std::move(name)), settings_(std::move(settings)) {}
  const std::string& name() const { return name_; }
  const std::map<std::string, Setting>& settings() const { return settings_; }
  bool has(const std::string& key) const;                             // holds a value (given or default)
  bool given(const std::string& key) const { return at(key).given; }  // by the user or a preset
  // Throw Error(Exit::bug) for a key or type that the schema does not have.
  template <class T>
  const T& as(const std::string& key) const {
    if (const T* value = std::get_if<T>(&at(key).value)) return *value;
    throw Error(Exit::bug, "[" + name_ + "] " + key + " is no " + kind_of(T{}));
  }
  bool boolean(const std::string& key) const { return as<bool>(key); }
  int64_t integer(const std::string& key) const { return as<int64_t>(key); }  // also bytes
  double number(const std::string& key) const;                                // also of an integer
  const std::string& string(const std::string& key) const { return as<std::string>(key); }
  const std::vector<std::string>& strings(const std::string& key) const { return as<std::vector<std::string>>(key); }
  // A copy with one more key, or another value of one.
  Section with(const std::string& key, Value value) const;
  // Replaces a value. Any origin but "default" and "derived" counts as given.
  void set(const std::string& key, Value value, std::string origin);

 private:
  const Setting& at(const std::string& key) const;
  std::string name_;
  std::map<std::string, Setting> settings_;
};

// A section as a plugin sees it. Borrows the section.
class Options {
 public:
  explicit Options(const Section& section);
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
  const eng_options* get() const { return &table_; }

 private:
  eng_options table_{};
};

}  // namespace eng
