// SPDX-License-Identifier: Apache-2.0
// Text of unknown origin, made fit for messages.
#pragma once

#include <string>
#include <vector>

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

}  // namespace eng
