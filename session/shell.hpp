// SPDX-License-Identifier: Apache-2.0
// Quotes words for a shell.
#pragma once

#include <string>
#include <vector>

namespace eng {

// A word, quoted if necessary, so that a shell reads it back: printable, with $'...' where it is not (bash, zsh, ksh).
std::string shell_word(const std::string& word);
std::string command_words(const std::vector<std::string>& words);

}  // namespace eng
