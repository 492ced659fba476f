// SPDX-License-Identifier: Apache-2.0
// All problems of a configuration, for the command to print.
#pragma once

#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "session/lines.hpp"

namespace eng {

// A range in the file, counted in characters from 1; or (line 0) an override; or neither.
struct TextRange {
  std::size_t line = 0, column = 0, length = 1;
  std::string override_text = {};
};

struct Problem {
  const char* code = "";  // docs/config.md lists them
  std::string message = {};
  TextRange at = {};
  std::string help = {};   // what to change
  std::string label = {};  // after the caret
  std::string note = {};
  std::string word = {};  // what was written instead of one of `known`
  std::vector<std::string> known = {};
};

// Its what() has a line for each problem.
class ConfigError : public Error {
 public:
  // `name` stands for the file with this text.
  ConfigError(const std::string& name, const std::string& text, std::vector<Problem> problems);
  // First the file by line, then the command line, then missing keys.
  const std::vector<Problem>& problems() const { return problems_; }
  const std::string& name() const { return name_; }
  std::string line(std::size_t number) const { return line_of(text_, number); }

 private:
  std::string name_, text_;
  std::vector<Problem> problems_;
};

}  // namespace eng
