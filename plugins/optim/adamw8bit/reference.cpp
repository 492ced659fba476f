// SPDX-License-Identifier: Apache-2.0
// The update for the device `reference`: plain loops, and a search for each level.
#include <algorithm>
#include <cmath>
#include <limits>

#include "call.hpp"
#include "codes.hpp"

namespace adamw8bit {
namespace {

int32_t level_of(const Codes& c, float x) {
  return static_cast<int32_t>(std::upper_bound(c.least + 1, c.least + c.levels, x) - c.least) - 1;
}

float scale_of(const float* values) {
  float most = 0;
  for (int64_t i = 0; i < block; ++i) {
    if (!std::isfinite(values[i])) return std::numeric_limits<float>::quiet_NaN();
    most = std::max(most, std::fabs(values[i]));
  }
  return most;
}

uint8_t m_code(float m, float scale) {
  if (!(scale > 0)) return 0;
  const int32_t level = level_of(m_codes, std::fabs(m) / scale);
  if (!std::signbit(m)) return static_cast<uint8_t>(level);
  return static_cast<uint8_t>(level == 0 ? 0 : 128 | std::min(level, 127));
}

uint8_t v_code(float v, float scale) {
  if (!(scale > 0) || v == 0) return 0;
  const int32_t level = std::max(level_of(v_codes, std::fabs(v) / scale), 1);
  return static_cast<uint8_t>(level == 255 ? 1 : level + 1);
}

struct PlainUpdate {
  static constexpr const char* op = ADAMW8BIT_OP_UPDATE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Settings set;

  static void check(const Call& c) { check_call(c); }
  explicit PlainUpdate(const Call& c) : set(c) {}

  void update(const Args& a, int64_t b) const {
    const float *s = a.in<float>(6), *grad = a.in<float>(1) + b * block;
    const float clip = s[ENG_S_CLIP], lr = s[ENG_S_LR], c1 = s[ENG_S_LR + 1], c2 = s[ENG_S_LR + 2];
    float *const p = a.out<float>(0) + b * block, *const m_scale = a.out<float>(2) + b;
    float* const v_scale = a.out<float>(4) + b;
    uint8_t *const m_bytes = a.out<uint8_t>(1) + b * block, *const v_bytes = a.out<uint8_t>(3) + b * block;
    float m[block], v[block];
    for (int64_t i = 0; i < block; ++i) {
      const float g = grad[i] * clip;
      m[i] = m_codes.value[m_bytes[i]] * *m_scale;
      v[i] = v_codes.value[v_bytes[i]] * *v_scale;
      m[i] = std::fma(set.rest1, g - m[i], m[i]);
      v[i] = std::fma(set.beta2, v[i], set.rest2 * (g * g));
      if (set.wd != 0) p[i] = p[i] - lr * (set.wd * p[i]);
      p[i] = p[i] - (lr * m[i] / c1) / (std::sqrt(v[i]) / c2 + set.eps);
    }
    *m_scale = scale_of(m);
    *v_scale = scale_of(v);
    for (int64_t i = 0; i < block; ++i) m_bytes[i] = m_code(m[i], *m_scale), v_bytes[i] = v_code(v[i], *v_scale);
  }
  void run(const Args& a) const {
    if (a.in<float>(6)[ENG_S_OK] != 0)  // all is in place
      for (int64_t b = 0; b < set.blocks; ++b) update(a, b);
    common::cast_weight(set.weight, a.out<float>(0), a.out<void>(5), 0, set.blocks * block);
  }
};

}  // namespace

const eng_kernels reference_kernels = common::kernel_table<PlainUpdate>;

}  // namespace adamw8bit
