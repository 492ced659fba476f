// SPDX-License-Identifier: Apache-2.0
// The rows of a file, for sources that read rows and not texts.
#pragma once

#include <functional>
#include <string>

#include "text_format.hpp"

namespace text_data {

// Passes on each row of a format that has rows, as the text of an object of JSON, with its place for messages:
// "FILE:LINE" or "FILE: row N". Rows of JSON Lines and of an array are passed on as they stand in the file: they may be
// no JSON. Throws Failure where the file is not what its format says.
void each_row(const InputFile& file, const Reading& reading, const TextFormat& format,
              const std::function<void(std::string row, std::string where)>& take);

}  // namespace text_data
