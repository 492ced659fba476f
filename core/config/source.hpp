// SPDX-License-Identifier: Apache-2.0
// What the file and the overrides say, before anybody knows which keys there are.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/config/problems.hpp"
#include "core/config/value.hpp"

namespace eng {

struct Given {
  Value value;
  std::string odd;   // what it is if no Value can hold it: "a date", "a table", ...
  Place key, place;  // of the key and of the value
  std::string text;  // the right side of an override
};

struct Document {
  struct Part {
    Place header;
    std::map<std::string, Given> keys;
  };
  std::map<std::string, Part> parts;
  std::map<std::string, Given> loose;  // keys outside any section
  std::set<std::string> defaults;      // "section.key" of [resolved]

  const Given* find(const std::string& section, const std::string& key) const;
};

// Adds what cannot be read to `problems`.
Document read_document(const std::string& text, const std::vector<std::string>& overrides, Problems& problems);

// What must not reach the TOML parser (3.3), which it would crash on: dotted keys of very many parts, and letters
// outside ASCII in bare keys, which TOML forbids. Skips strings and comments.
std::optional<Problem> forbidden_toml(const std::string& text);

}  // namespace eng
