// SPDX-License-Identifier: Apache-2.0
#include "session/lines.hpp"

#include <sstream>

#include "core/base/text.hpp"

namespace eng {

std::string line_of(const std::string& text, std::size_t number) {
  std::istringstream in(text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text);
  std::string line;
  while (number > 0 && std::getline(in, line)) --number;
  return number > 0 ? "" : line.substr(0, line.find_last_not_of('\r') + 1);
}

std::string printable_lines(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  for (std::string line; std::getline(in, line);) out += (out.empty() ? "" : "\n") + printable(line, line.size());
  return out;
}

}  // namespace eng
