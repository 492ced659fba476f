// SPDX-License-Identifier: Apache-2.0
// The inner loop of the fast kernel, compiled once per instruction set.
#pragma once

#include <stdint.h>

#include "codes.hpp"

namespace adamw8bit {

// Everything is updated in place.
struct Update {
  float *p, *m_scales, *v_scales;
  const float* grad;
  uint8_t *m, *v;
  void* weight;                                          // the new p in 16 bits; NULL: not wanted
  bool bf16;                                             // the type of the weight, otherwise f16
  float clip, lr, c1, c2, rest1, beta2, rest2, eps, wd;  // rest: 1 - beta
};

struct Loops {
  const char* name;
  void (*update)(const Update&, int64_t first, int64_t last);  // blocks first .. last - 1
};

extern const Loops loops_portable, loops_avx2;

}  // namespace adamw8bit
