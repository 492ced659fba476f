// SPDX-License-Identifier: Apache-2.0
// Inside the configuration: what the file and the overrides say, and what is wrong with it.
#pragma once

#include <set>

#include "session/config/config.hpp"

namespace eng {

inline constexpr std::size_t max_config_bytes = std::size_t{1} << 20;

struct Given {
  Value value;
  std::string odd;        // what it is if no Value can hold it: "a date or time", "a table", ...
  TextRange key, place;   // of the key and of the value
  std::string text = {};  // the right side of an override
  bool held = false;      // a default that a resolved text wrote down: not given by anybody
};

struct Document {
  struct Part {
    TextRange header;  // none if it is made by overrides alone
    std::map<std::string, Given> keys;
  };
  std::map<std::string, Part> parts;  // by section; "": keys outside any section
  bool resolved = false;              // the text of a run, which says everything
  std::vector<std::string> notes;

  // nullptr if it is not there.
  const Part* find(const std::string& section) const;
  const Given* find(const std::string& section, const std::string& key) const;
  // nullptr also if it is of another type.
  template <class T>
  const T* value(const std::string& section, const std::string& key) const {
    const Given* given = find(section, key);
    return given ? std::get_if<T>(&given->value) : nullptr;
  }
};

using Problems = std::vector<Problem>;
// Adds what cannot be read to `problems`.
Document read_document(const std::string& text, const std::vector<std::string>& overrides, Problems& problems);
// Puts overrides into what was read without them, or takes away: see Config::load.
void take_overrides(const std::vector<std::string>& overrides, Document& document, Problems& problems);
// A text by itself; `name` stands for its file. Throws ConfigError.
Document read_document(const std::string& text, const std::string& name);
// The same of a file. Throws ConfigError, or Error(Exit::usage) if it cannot be read.
Document read_document(const std::filesystem::path& file);

// What must hold between keys, and values that are derived from others. Rules about `broken` sections, which have
// problems of their own, stay silent.
void apply_rules(const Document& document, const std::set<std::string>& broken, Config& config, Problems& problems,
                 std::vector<std::string>& notes);

}  // namespace eng
