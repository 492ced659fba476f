// SPDX-License-Identifier: Apache-2.0
// An error that every rank throws with the same words: one of them tells it.
#pragma once

#include "core/base/error.hpp"

namespace eng {

class CommonError : public Error {
 public:
  using Error::Error;
};

}  // namespace eng
