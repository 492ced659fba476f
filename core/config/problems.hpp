// SPDX-License-Identifier: Apache-2.0
// What is wrong with a configuration: all of it at once, for the command to show.
#pragma once

#include <vector>

#include "core/base/error.hpp"

namespace eng {

// Line `number` of a text, from 1, without its end; "" past the end.
std::string line_of(const std::string& text, std::size_t number);
// The characters of a line, each as printable UTF-8: '?' for control characters and broken UTF-8, a space for a tab.
std::vector<std::string> characters(const std::string& text);
// The same as one text; long text is cut.
std::string printable(const std::string& text, std::size_t most = 200);
// Lines that may be anything, each made printable.
std::string printable_lines(const std::string& text);
// Throws std::runtime_error unless a plugin's `name` can stand in files and messages. `what`: "the name of a block".
void check_name(const char* what, const std::string& name);

// A range in the file, counted in characters from 1; or (line 0) an override; or neither.
struct Place {
  std::size_t line = 0, column = 0, length = 1;
  std::string override_text = {};
};

struct Problem {
  const char* code = "";  // docs/config.md lists them
  std::string message = {};
  Place at = {};
  std::string help = {};   // what to change
  std::string label = {};  // behind the caret
  std::string note = {};
  std::string word = {};  // what was written, where one of `known` could have been
  std::vector<std::string> known = {};
};

// Its what() has a line for each problem.
class ConfigError : public Error {
 public:
  // `name` stands for the file with this text.
  ConfigError(const std::string& name, const std::string& text, std::vector<Problem> problems);
  // The file by line, then the command line, then what is missing.
  const std::vector<Problem>& problems() const { return problems_; }
  const std::string& name() const { return name_; }
  std::string line(std::size_t number) const { return line_of(text_, number); }

 private:
  std::string name_, text_;
  std::vector<Problem> problems_;
};

}  // namespace eng
