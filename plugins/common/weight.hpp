// SPDX-License-Identifier: Apache-2.0
// The 16-bit weight that an update writes beside p: an optional last output, eng.cast/1 of the new p.
#pragma once

#include "call.hpp"
#include "half.hpp"

namespace common {

// Output `k` is the weight, if there is one; it is the last output that an update may have.
inline bool has_weight(const Call& c, size_t k) {
  return c.has_out(k);
}
inline void check_weight(const Call& c, size_t k) {
  if (c.out.size() > k + 1)
    throw Error{ENG_INVALID,
                "has " + std::to_string(c.out.size()) + " outputs instead of at most " + std::to_string(k + 1)};
  if (!has_weight(c, k)) return;
  const int32_t type = c.out[k].dtype;
  if (c.in[0].dtype != ENG_F32 || (type != ENG_BF16 && type != ENG_F16))
    throw Error{ENG_UNSUPPORTED, "the weight must be bf16 or f16, and p f32; the weight is " + describe(c.out[k])};
  if (elements(c.out[k]) != elements(c.in[0])) throw Error{ENG_INVALID, "the weight must have the shape of p"};
}

template <class T>
void cast_range(const float* p, T* weight, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; ++i) from_f32(p[i], weight[i]);
}
// `type`: ENG_BF16 or ENG_F16; for any other type it does nothing.
inline void cast_weight(int32_t type, const float* p, void* weight, int64_t first, int64_t last) {
  if (type == ENG_BF16) cast_range(p, static_cast<Bf16*>(weight), first, last);
  if (type == ENG_F16) cast_range(p, static_cast<F16*>(weight), first, last);
}

}  // namespace common
