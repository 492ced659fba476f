// SPDX-License-Identifier: Apache-2.0
// f32 and the two 16-bit types, rounded to nearest even. NaN stays NaN; what is too large becomes infinite.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace common {

// A value of f32 or f64 is rounded once. They are read as f32, so arithmetic with them is in f32.
struct Bf16 {
  uint16_t bits;
  Bf16() = default;
  explicit Bf16(double x);
  operator float() const;
};
struct F16 {
  uint16_t bits;
  F16() = default;
  explicit F16(double x);
  operator float() const;
};

inline float to_f32(float x) {
  return x;
}
inline float to_f32(Bf16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}
inline float to_f32(F16 x) {
  const uint32_t sign = uint32_t{x.bits} >> 15 << 31, exponent = x.bits >> 10 & 0x1f, fraction = x.bits & 0x3ff;
  // Below the smallest normal number: so many times 2^-24, which is exact.
  if (exponent == 0) return std::copysign(static_cast<float>(fraction) * 0x1p-24f, std::bit_cast<float>(sign));
  return std::bit_cast<float>(sign | (exponent == 31 ? 0xff : exponent + 112) << 23 | fraction << 13);
}

// Into the type of `out`.
inline void from_f32(float x, float& out) {
  out = x;
}
inline void from_f32(float x, Bf16& out) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  out.bits = static_cast<uint16_t>(nan ? bits >> 16 | (bits >> 16 & 0x7f ? 0 : 1) : rounded);
}
inline void from_f32(float x, F16& out) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000;
  const float size = std::bit_cast<float>(bits & 0x7fffffff);
  uint32_t half = 0;
  if ((bits & 0x7fffffff) > 0x7f800000)  // NaN
    half = 0x7c00 | (bits >> 13 & 0x3ff) | (bits >> 13 & 0x3ff ? 0 : 1);
  else if (size >= 65520.0f)  // half of the way to what would be 65536
    half = 0x7c00;
  else if (size < 0x1p-14f)  // below the smallest normal number the grid is 2^-24; the sum with 0.5 rounds to it
    half = std::bit_cast<uint32_t>(size + 0.5f) - 0x3f000000u;
  else
    half = (((bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1)) >> 13) - (112u << 10);
  out.bits = static_cast<uint16_t>(sign | half);
}

// f64 to f32, inexact values to the neighbour with an odd last bit: rounding that again to 16 bits is rounding once.
inline float to_odd(double x) {
  const auto f = static_cast<float>(x);
  const double back = f;
  if (back == x || std::isnan(x)) return f;
  auto bits = std::bit_cast<uint32_t>(f);
  if (std::fabs(back) > std::fabs(x)) --bits;
  return std::bit_cast<float>(bits | 1);
}

inline Bf16::Bf16(double x) {
  from_f32(to_odd(x), *this);
}
inline Bf16::operator float() const {
  return to_f32(*this);
}
inline F16::F16(double x) {
  from_f32(to_odd(x), *this);
}
inline F16::operator float() const {
  return to_f32(*this);
}

}  // namespace common
