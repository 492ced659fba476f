// SPDX-License-Identifier: Apache-2.0
// The loops, in the order of operations of ops.hpp. The compiler makes vectors of them: nothing here depends on how
// wide these are.
#pragma once

#include "../common/simd/random.hpp"
#include "engine/base.h"
#include "gauss.hpp"
#include "loops.hpp"

namespace curvature {
namespace {

constexpr int64_t group = 1024;  // elements whose random numbers are drawn together

CURVATURE_INLINE uint32_t word_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}
CURVATURE_INLINE float float_of_word(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

// Eight blocks of Philox from `block` on, a multiple of 8: word k of block + l goes to out[8 * k + l].
CURVATURE_INLINE void draw_eight(const Drawn& d, uint32_t purpose, uint32_t counter, uint64_t block, uint32_t* out) {
  for (int64_t lane = 0; lane < 8; lane += cpu::width) {
    cpu::words c[4] = {cpu::all(static_cast<uint32_t>(block) + static_cast<uint32_t>(lane)) + cpu::count_up(),
                       cpu::all(static_cast<uint32_t>(block >> 32)), cpu::all(counter),
                       cpu::all(d.stream + (purpose << 28))};
    cpu::philox(c[0], c[1], c[2], c[3], d.seed);
    for (int k = 0; k < 4; ++k) cpu::store_words(out + 8 * k + lane, c[k]);
  }
}

// The factors of 1,024 elements from `element` of the parameter on: the bit of the sign, and for those that are not in
// the sample no bit of `keep`.
struct Signs {
  alignas(64) uint32_t sign[group], keep[group];
};
CURVATURE_INLINE void draw_signs(const Drawn& d, uint64_t element, Signs& out) {
  uint32_t bits[32];
  draw_eight(d, 1, d.counter, element / 128, bits);
  for (int64_t j = 0; j < 32; ++j)
    for (int64_t t = 0; t < 32; ++t) out.sign[32 * j + t] = bits[j] >> t << 31;
  if (d.limit >> 32) return;
  const auto limit = static_cast<uint32_t>(d.limit);
  for (int64_t i = 0; i < group; i += 32) {
    uint32_t words[32];
    draw_eight(d, 2, 0, (element + static_cast<uint64_t>(i)) / 4, words);
    for (int64_t t = 0; t < 32; ++t) out.keep[i + t] = words[t] < limit ? 0xffffffffu : 0u;
  }
}

// body(i, n, signs): for the n elements from i on.
template <class Body>
CURVATURE_INLINE void each_group(const Drawn& d, int64_t first, int64_t last, Body body) {
  Signs signs;
  for (int64_t i = first; i < last; i += group) {
    draw_signs(d, static_cast<uint64_t>(d.first + i), signs);
    body(i, last - i < group ? last - i : group, signs);
  }
}

void perturb(const Drawn& d, const float* base, float* p, float a, int64_t first, int64_t last) {
  const uint32_t bits = word_of(a);
  const bool all = d.limit >> 32 != 0;
  each_group(d, first, last, [&](int64_t at, int64_t n, const Signs& s) {
    const float* const from = base + at;
    float* const to = p + at;
    if (all)
      for (int64_t i = 0; i < n; ++i) to[i] = from[i] + float_of_word(bits ^ s.sign[i]);
    else
      for (int64_t i = 0; i < n; ++i) {
        const float moved = from[i] + float_of_word(bits ^ s.sign[i]);
        to[i] = float_of_word((word_of(moved) & s.keep[i]) | (word_of(from[i]) & ~s.keep[i]));
      }
  });
}

void hutchinson(const Drawn& d, const float* plus, const float* grad, const Moments& m, int64_t first, int64_t last) {
  const bool all = d.limit >> 32 != 0;
  each_group(d, first, last, [&](int64_t at, int64_t n, const Signs& s) {
    const float *const above = plus + at, *const below = grad + at;
    float *const mean = m.mean + at, *const m2 = m.m2 + at;
    for (int64_t i = 0; i < n; ++i) {
      const float x = float_of_word(word_of((above[i] - below[i]) * m.factor) ^ s.sign[i]);
      const float off = x - mean[i], next = mean[i] + off * m.weight, square = m2[i] + off * (x - next);
      const uint32_t keep = all ? 0xffffffffu : s.keep[i];
      mean[i] = float_of_word((word_of(next) & keep) | (word_of(mean[i]) & ~keep));
      m2[i] = float_of_word((word_of(square) & keep) | (word_of(m2[i]) & ~keep));
    }
  });
}

void fisher(const float* grad, const Moments& m, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; ++i) {
    const float x = (grad[i] * grad[i]) * m.factor;
    const float off = x - m.mean[i], next = m.mean[i] + off * m.weight;
    m.mean[i] = next;
    m.m2[i] = m.m2[i] + off * (x - next);
  }
}

// Normals of 32 elements, rounded to f32.
CURVATURE_INLINE void draw_normals(const Drawn& d, uint64_t element, float* z) {
  uint32_t words[32];
  draw_eight(d, 3, d.counter, element / 4, words);
  for (int64_t half = 0; half < 32; half += 16)
    for (int64_t l = 0; l < 8; ++l) {
      const Normals two = normals_of(words[half + l], words[half + 8 + l]);
      z[half + l] = static_cast<float>(two.first), z[half + 8 + l] = static_cast<float>(two.second);
    }
}

void noise(const Drawn& d, const Noise& t, int64_t first, int64_t last) {
  for (int64_t at = first; at < last; at += 32) {
    const int64_t n = last - at < 32 ? last - at : 32;
    const float factor = t.sigma * t.scale[at / 4096];
    bool any = false;
    for (int64_t i = at; i < at + n; ++i) any |= t.classes[i] == t.wanted;
    if (!any || factor == 0.0f) {
      for (int64_t i = at; i < at + n; ++i) t.p[i] = t.base[i];
      continue;
    }
    float z[32];
    draw_normals(d, static_cast<uint64_t>(d.first + at), z);
    for (int64_t i = 0; i < n; ++i) {
      const float moved = t.base[at + i] + factor * z[i];
      t.p[at + i] = t.classes[at + i] == t.wanted ? moved : t.base[at + i];
    }
  }
}

template <class T>
CURVATURE_INLINE void count_units(const T* x, int64_t rows, int64_t units, float threshold, int64_t* into,
                                  int64_t first, int64_t last) {
  constexpr int64_t slice = int64_t{1} << 30;  // rows that a count of 32 bits holds
  for (int64_t from = 0; from < rows; from += slice) {
    uint32_t zeros[count_block + 16] = {}, small[count_block + 16] = {};
    const int64_t end = rows - from < slice ? rows : from + slice;
    for (int64_t r = from; r < end; ++r) {
      const T* const row = x + r * units;
      for (int64_t u = first; u < last; u += cpu::width) {
        float wide[cpu::width];
        const int64_t n = last - u < cpu::width ? last - u : cpu::width;
        cpu::store_all(wide, n == cpu::width ? cpu::load_all(row + u) : cpu::load_some(row + u, n));
        for (int64_t l = 0; l < cpu::width; ++l) {
          zeros[u - first + l] += wide[l] == 0.0f ? 1u : 0u;
          small[u - first + l] += __builtin_fabsf(wide[l]) <= threshold ? 1u : 0u;
        }
      }
    }
    for (int64_t u = first; u < last; ++u) into[u] += zeros[u - first], into[units + u] += small[u - first];
  }
}

void count(const void* x, int32_t type, int64_t rows, int64_t units, float threshold, int64_t* into, int64_t first,
           int64_t last) {
  if (type == ENG_BF16)
    count_units(static_cast<const cpu::bf16*>(x), rows, units, threshold, into, first, last);
  else if (type == ENG_F16)
    count_units(static_cast<const cpu::f16*>(x), rows, units, threshold, into, first, last);
  else
    count_units(static_cast<const float*>(x), rows, units, threshold, into, first, last);
}

}  // namespace
}  // namespace curvature
