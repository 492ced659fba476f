// SPDX-License-Identifier: Apache-2.0
// Problems of a configuration, collected and then told all at once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace eng {

// A range in the file, counted in characters from 1, or (line 0) an override by index, or nothing.
struct Place {
  std::size_t line = 0, column = 0, length = 1;
  int override_index = -1;
};

struct Problem {
  const char* code = "";
  std::string message;
  Place at;
  std::string label;  // behind the caret
  std::string help;   // what to change
  std::string note;   // any number of lines
};

class Problems {
 public:
  // Both are borrowed.
  Problems(const std::string& name, const std::string& text, const std::vector<std::string>& overrides);
  void add(Problem problem);
  bool empty() const { return list_.empty(); }
  // Throws Error(Exit::usage) with all of them, sorted by line, if there are any.
  void raise() const;
  // "config.toml:12", "command line", or the file's name.
  std::string origin(const Place& at) const;
  // Line `number` as written, without its end; "" past the end.
  std::string line(std::size_t number) const;
  const std::string& name() const { return name_; }

 private:
  std::string tell(const Problem& problem) const;
  std::string excerpt(const Problem& problem) const;
  const std::string& name_;
  const std::string& text_;
  const std::vector<std::string>& overrides_;
  std::vector<std::size_t> starts_;  // offset of every line
  std::vector<Problem> list_;
};

// Printable: control characters and broken UTF-8 become '?', a tab one space, long text is cut.
std::string printable(const std::string& text, std::size_t most = 200);

}  // namespace eng
