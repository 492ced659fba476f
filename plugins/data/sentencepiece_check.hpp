// SPDX-License-Identifier: Apache-2.0
// What the sentencepiece library takes on trust is checked before it gets to see a model.
#pragma once

#include <string>
#include <string_view>

namespace text_data {

// Throws Failure("FILE: ...") for a serialised model that is cut short or whose tables point outside of themselves.
void check_sentencepiece(std::string_view model, const std::string& file);

}  // namespace text_data
