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

}  // namespace eng
