// SPDX-License-Identifier: Apache-2.0
// The reason why something ended early, as text for users.
#pragma once

#include <exception>
#include <string>

namespace eng {

struct Failure {
  int exit;          // the exit code of the process
  std::string text;  // printable, whatever bytes a plugin put into its message
  std::string help;  // what to change; "" if nothing is known
};

// A text of unknown origin, such as a plugin's or one with a file's name, as a terminal or a log may show it: without
// control characters, and with lines after the first indented. A name with a newline in it can start no line that looks
// like a message of its own.
std::string for_terminal(const std::string& text);

// For any exception, also one that is not an Error. Call it while the exception is alive.
Failure failure(std::exception_ptr reason);

}  // namespace eng
