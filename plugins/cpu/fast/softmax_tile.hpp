// SPDX-License-Identifier: Apache-2.0
// One row of logits: its loss, and its gradient in place; a cap of the logits.
#pragma once

#include "../../common/simd/tile.hpp"
#include "isa.hpp"

namespace cpu::CPU_ISA {
namespace {

// Returns -log softmax(x)[label], and log sum exp(x) in `lse`. If `gradient` is given, x becomes that.
inline double row_loss(float* x, int64_t n, int64_t label, const RowGradient* gradient, double* lse) {
  // 1. The largest logit. Four registers of maxima hide the latency.
  const V lowest = splat(-__builtin_inff());
  V m[4] = {lowest, lowest, lowest, lowest};
  int64_t i = 0;
  for (; i + 4 * W <= n; i += 4 * W) {
    CPU_UNROLL
    for (int j = 0; j < 4; ++j) m[j] = max(m[j], load_all(x + i + j * W));
  }
  for (; i < n; i += W)
    m[0] = max(m[0], i + W <= n ? load_all(x + i) : load_some_or(x + i, static_cast<int>(n - i), lowest));
  const float high = largest(max(max(m[0], m[1]), max(m[2], m[3])));
  const double target = static_cast<double>(x[label]) - static_cast<double>(high);

  // 2. The sum of e^(x - largest); with `gradient`, x becomes these terms. Four partial sums in f32, which are added to
  // the sum in f64 after every 4,096 elements, so that small terms are not lost in long rows.
  const V by = splat(high), to2 = splat(log2_e);
  V s[4] = {splat(0.0f), splat(0.0f), splat(0.0f), splat(0.0f)};
  double sum = 0.0;
  const auto fold = [&] {
    sum += static_cast<double>(cpu::sum((s[0] + s[1]) + (s[2] + s[3])));
    CPU_UNROLL
    for (int j = 0; j < 4; ++j) s[j] = splat(0.0f);
  };
  i = 0;
  for (; i + 4 * W <= n;) {
    const int64_t piece = n - i < 4096 ? n : i + 4096;
    for (; i + 4 * W <= piece; i += 4 * W) {
      CPU_UNROLL
      for (int j = 0; j < 4; ++j) {
        const V p = exp2((load_all(x + i + j * W) - by) * to2);
        s[j] = s[j] + p;
        if (gradient) store_all(x + i + j * W, p);
      }
    }
    fold();
  }
  for (; i < n; i += W) {
    const int count = static_cast<int>(n - i < W ? n - i : W);
    const V p = exp2((load_some_or(x + i, count, lowest) - by) * to2);
    s[0] = s[0] + p;
    if (gradient) store_some(x + i, p, count);
  }
  fold();
  const double log_sum = __builtin_log(sum);
  *lse = static_cast<double>(high) + log_sum;
  // 3. The gradient: (scale + 2 z lse) * softmax - scale * onehot. The loss is ln(sum) - (x[label] - largest).
  if (gradient) {
    double of_softmax = static_cast<double>(gradient->scale);
    if (gradient->z != 0.0f) of_softmax += 2.0 * static_cast<double>(gradient->z) * *lse;
    const auto by_sum = static_cast<float>(of_softmax / sum);
    const V factor = splat(by_sum);
    for (i = 0; i + W <= n; i += W) store_all(x + i, load_all(x + i) * factor);
    for (; i < n; ++i) x[i] *= by_sum;
    x[label] -= gradient->scale;
  }
  return log_sum - target;
}

inline void cap_row(const float* x, int64_t n, float cap, float* y) {
  const V by = splat(cap), inverse = splat(1.0f / cap);
  int64_t i = 0;
  for (; i + W <= n; i += W) store_all(y + i, by * tanh(load_all(x + i) * inverse));
  if (i < n) store_some(y + i, by * tanh(load_some(x + i, n - i) * inverse), n - i);
}

inline void cap_row_grad(const float* y, int64_t n, float cap, float* dx) {
  const V inverse = splat(1.0f / cap), one = splat(1.0f);
  int64_t i = 0;
  for (; i + W <= n; i += W) {
    const V t = load_all(y + i) * inverse;
    store_all(dx + i, load_all(dx + i) * (one - t * t));
  }
  if (i < n) {
    const V t = load_some(y + i, n - i) * inverse;
    store_some(dx + i, load_some(dx + i, n - i) * (one - t * t), n - i);
  }
}

}  // namespace
}  // namespace cpu::CPU_ISA
