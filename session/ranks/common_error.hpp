// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/base/error.hpp"

namespace eng {

// An error that every rank throws with the same text, so only one rank prints it.
class CommonError : public Error {
 public:
  using Error::Error;
};

}  // namespace eng
