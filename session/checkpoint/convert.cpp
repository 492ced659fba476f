// SPDX-License-Identifier: Apache-2.0
#include "session/checkpoint/convert.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/error.hpp"
#include "session/dtypes.hpp"

namespace eng {
namespace {

float f32_of_bf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

uint16_t bf16_of_f32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | (bits >> 16 & 0x7f ? 0 : 1));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float f32_of_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits} >> 15 << 31, exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  if (exponent == 0) return std::copysign(std::ldexp(static_cast<float>(fraction), -24), std::bit_cast<float>(sign));
  return std::bit_cast<float>(sign | (exponent == 31 ? 0xff : exponent + 112) << 23 | fraction << 13);
}

uint16_t f16_of_f32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const float size = std::fabs(value);
  if (std::isnan(value))
    return static_cast<uint16_t>(sign | 0x7c00 | (bits >> 13 & 0x3ff) | (bits >> 13 & 0x3ff ? 0 : 1));
  if (size >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00);  // halfway between 65504, the largest, and 65536
  // Subnormal results are multiples of 2^-24; adding 0.5 rounds to them.
  if (size < 0x1p-14f) return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(size + 0.5f) - 0x3f000000u));
  const uint32_t rounded = (bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

template <class In, class Out, class Use>
void each(const void* in, void* out, uint64_t count, Use use) {
  for (uint64_t i = 0; i < count; ++i) static_cast<Out*>(out)[i] = use(static_cast<const In*>(in)[i]);
}

}  // namespace

void convert(int32_t from, const void* in, int32_t to, void* out, uint64_t count) {
  if (from == to)
    std::memcpy(out, in, count * dtype_size(from));
  else if (from == ENG_BF16 && to == ENG_F32)
    each<uint16_t, float>(in, out, count, f32_of_bf16);
  else if (from == ENG_F16 && to == ENG_F32)
    each<uint16_t, float>(in, out, count, f32_of_f16);
  else if (from == ENG_F32 && to == ENG_BF16)
    each<float, uint16_t>(in, out, count, bf16_of_f32);
  else if (from == ENG_F32 && to == ENG_F16)
    each<float, uint16_t>(in, out, count, f16_of_f32);
  else if (from == ENG_BF16 && to == ENG_F16)
    each<uint16_t, uint16_t>(in, out, count, [](uint16_t x) { return f16_of_f32(f32_of_bf16(x)); });
  else if (from == ENG_F16 && to == ENG_BF16)
    each<uint16_t, uint16_t>(in, out, count, [](uint16_t x) { return bf16_of_f32(f32_of_f16(x)); });
  else
    throw Error(Exit::bug, fmt::format("no conversion from {} to {}", dtype_safetensors(from), dtype_safetensors(to)));
}

}  // namespace eng
