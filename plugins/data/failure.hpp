// SPDX-License-Identifier: Apache-2.0
// Errors for bad input, thrown by all parts of this plugin.
#pragma once

#include <string>

#include "../common/error.hpp"

namespace text_data {

using common::guarded;
using common::report;
using Failure = common::Error;

// A sink that keeps the text.
struct Said {
  Said() = default;
  Said(const Said&) = delete;
  Said& operator=(const Said&) = delete;
  std::string text;
  eng_error sink = {sizeof(eng_error), 0, this, [](eng_error* self, eng_status, const char* said, uint64_t length) {
                      static_cast<Said*>(self->data)->text.assign(said ? said : "", said ? length : 0);
                    }};
};

}  // namespace text_data
