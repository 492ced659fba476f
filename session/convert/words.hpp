// SPDX-License-Identifier: Apache-2.0
// A command line as a shell divides it.
#pragma once

#include <string>
#include <vector>

namespace eng::converter {

using Words = std::vector<std::string>;

bool among(const Words& words, const std::string& word);
// Words without their quotes; ";" and "|" between two commands. A new line ends a command if a command or an assignment
// follows; before flags it is as if it were continued. Throws Error(Exit::usage).
Words shell_words(const std::string& line);

bool is_name(const std::string& word);
// Without small letters: a variable of the environment, and not a key.
bool is_upper(const std::string& name);
// $NAME, ${NAME}, ${NAME[@]}, $@
bool is_variable(const std::string& word);

// The last of several commands for which `starts` says that it starts a training, else the last one: with the values of
// the variables that the others set, and those of the environment in front.
Words last_command(const Words& words, bool (*starts)(const Words&));

}  // namespace eng::converter
