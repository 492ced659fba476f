// SPDX-License-Identifier: Apache-2.0
// Several documents in one sample: checks of the inputs that tell them apart (engine/ops.h).
#pragma once

#include "call.hpp"
#include "segments.hpp"

namespace cpu {

// Input k, the segments or positions of the tokens of x (B, T, ...), is absent or i32 (B, T).
inline void need_numbers(const common::Call& c, size_t k, const eng_desc& x, const char* what) {
  if (!c.has(k)) return;
  const eng_desc& d = c.in[k];
  if (d.dtype != ENG_I32 || d.ndim != 2 || x.ndim != 3 || d.dims[0] != x.dims[0] || d.dims[1] != x.dims[1])
    throw common::Error{ENG_INVALID, std::string(what) + " must be (B, T) i32, they are " + common::describe(d)};
}

// Each position + offset is a row of a table of `rows`.
inline void need_rows(const int32_t* positions, int64_t tokens, int64_t offset, int64_t rows) {
  for (int64_t i = 0; i < tokens; ++i)
    if (const int64_t row = positions[i] + offset; positions[i] < 0 || row >= rows)
      throw common::Error{ENG_OUT_OF_RANGE, "position " + std::to_string(positions[i]) + " of token " +
                                                std::to_string(i) + " needs row " + std::to_string(row) +
                                                " of a table of " + std::to_string(rows) + " rows"};
}

// The segments of sequence b, if there are any.
inline const int32_t* segments_of(const common::Args& a, size_t k, int64_t b, int64_t length) {
  const int32_t* all = a.in<int32_t>(k);
  return all ? all + b * length : nullptr;
}

}  // namespace cpu
