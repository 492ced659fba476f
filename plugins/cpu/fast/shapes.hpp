// SPDX-License-Identifier: Apache-2.0
// Checks that kernels share.
#pragma once

#include "../../common/call.hpp"

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

// Every argument must be f32, except input `integers` (if given), which must be i32.
inline void need_f32(const Call& c, size_t integers = SIZE_MAX) {
  for (size_t k = 0; k < c.in.size(); ++k)
    if (c.has(k) && c.in[k].dtype != (k == integers ? ENG_I32 : ENG_F32))
      throw Error{ENG_UNSUPPORTED, "input " + std::to_string(k) + " is not " + (k == integers ? "i32" : "f32")};
  for (size_t k = 0; k < c.out.size(); ++k)
    if (c.has_out(k) && c.out[k].dtype != ENG_F32)
      throw Error{ENG_UNSUPPORTED, "output " + std::to_string(k) + " is not f32"};
}

inline void need_size(const std::string& what, int64_t have, int64_t want) {
  if (have != want) throw Error{ENG_INVALID, what + " is " + std::to_string(have) + ", not " + std::to_string(want)};
}

}  // namespace cpu
