// SPDX-License-Identifier: Apache-2.0
// The learning rate of every update: one formula, a pure function of the update's number.
#pragma once

#include "core/registry/registry.hpp"
#include "session/config/config.hpp"

namespace eng {

// A schedule of a plugin (engine/schedule.h), made for a run.
class PluginSchedule;

// lr(k) of update k = 1, 2, ..., with P = peak, M = least, W = warmup, S = steps:
//   k < W   linear: P k / W        log: P ln(k + 1) / ln(W + 1)
//   k = W   P (warm-up wins where W >= S)
//   k > W   constant: P
//           linear:   P + (M - P) t                       t = min(1, (k - W) / (S - W))
//           cosine:   M + (P - M) (1 + cos(pi t)) / 2
//   k >= S  linear and cosine: M, exactly
// The first update never runs at 0, the peak is reached at update W and the minimum at update S.
//
// The kinds named Warmup... are DeepSpeed's, update by update. There the scheduler steps after the optimizer, so
// update 1 runs at the value its constructor installs and update k >= 2 at f(k - 2): the first two updates see
// the warm-up's start. With i = k - 2, N = max(2, W), w(i) = ln(i + 1) / ln(N) for "log" and i / N for "linear",
// r = warmup_ratio, c = cosine_ratio, s = max(1, S - N):
//   WarmupLR        k = 1: M   i < N: M + (P - M) w(i)     else P
//   WarmupDecayLR   k = 1: M   i < N: M + (P - M) w(i)     else M + (P - M) max(0, (S - i) / s)
//   WarmupCosineLR  k = 1: 0   i < N: P (r + (1 - r) w(i)) else P max(0, c + (1 - c) (1 + cos(pi u)) / 2),
//                                                               u = min(1, (i - N + 1) / s)
//
// Every other kind is a plugin's.
struct Schedule {
  std::string kind = "constant";  // as in [schedule]
  bool log_warmup = false;
  int64_t warmup = 0, steps = 0;
  double peak = 0, least = 0;
  double warmup_ratio = 0, cosine_ratio = 1e-4;
  std::shared_ptr<const PluginSchedule> plugin = {};
  // The learning rate of update k = 1, 2, ...; a skipped step is no update. Throws Error(Exit::environment) that names
  // plugin and update if a plugin gives what no rate can be.
  double at(int64_t update) const;
};

// Loads the plugin of a kind that is not built in. Throws Error(Exit::usage) if it refuses its options.
Schedule make_schedule(const Config& config, Registry& registry);

}  // namespace eng
