// SPDX-License-Identifier: Apache-2.0
// Common parts of the readers of files of tokens.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "failure.hpp"
#include "token_file.hpp"

namespace text_data {

[[noreturn]] inline void refuse_tokens(const std::string& path, const std::string& what,
                                       eng_status status = ENG_INVALID) {
  throw Failure(status, "[data] " + path + ": " + what);
}

inline std::string read_begin(const InputFile& file, uint64_t size) {
  std::string text;
  file.each_piece(0, std::min(size, file.size()), [&](std::string_view piece) { text += piece; });
  return text;
}

template <class T>
T number_at(std::string_view bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Checks Megatron's index against the size of its .bin; see open_token_file.
void check_megatron(const InputFile& index, uint64_t bin_size, TokenFile& out);
// A NumPy array (.npy) of ids. `begin` begins with its magic.
void open_numpy(const InputFile& file, std::string_view begin, TokenFile& out);
// A file without a header. `vocabulary` 0: not known. Throws Failure if its first bytes say that it is another thing,
// or if `dtype` is "auto" and the width of the ids can be any.
void open_raw(const InputFile& file, std::string_view begin, const std::string& dtype, int64_t vocabulary,
              TokenFile& out);

}  // namespace text_data
