// SPDX-License-Identifier: Apache-2.0
// Helpers for the shape rules of the standard ops.
#pragma once

#include "core/tensor/dtype.hpp"
#include "core/trace/graph.hpp"

namespace eng {

using Shapes = std::span<const eng_desc>;
using Out = std::vector<eng_desc>;

inline int64_t last(const eng_desc& d) {
  return d.ndim ? d.dims[d.ndim - 1] : 1;
}
inline int64_t rows(const eng_desc& d) {
  return last(d) ? count(d) / last(d) : 0;
}
inline eng_desc with_last(eng_desc d, int64_t n) {
  return d.dims[d.ndim - 1] = n, d;
}
inline bool given(Shapes in, size_t k) {
  return k < in.size() && in[k].dtype;
}
// Input k, segments or positions of the tokens of x (B, T, ...), is absent or right.
inline bool numbers_tokens(Shapes in, size_t k, const eng_desc& x) {
  return !given(in, k) ||
         (in[k].dtype == ENG_I32 && in[k].ndim == 2 && in[k].dims[0] == x.dims[0] && in[k].dims[1] == x.dims[1]);
}

}  // namespace eng
