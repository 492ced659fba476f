// SPDX-License-Identifier: Apache-2.0
// The tables of codes.hpp, made while this compiles.
#pragma once

#include <bit>

#include "codes.hpp"

namespace adamw8bit {

// The value of a byte: `tree`: 7 bits that begin with the zeros; `more`: bits after them that also number the interval.
// 10^-zeros * (0.1 + 0.9 * (interval + 1/2) / 2^bits, rounded once in f64 and once in f32.
constexpr float value_of(uint32_t tree, uint32_t more, int32_t more_bits) {
  const int32_t zeros = std::countl_zero(tree << 25), bits = 6 - zeros + more_bits;
  const uint32_t interval = (tree << more_bits | more) - (1u << bits);
  double tens = 10;
  for (int32_t k = 0; k < zeros; ++k) tens *= 10;
  const double halves = static_cast<double>(2u << bits);
  return static_cast<float>((halves + 9.0 * (2.0 * interval + 1.0)) / (tens * halves));
}

// The byte of a level above 0.
constexpr int32_t m_byte(int32_t level) {
  return level;
}
constexpr int32_t v_byte(int32_t level) {
  return level == 255 ? 1 : level + 1;
}

// `least(a, b)`: the least magnitude that becomes b, of neighbours a and b.
template <class Least>
constexpr Codes make_codes(bool has_sign, Least least) {
  Codes c{};
  c.levels = has_sign ? m_levels : v_levels;
  for (uint32_t t = 2; t < 256 && !has_sign; ++t) c.value[t] = value_of(t >> 1, t & 1, 1);
  for (uint32_t t = 1; t < 128 && has_sign; ++t) c.value[t] = value_of(t, 0, 0), c.value[t | 128] = -c.value[t];
  c.value[has_sign ? 128 : 1] = 1.0f;
  float below = 0.0f;
  for (int32_t k = 1; k < c.levels; ++k) {
    const float value = c.value[has_sign ? m_byte(k) : v_byte(k)];
    c.least[k] = least(below, value);
    below = value;
  }
  c.first = static_cast<int32_t>(std::bit_cast<uint32_t>(c.least[1]) >> bucket_shift) - 1;
  c.buckets = static_cast<int32_t>(std::bit_cast<uint32_t>(1.0f) >> bucket_shift) - c.first + 1;
  int32_t level = 0;
  for (int32_t b = 0; b < c.buckets; ++b) {
    const uint32_t begin = static_cast<uint32_t>(c.first + b) << bucket_shift;
    uint32_t from = 1u << bucket_shift;
    const int32_t before = level;
    if (level + 1 < c.levels) {
      const uint32_t next = std::bit_cast<uint32_t>(c.least[level + 1]);
      if (next < begin) throw "two levels begin in one bucket";  // it does not compile then
      if (next - begin < from) from = next - begin, ++level;
    }
    c.bucket[b] = static_cast<uint32_t>(before) << from_bits | from;
  }
  if (level + 1 != c.levels || c.buckets > most_buckets) throw "a level has no bucket";
  return c;
}

}  // namespace adamw8bit
