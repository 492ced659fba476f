// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding of what an update keeps in bf16 (engine/ops.h): its plain loops, and what a call must bring.
#pragma once

#include "call.hpp"
#include "half.hpp"
#include "philox.hpp"

namespace common {

struct Rounding {
  uint64_t seed;
  uint32_t stream;
  int64_t first;  // the first element in its parameter
  explicit Rounding(const Call& c)
      : seed(static_cast<uint64_t>(c.integer("seed"))),
        stream(static_cast<uint32_t>(c.integer("stream"))),
        first(c.integer("first")) {}

  // The random number added to value k of element i of the call.
  uint32_t number(uint32_t update, int64_t i, size_t k) const {
    const auto e = static_cast<uint64_t>(first + i);
    const PhiloxWords w = philox4x32_10(e / 32 * 16 + e % 16, update | uint64_t{stream | 0x80000000u} << 32, seed);
    return e / 16 % 2 ? w[k] >> 16 : w[k] & 0xffff;
  }
};

inline void from_f32_by(float x, uint32_t number, Bf16& out) {
  const auto bits = std::bit_cast<uint32_t>(x);
  out.bits = static_cast<uint16_t>(std::isnan(x) ? bits >> 16 | 0x40 : (bits + number) >> 16);
}

inline bool is_rounded(const Call& c) {
  return !c.in.empty() && c.in[0].dtype == ENG_BF16;
}
// A call whose p has bf16: its states do too, its gradient has f32 or bf16, and the counters are its last input.
// `states`: how many; inputs 2 .. are they, outputs 1 .. the new ones.
inline void check_rounded(const Call& c, size_t states, size_t counters) {
  const auto need = [](bool holds, const char* text) {
    if (!holds) throw Error{ENG_UNSUPPORTED, text};
  };
  const int64_t n = elements(c.in[0]);
  need(c.in.size() == counters + 1 && c.in[counters].dtype == ENG_I64 && elements(c.in[counters]) == ENG_C_COUNT,
       "p in bf16 needs the counters, i64 (8), as last input");
  need(c.has(1) && (c.in[1].dtype == ENG_F32 || c.in[1].dtype == ENG_BF16) && elements(c.in[1]) == n,
       "the gradient of a p in bf16 must be f32 or bf16, and have its shape");
  need(c.out.size() == states + 1, "p in bf16 is the weight: there is no other output for it");
  const auto bf16 = [&](const eng_desc& d) { return d.dtype == ENG_BF16 && elements(d) == n; };
  need(bf16(c.out[0]), "p in bf16 must stay so");
  for (size_t k = 0; k < states; ++k)
    need(bf16(c.in[2 + k]) && bf16(c.out[1 + k]),
         "p and the states that are updated with it must all be bf16, or all f32");
  const Rounding r(c);
  need(r.first >= 0 && r.first % 32 == 0 && c.integer("stream") >= 0 && c.integer("stream") < int64_t{1} << 31,
       "first must be a multiple of 32, stream at least 0 and below 2^31");
}

}  // namespace common
