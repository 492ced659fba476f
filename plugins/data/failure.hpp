// SPDX-License-Identifier: Apache-2.0
// How the parts of this plugin report bad input; turned into a status and a text at the ABI.
#pragma once

#include <stdexcept>
#include <string>

#include "engine/base.h"

namespace text_data {

class Failure : public std::runtime_error {
 public:
  Failure(eng_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  eng_status status() const { return status_; }

 private:
  eng_status status_;
};

}  // namespace text_data
