// SPDX-License-Identifier: Apache-2.0
// Code that the rules of the ops share: shapes, and how a shape function becomes `infer`.
#pragma once

#include <initializer_list>
#include <vector>

#include "../common/call.hpp"

namespace mamba {

using Descs = std::vector<eng_desc>;

inline void expect(bool right, const char* rule) {
  if (!right) throw common::Error{ENG_INVALID, rule};
}

inline eng_desc make(int32_t dtype, std::initializer_list<int64_t> dims) {
  eng_desc d{};
  d.dtype = dtype;
  for (int64_t n : dims) d.dims[d.ndim++] = n;
  return d;
}
inline eng_desc with_columns(eng_desc d, int64_t n) {
  return d.dims[d.ndim - 1] = n, d;
}
inline int32_t wide(int32_t dtype) {
  return dtype == ENG_F64 ? ENG_F64 : ENG_F32;
}
inline bool is(const eng_desc& d, std::initializer_list<int64_t> dims) {
  const eng_desc want = make(d.dtype, dims);
  bool same = d.ndim == want.ndim;
  for (uint32_t k = 0; same && k < d.ndim; ++k) same = d.dims[k] == want.dims[k];
  return same;
}
// Input k, the segments of the tokens of x (B, T, ...), is absent or right.
inline void expect_segments(const common::Call& c, size_t k, const eng_desc& x) {
  expect(!c.has(k) || (c.in[k].dtype == ENG_I32 && is(c.in[k], {x.dims[0], x.dims[1]})), "segments must be (B, T) i32");
}

inline eng_status refuse_segments(eng_error* error) {
  return common::report(
      error, ENG_UNSUPPORTED,
      "segments divide samples into documents, but a running sequence is one document; generate with a "
      "model that is traced without segments");
}

// Writes what `shapes` gives for the call.
template <class Shapes>
eng_status infer_by(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error,
                    Shapes shapes) {
  return common::guarded(error, [&] {
    const Descs made = shapes(common::Call(*call));
    expect(made.size() <= cap, "the host has no room for the outputs");
    std::copy(made.begin(), made.end(), out);
    *n_out = static_cast<uint32_t>(made.size());
  });
}
#define INFER(name)                                                                                               \
  eng_status name##_infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) { \
    return infer_by(call, out, cap, n_out, error, name);                                                          \
  }

}  // namespace mamba
