// SPDX-License-Identifier: Apache-2.0
// The learning rate of every update: one formula, a pure function of the update's number.
#pragma once

#include <cstdint>
#include <string>

namespace eng {

// lr(k) of update k = 1, 2, ..., with P = learning_rate, M = min_learning_rate, W = warmup_steps, S = steps:
//   k < W   linear: P k / W        log: P ln(k + 1) / ln(W + 1)
//   k = W   P (warm-up wins where W >= S)
//   k > W   constant: P
//           linear:   P + (M - P) t                       t = min(1, (k - W) / (S - W))
//           cosine:   M + (P - M) (1 + cos(pi t)) / 2
//   k >= S  linear and cosine: M, exactly
// The first update never runs at 0, the peak is reached at update W and the minimum at update S.
struct OwnSchedule {
  enum class Kind { constant, linear, cosine };
  enum class Warmup { linear, log };
  Kind kind = Kind::cosine;
  Warmup warmup = Warmup::linear;
  int64_t warmup_steps = 0;
  double learning_rate = 0;
  double min_learning_rate = 0;
  int64_t steps = 0;
};

// DeepSpeed's schedulers, update by update. There the scheduler steps after the optimizer, so update 1 runs at
// the value its constructor installs and update k >= 2 at f(k - 2): the first two updates see the warm-up's
// start. With i = k - 2, N = max(2, warmup_num_steps), T = total_num_steps,
// w(i) = ln(i + 1) / ln(N) for "log" and i / N for "linear":
//   WarmupLR       k = 1: min     i < N: min + (max - min) w(i)     else max
//   WarmupDecayLR  k = 1: min     i < N: the same                   else min + (max - min) max(0, (T - i) / max(1, T -
//   N)) WarmupCosineLR k = 1: 0       i < N: max (r + (1 - r) w(i))     r = warmup_min_ratio, c = cos_min_ratio
//                                 else   max max(0, c + (1 - c) (1 + cos(pi min(1, (i - N + 1) / max(1, T - N)))) / 2)
// `max_learning_rate` is warmup_max_lr; for WarmupCosineLR it is the optimizer's learning rate.
struct DeepSpeedSchedule {
  enum class Kind { warmup, warmup_decay, warmup_cosine };
  enum class Warmup { linear, log };
  Kind kind = Kind::warmup;
  Warmup warmup = Warmup::log;
  int64_t warmup_num_steps = 1000;
  int64_t total_num_steps = 0;
  double min_learning_rate = 0;
  double max_learning_rate = 0.001;
  double warmup_min_ratio = 0;
  double cos_min_ratio = 1e-4;
};

class Schedule {
 public:
  // Throw Error(Exit::usage) naming the key for numbers that make no schedule.
  explicit Schedule(const OwnSchedule& own);
  explicit Schedule(const DeepSpeedSchedule& deepspeed);
  // The learning rate of update k = 1, 2, ...; a skipped step is no update.
  double at(int64_t update) const;

 private:
  bool compatible_ = false;
  OwnSchedule own_;
  DeepSpeedSchedule deepspeed_;
};

}  // namespace eng
