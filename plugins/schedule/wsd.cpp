// SPDX-License-Identifier: Apache-2.0
// Warm-up, stable, decay. The shape was named by Hu et al., "MiniCPM: Unveiling the Potential of Small Language Models
// with Scalable Training Strategies" (2024, arXiv:2404.06395). The decay 1 - sqrt(t), and a fifth of the run as its
// length, are those that Haegele et al. recommend, "Scaling Laws and Compute-Optimal Training Beyond Fixed Training
// Durations" (2024, arXiv:2405.18392).
//
// With P = peak, M = min_learning_rate, W = warmup_steps, D = decay_steps, S = steps of the run:
//   k < W         P k / W
//   W <= k <= B   P                               B = max(S - D, W): the last update before the decay
//   B < k < S     M + (P - M) f(t)                t = (k - B) / (S - B)
//   k >= S        M, exactly; P if B >= S         f(t) = 1 - t, 1 - sqrt(t) or (1 + cos(pi t)) / 2
// If W >= S, the run ends in the warm-up, and nothing decays.
#include <algorithm>
#include <numbers>

#include "schedule.hpp"

namespace {

struct Wsd {
  double peak, least;
  uint64_t warmup, last_stable, steps;
  std::string shape;

  Wsd(const eng_options* options, const eng_schedule_run& run, eng_error* error)
      : peak(run.peak),
        least(schedule::number(options, "min_learning_rate", error)),
        warmup(static_cast<uint64_t>(schedule::integer(options, "warmup_steps", error))),
        steps(static_cast<uint64_t>(run.steps)) {
    if (least > peak)
      throw schedule::Error(ENG_INVALID, "min_learning_rate is above optimizer.learning_rate: lower it, or raise that");
    const bool given = options->is_set(options, "decay_steps"), share = options->is_set(options, "decay_share");
    if (given && share)
      throw schedule::Error(ENG_INVALID, "decay_steps and decay_share are both given: remove one of them");
    const auto decay = static_cast<uint64_t>(
        given ? schedule::integer(options, "decay_steps", error)
              : std::llround(schedule::number(options, "decay_share", error) * static_cast<double>(run.steps)));
    if (decay > steps)
      throw schedule::Error(ENG_INVALID, "decay_steps = " + std::to_string(decay) + " is more than train.steps = " +
                                             std::to_string(steps) + ": lower it, or give decay_share instead");
    const char* decay_shape = nullptr;
    if (const eng_status s = options->get_string(options, "decay", &decay_shape, error)) throw schedule::Error(s, "");
    shape = decay_shape;
    last_stable = std::max(steps - decay, warmup);
  }

  double rate(uint64_t k) const {
    if (k < warmup) return schedule::warm(peak, static_cast<int64_t>(warmup), k);
    if (k <= last_stable) return peak;
    if (k >= steps) return last_stable < steps ? least : peak;
    const double t = static_cast<double>(k - last_stable) / static_cast<double>(steps - last_stable);
    const double left = shape == "cosine"   ? (1 + std::cos(std::numbers::pi * t)) / 2
                        : shape == "1-sqrt" ? 1 - std::sqrt(t)
                                            : 1 - t;
    return least + (peak - least) * left;
  }
};

}  // namespace

const eng_schedule wsd_table = schedule::table_of<Wsd>();
