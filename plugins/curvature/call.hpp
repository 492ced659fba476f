// SPDX-License-Identifier: Apache-2.0
// The required inputs of a call of the plugin's ops, and its attributes.
#pragma once

#include <cmath>
#include <initializer_list>
#include <string>

#include "../common/kernel.hpp"
#include "draw.hpp"
#include "engine/ops.h"
#include "ops.hpp"

namespace curvature {

using common::Args;
using common::Call;
using common::elements;
using common::Error;

inline void need(bool holds, const std::string& rule) {
  if (!holds) throw Error{ENG_INVALID, rule};
}

// Inputs of elements and outputs have the type of the first input, f32 or, if `wide`, f64; and its size.
inline void need_elements(const Call& c, std::initializer_list<size_t> in, bool wide) {
  const eng_desc& first = c.in[0];
  if (first.dtype != ENG_F32 && !(wide && first.dtype == ENG_F64))
    throw Error{ENG_UNSUPPORTED, std::string("elements must be ") + (wide ? "f32 or f64" : "f32")};
  for (size_t k : in)
    need(c.in[k].dtype == first.dtype && elements(c.in[k]) == elements(first), "tensors of elements differ");
  for (const eng_desc& d : c.out)
    need(d.dtype == first.dtype && elements(d) == elements(first), "an output differs from the first input");
}
// Scalars at input k, and the counters after them if `counted`.
inline void need_numbers(const Call& c, size_t k, bool counted) {
  const bool right = c.has(k) && elements(c.in[k]) == ENG_S_COUNT &&
                     (c.in[k].dtype == ENG_F32 || (c.in[0].dtype == ENG_F64 && c.in[k].dtype == ENG_F64));
  need(right, "scalars must be f32 (32)");
  need(c.in.size() == k + 1 + counted, "takes " + std::to_string(k + 1 + counted) + " inputs");
  if (counted) need(c.in[k + 1].dtype == ENG_I64 && elements(c.in[k + 1]) == ENG_C_COUNT, "counters must be i64 (8)");
}

// The attributes of what is drawn.
struct Draw {
  uint64_t seed;
  uint32_t stream;
  int64_t first;
  double rate;
  explicit Draw(const Call& c)
      : seed(static_cast<uint64_t>(c.integer("seed"))),
        stream(static_cast<uint32_t>(c.integer("stream"))),
        first(c.integer("first")),
        rate(c.real_or("rate", 1.0)) {}
  static void check(const Call& c) {
    const int64_t stream = c.integer("stream"), first = c.integer("first");
    need(stream >= 0 && stream < int64_t{1} << 28, "stream must be at least 0 and below 2^28");
    need(first >= 0 && first % 4096 == 0, "first must be a multiple of 4,096");
    const double rate = c.real_or("rate", 1.0);
    need(rate >= 0 && std::isfinite(rate), "rate must be a finite number, at least 0");
    (void)c.integer("seed");
  }
  uint64_t limit(double share) const { return sample_limit(rate, share); }
};

inline void check_perturb(const Call& c, bool wide) {
  need(c.in.size() == 3 && c.out.size() == 1, "takes base, scalars and counters, and gives p");
  need_elements(c, {0}, wide);
  need_numbers(c, 1, true);
  Draw::check(c);
}
inline void check_noise(const Call& c, bool wide) {
  need(c.in.size() == 5 && c.out.size() == 1, "takes base, classes, scale, scalars and counters, and gives p");
  need_elements(c, {0}, wide);
  need(c.in[1].dtype == ENG_U8 && elements(c.in[1]) == elements(c.in[0]), "classes must be u8, one for each element");
  need(c.in[2].dtype == c.in[0].dtype && elements(c.in[2]) == (elements(c.in[0]) + noise_block - 1) / noise_block,
       "scale must have the type of base, and one value for 4,096 elements");
  need_numbers(c, 3, true);
  Draw::check(c);
}
inline void check_hutchinson(const Call& c, bool wide) {
  need(c.in.size() == 6 && c.out.size() == 2, "takes plus, grad, mean, m2, scalars and counters; gives mean and m2");
  need_elements(c, {0, 1, 2, 3}, wide);
  need_numbers(c, 4, true);
  Draw::check(c);
}
inline void check_fisher(const Call& c, bool wide) {
  need(c.in.size() == 4 && c.out.size() == 2, "takes grad, mean, m2 and scalars, and gives mean and m2");
  need_elements(c, {0, 1, 2}, wide);
  need_numbers(c, 3, false);
}
inline void check_copy(const Call& c) {
  need(c.in.size() == 1 && c.out.size() == 1 && c.in[0].dtype == c.out[0].dtype &&
           elements(c.in[0]) == elements(c.out[0]),
       "takes x, and gives a tensor of the same type and size");
}
inline void check_count(const Call& c, bool wide) {
  need(c.in.size() == 2 && c.out.size() == 1, "takes x and the counts, and gives the counts");
  const int32_t type = c.in[0].dtype;
  if (type != ENG_F32 && type != ENG_BF16 && type != ENG_F16 && !(wide && type == ENG_F64))
    throw Error{ENG_UNSUPPORTED, "x must be f32, bf16 or f16"};
  for (const eng_desc* d : {&c.in[1], &c.out[0]})
    need(d->dtype == ENG_I64 && d->ndim == 2 && d->dims[0] == 2 && d->dims[1] == common::columns(c.in[0]),
         "the counts must be i64 (2, units of x)");
  need(c.real("threshold") >= 0, "threshold must be at least 0");
}

}  // namespace curvature
