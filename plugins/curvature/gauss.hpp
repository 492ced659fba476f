// SPDX-License-Identifier: Apache-2.0
// Two standard normals of two random words (Box and Muller 1958), by operations that every processor rounds alike: +,
// -, *, / and sqrt in f64. No function of the C library that may round otherwise is called, so the bits are equal
// everywhere.
//   ln x, x = 2^k m, m in [sqrt(1/2), sqrt(2)):  s = (m - 1) / (m + 1);  k ln 2 + 2 (s + s^3/3 + ... + s^19/19)
//   the angle is w / 2^32 of a turn: its nearest quarter, and the rest, at most an eighth, by the series of sine to
//   r^13 and of cosine to r^14
// Against exact values the relative error is below 1e-9; the results are rounded to f32.
//
// Everything is in an anonymous namespace: a copy for AVX2 must never be the one that the linker keeps for all.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

namespace curvature {
namespace {

#ifndef CURVATURE_INLINE  // kernels for GPUs give their own
#define CURVATURE_INLINE __attribute__((always_inline)) inline
#endif

CURVATURE_INLINE double from_bits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
CURVATURE_INLINE uint64_t bits_of_double(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

// A word as a number, exactly.
CURVATURE_INLINE double number_of(uint32_t word) {
  return from_bits(0x4330000000000000 | word) - 0x1p52;
}

// The natural logarithm of a normal number above 0.
CURVATURE_INLINE double log_of(double x) {
  const uint64_t bits = bits_of_double(x);
  // The exponent is one more where the fraction is above that of sqrt(2).
  const uint64_t raised = bits + (uint64_t{0x3ff0000000000000} - uint64_t{0x3fe6a09e667f3bcd});
  const double k = from_bits(0x4330000000000000 | raised >> 52) - (0x1p52 + 1023.0);
  const double m = from_bits((raised & 0x000fffffffffffff) + uint64_t{0x3fe6a09e667f3bcd});
  const double s = (m - 1.0) / (m + 1.0), q = s * s;
  double sum = 1.0 / 19.0;
  sum = sum * q + 1.0 / 17.0;
  sum = sum * q + 1.0 / 15.0;
  sum = sum * q + 1.0 / 13.0;
  sum = sum * q + 1.0 / 11.0;
  sum = sum * q + 1.0 / 9.0;
  sum = sum * q + 1.0 / 7.0;
  sum = sum * q + 1.0 / 5.0;
  sum = sum * q + 1.0 / 3.0;
  sum = sum * q + 1.0;
  return k * 0.69314718055994530942 + 2.0 * s * sum;
}

struct Normals {
  double first, second;
};

CURVATURE_INLINE Normals normals_of(uint32_t u, uint32_t w) {
  const double radius = sqrt(-2.0 * log_of((number_of(u) + 0.5) * 0x1p-32));
  // The rest is w minus the nearest multiple of 2^30, in [-2^29, 2^29); an eighth of a turn is pi / 4.
  const uint32_t quarter = (w + 0x20000000u) >> 30;
  const double rest = number_of((w + 0x20000000u) & 0x3fffffffu) - 0x1p29;
  const double r = (rest + 0.5) * (6.28318530717958647692 * 0x1p-32), q = r * r;
  double sine = 1.0 / 6227020800.0;
  sine = sine * q - 1.0 / 39916800.0;
  sine = sine * q + 1.0 / 362880.0;
  sine = sine * q - 1.0 / 5040.0;
  sine = sine * q + 1.0 / 120.0;
  sine = sine * q - 1.0 / 6.0;
  sine = sine * q + 1.0;
  sine = sine * r;
  double cosine = -1.0 / 87178291200.0;
  cosine = cosine * q + 1.0 / 479001600.0;
  cosine = cosine * q - 1.0 / 3628800.0;
  cosine = cosine * q + 1.0 / 40320.0;
  cosine = cosine * q - 1.0 / 720.0;
  cosine = cosine * q + 1.0 / 24.0;
  cosine = cosine * q - 1.0 / 2.0;
  cosine = cosine * q + 1.0;
  const bool odd = (quarter & 1) != 0;
  const double c = odd ? sine : cosine, s = odd ? cosine : sine;
  const uint64_t c_sign = uint64_t{(quarter + 1) >> 1 & 1} << 63, s_sign = uint64_t{quarter >> 1 & 1} << 63;
  return {radius * from_bits(bits_of_double(c) ^ c_sign), radius * from_bits(bits_of_double(s) ^ s_sign)};
}

}  // namespace
}  // namespace curvature
