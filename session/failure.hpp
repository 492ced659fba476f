// SPDX-License-Identifier: Apache-2.0
// Why something ended early, in the words in which people are told.
#pragma once

#include <exception>
#include <string>

namespace eng {

struct Failure {
  int exit;          // what a process ends with
  std::string text;  // printable, whatever bytes a plugin put into its message
  std::string help;  // what to change; "" if nothing is known
};

// Of any exception, also of one that is no Error. Call it where the exception is alive.
Failure failure(std::exception_ptr reason);

}  // namespace eng
