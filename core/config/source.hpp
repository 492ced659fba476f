// SPDX-License-Identifier: Apache-2.0
// Inside the configuration: what the file and the overrides say, and what is wrong with it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/config/config.hpp"

namespace eng {

inline constexpr std::size_t max_config_bytes = std::size_t{1} << 20;

// A range in the file, counted in characters from 1, or (line 0) an override by index, or nothing.
struct Place {
  std::size_t line = 0, column = 0, length = 1;
  int override_index = -1;
};

struct Problem {
  const char* code = "";
  std::string message = {};
  Place at = {};
  std::string help = {};   // what to change
  std::string label = {};  // behind the caret
  std::string note = {};
};

// Problems, collected and then told all at once.
class Problems {
 public:
  // `name` stands for the file. `overrides` are borrowed.
  Problems(std::string name, const std::string& text, const std::vector<std::string>& overrides);
  void add(Problem problem) { list_.push_back(std::move(problem)); }
  std::string text() const;  // all, sorted by line; "" if there are none
  void raise() const;        // throws Error(Exit::usage) with text() if there are any
  // "config.toml:12", "command line", or the file's name.
  std::string origin(const Place& at) const;
  // Line `number` as written, without its end; "" past the end.
  std::string line(std::size_t number) const;
  const std::string& name() const { return name_; }

 private:
  std::string excerpt(const Problem& problem) const;
  std::string name_;
  std::vector<std::string> lines_;
  const std::vector<std::string>& overrides_;
  std::vector<Problem> list_;
};

struct Given {
  Value value;
  std::string odd;   // what it is if no Value can hold it: "a date or time", "a table", ...
  Place key, place;  // of the key and of the value
  std::string text;  // the right side of an override
};

struct Document {
  struct Part {
    Place header;  // none if it is made by overrides alone
    std::map<std::string, Given> keys;
  };
  std::map<std::string, Part> parts;  // by section; "": keys outside any section
  std::set<std::string> defaults;     // "section.key" of [resolved]

  // nullptr if it is not there.
  const Part* find(const std::string& section) const;
  const Given* find(const std::string& section, const std::string& key) const;
};

// Adds what cannot be read to `problems`.
Document read_document(const std::string& text, const std::vector<std::string>& overrides, Problems& problems);

// What must hold between keys, and values that are derived from others. Rules about `broken` sections, which have
// problems of their own, stay silent.
void apply_rules(const Document& document, const std::set<std::string>& broken, Config& config, Problems& problems,
                 std::vector<std::string>& notes);

// Insertions, deletions, replacements and swaps of neighbours between two names.
std::size_t edit_distance(const std::string& a, const std::string& b);
// All candidates at the smallest distance of at most 2 (of 1 for names up to 4 letters), in their order.
std::vector<std::string> nearest(const std::string& name, const std::vector<std::string>& candidates);

// A key of another trainer.
struct Foreign {
  std::string here, whose;  // "train.steps", "Hugging Face's"
};
std::optional<Foreign> foreign_key(const std::string& name);

}  // namespace eng
