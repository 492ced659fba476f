// SPDX-License-Identifier: Apache-2.0
// The sentencepiece library does not check what it reads. This checks a model before the library sees it.
#pragma once

#include <string>
#include <string_view>

namespace text_data {

// Throws Failure("FILE: ...") for a serialised model that is cut short or whose tables point outside themselves.
void check_sentencepiece(std::string_view model, const std::string& file);

}  // namespace text_data
