// SPDX-License-Identifier: Apache-2.0
// The inner loops of the fast kernels, compiled once per instruction set. All work on elements first .. last - 1 of the
// tensors of a call; `first` is a multiple of 4,096.
#pragma once

#include <stdint.h>

namespace curvature {

// The values that determine the random numbers of a call.
struct Drawn {
  uint64_t seed;
  uint32_t stream, counter;
  int64_t first;   // element of the parameter with which the tensors begin
  uint64_t limit;  // an element is in the sample if its word is below; 2^32: all are
};

struct Moments {
  float *mean, *m2;
  float factor, weight;
};

struct Noise {
  const float *base, *scale;
  const uint8_t* classes;
  float* p;
  float sigma;
  uint8_t wanted;
};

struct Loops {
  const char* name;
  void (*perturb)(const Drawn&, const float* base, float* p, float a, int64_t first, int64_t last);
  void (*noise)(const Drawn&, const Noise&, int64_t first, int64_t last);
  void (*hutchinson)(const Drawn&, const float* plus, const float* grad, const Moments&, int64_t first, int64_t last);
  void (*fisher)(const float* grad, const Moments&, int64_t first, int64_t last);
  // Adds the counts of units first .. last - 1, at most 256, of all rows. `type`: ENG_F32, ENG_BF16 or ENG_F16.
  void (*count)(const void* x, int32_t type, int64_t rows, int64_t units, float threshold, int64_t* into, int64_t first,
                int64_t last);
};

inline constexpr int64_t count_block = 256;

extern const Loops loops_portable, loops_avx2;

}  // namespace curvature
