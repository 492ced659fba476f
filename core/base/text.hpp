// SPDX-License-Identifier: Apache-2.0
// Makes text of unknown origin safe to print in messages.
#pragma once

#include <string>
#include <vector>

namespace eng {

// The characters of a line, each as printable UTF-8: '?' for control characters and broken UTF-8, a space for a tab.
std::vector<std::string> characters(const std::string& text);
// A text as one printable line, cut after `most` characters.
std::string printable(const std::string& text, std::size_t most = 200);
// Throws std::runtime_error unless a plugin's `name` is fit for files and messages. `what`: "the name of a block".
void check_name(const char* what, const std::string& name);

}  // namespace eng
