// SPDX-License-Identifier: Apache-2.0
// Types of tensors for the fast kernels: checks, for which a type that a kernel does not serve is ENG_UNSUPPORTED, and
// the name of an element in memory.
#pragma once

#include <initializer_list>
#include <string>

#include "call.hpp"
#include "simd/names.hpp"

namespace cpu {

using namespace common;  // calls, errors and numbers, for all kernels of this device

inline void need_f32(const eng_desc& d, const char* what) {
  if (d.dtype != ENG_F32) throw Error{ENG_UNSUPPORTED, std::string(what) + " must be f32, it is " + describe(d)};
}
inline void need_float(const eng_desc& d, const char* what) {
  if (d.dtype != ENG_F32 && d.dtype != ENG_BF16 && d.dtype != ENG_F16)
    throw Error{ENG_UNSUPPORTED, std::string(what) + " must be f32, bf16 or f16, it is " + describe(d)};
}
inline void need_same_type(const eng_desc& a, const eng_desc& b, const char* what) {
  if (a.dtype != b.dtype)
    throw Error{ENG_UNSUPPORTED, std::string(what) + " differ in type: " + describe(a) + ", " + describe(b)};
}
// Sums over rows of `dtype`, outputs, and what they are added to, inputs: of that type, or all f32 if it has 16 bits.
inline void need_sums(const Call& c, int32_t dtype, std::initializer_list<size_t> in,
                      std::initializer_list<size_t> out) {
  int32_t sums = 0;
  const auto need_one = [&](const eng_desc& d) {
    const bool wider = d.dtype == ENG_F32 && (dtype == ENG_BF16 || dtype == ENG_F16);
    if ((d.dtype != dtype && !wider) || (sums && d.dtype != sums))
      throw Error{ENG_UNSUPPORTED,
                  "sums must all have the type of what is summed, or all be f32; one is " + describe(d)};
    sums = d.dtype;
  };
  for (size_t k : out)
    if (c.has_out(k)) need_one(c.out[k]);
  for (size_t k : in)
    if (c.has(k)) need_one(c.in[k]);
}

// Calls f(T{}) with the type of such a tensor's elements in memory.
template <class F>
void by_type(int32_t dtype, F&& f) {
  if (dtype == ENG_BF16)
    f(bf16{});
  else if (dtype == ENG_F16)
    f(f16{});
  else
    f(float{});
}

}  // namespace cpu
