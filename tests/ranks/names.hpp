// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// The name of the checkpoint of a step, of one digit.
inline std::string name_of(int step) {
  return "step-0000000" + std::to_string(step);
}
