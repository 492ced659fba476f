// SPDX-License-Identifier: Apache-2.0
// Checks that kernels share.
#pragma once

#include <string>

#include "../../common/types.hpp"
#include "isa.hpp"

namespace cpu {

inline void need_arguments(const Call& c, size_t least, size_t most, size_t outputs) {
  if (c.in.size() < least || c.in.size() > most || c.out.size() != outputs)
    throw Error{ENG_INVALID, "takes " + std::to_string(least) + " to " + std::to_string(most) + " inputs and " +
                                 std::to_string(outputs) + " outputs"};
  for (size_t k = 0; k < least; ++k)
    if (!c.has(k)) throw Error{ENG_INVALID, "input " + std::to_string(k) + " is missing"};
  for (size_t k = 0; k < outputs; ++k)
    if (!c.has_out(k)) throw Error{ENG_INVALID, "output " + std::to_string(k) + " is missing"};
}

inline Stored stored_of(const eng_desc& d) {
  return d.dtype == ENG_BF16 ? stored_bf16 : d.dtype == ENG_F16 ? stored_f16 : stored_f32;
}

// The first `n` inputs, except input `integers` (if given), which must be i32, have one type: f32, bf16 or f16.
inline void need_one_type(const Call& c, size_t n, size_t integers = SIZE_MAX) {
  const int32_t type = c.in[0].dtype;
  if (type != ENG_F32 && type != ENG_BF16 && type != ENG_F16)
    throw Error{ENG_UNSUPPORTED, "input 0 is neither f32 nor bf16 nor f16"};
  for (size_t k = 0; k < n && k < c.in.size(); ++k)
    if (c.has(k) && c.in[k].dtype != (k == integers ? int32_t{ENG_I32} : type))
      throw Error{ENG_UNSUPPORTED,
                  "input " + std::to_string(k) + " is not " + (k == integers ? "i32" : "of the type of input 0")};
}

inline void need_size(const std::string& what, int64_t have, int64_t want) {
  if (have != want) throw Error{ENG_INVALID, what + " is " + std::to_string(have) + ", not " + std::to_string(want)};
}

}  // namespace cpu
