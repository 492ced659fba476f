// SPDX-License-Identifier: Apache-2.0
// Lines of texts of unknown origin.
#pragma once

#include <string>

namespace eng {

// Line `number` of a text, counted from 1, without its line ending; "" past the last line.
std::string line_of(const std::string& text, std::size_t number);
// The lines of a text, each made printable and not cut.
std::string printable_lines(const std::string& text);

}  // namespace eng
