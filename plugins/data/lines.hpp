// SPDX-License-Identifier: Apache-2.0
// The lines of a file.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "input.hpp"

namespace text_data {

// Passes on each line that is not blank, with its number, from 1 on. `mark`: bytes at the beginning of the content that
// are left out. Throws Failure for a line of more than 64 MiB, and if the file changed meanwhile.
void each_line(const InputFile& file, Packed packed, uint64_t mark,
               const std::function<void(std::string_view line, uint64_t number)>& take);

}  // namespace text_data
