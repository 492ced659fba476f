// SPDX-License-Identifier: Apache-2.0
#include "core/train/schedule.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/error.hpp"

namespace eng {
namespace {

[[noreturn]] void refuse(const std::string& key, const std::string& why) {
  throw Error(Exit::usage, "[schedule] " + key + ": " + why);
}

void require_rate(const char* key, double value) {
  if (!std::isfinite(value) || value < 0) refuse(key, fmt::format("must be a finite number >= 0, is {}", value));
}

void require_ratio(const char* key, double value) {
  if (!(value >= 0 && value <= 1)) refuse(key, fmt::format("must be between 0 and 1, is {}", value));
}

double at_own(const OwnSchedule& s, int64_t k) {
  const double peak = s.learning_rate, least = s.min_learning_rate;
  if (k < s.warmup_steps) {
    if (s.warmup == OwnSchedule::Warmup::linear) return peak * (double(k) / double(s.warmup_steps));
    return peak * (std::log(double(k) + 1) / std::log(double(s.warmup_steps) + 1));
  }
  if (k == s.warmup_steps || s.kind == OwnSchedule::Kind::constant) return peak;
  if (k >= s.steps) return least;
  const double t = double(k - s.warmup_steps) / double(s.steps - s.warmup_steps);
  if (s.kind == OwnSchedule::Kind::linear) return peak + (least - peak) * t;
  return least + (peak - least) * (0.5 * (1 + std::cos(std::numbers::pi * t)));
}

double at_deepspeed(const DeepSpeedSchedule& s, int64_t k) {
  using Kind = DeepSpeedSchedule::Kind;
  const double least = s.min_learning_rate, most = s.max_learning_rate;
  if (k == 1) return s.kind == Kind::warmup_cosine ? 0.0 : least;
  const auto i = double(k - 2);
  const auto n = double(std::max<int64_t>(2, s.warmup_num_steps));
  const auto total = double(s.total_num_steps);
  if (i < n) {
    const double w = s.warmup == DeepSpeedSchedule::Warmup::log ? std::log(i + 1) / std::log(n) : i / n;
    if (s.kind == Kind::warmup_cosine) return most * (s.warmup_min_ratio + (1 - s.warmup_min_ratio) * w);
    return least + (most - least) * w;
  }
  const double span = std::max(1.0, total - n);
  switch (s.kind) {
    case Kind::warmup:
      return most;
    case Kind::warmup_decay:
      return least + (most - least) * std::max(0.0, (total - i) / span);
    case Kind::warmup_cosine:
      break;
  }
  const double wave = (1 + std::cos(std::numbers::pi * std::min(1.0, (i - n + 1) / span))) / 2;
  return most * std::max(0.0, s.cos_min_ratio + (1 - s.cos_min_ratio) * wave);
}

}  // namespace

Schedule::Schedule(const OwnSchedule& own) : own_(own) {
  require_rate("learning_rate", own.learning_rate);
  require_rate("min_learning_rate", own.min_learning_rate);
  if (own.warmup_steps < 0) refuse("warmup_steps", fmt::format("must be >= 0, is {}", own.warmup_steps));
  if (own.kind == OwnSchedule::Kind::constant) return;
  if (own.steps < 1) refuse("steps", fmt::format("a decaying schedule needs [train] steps >= 1, is {}", own.steps));
  if (own.min_learning_rate > own.learning_rate) {
    refuse("min_learning_rate", fmt::format("{} is above [optimizer] learning_rate = {}: the schedule would rise",
                                            own.min_learning_rate, own.learning_rate));
  }
}

Schedule::Schedule(const DeepSpeedSchedule& deepspeed) : compatible_(true), deepspeed_(deepspeed) {
  require_rate("warmup_min_lr", deepspeed.min_learning_rate);
  require_rate("warmup_max_lr", deepspeed.max_learning_rate);
  require_ratio("warmup_min_ratio", deepspeed.warmup_min_ratio);
  require_ratio("cos_min_ratio", deepspeed.cos_min_ratio);
  if (deepspeed.warmup_num_steps < 0) {
    refuse("warmup_num_steps", fmt::format("must be >= 0, is {}", deepspeed.warmup_num_steps));
  }
  if (deepspeed.kind != DeepSpeedSchedule::Kind::warmup && deepspeed.total_num_steps < 1) {
    refuse("total_num_steps", fmt::format("this kind needs it, and it must be >= 1; is {}", deepspeed.total_num_steps));
  }
}

double Schedule::at(int64_t update) const {
  if (update < 1) throw Error(Exit::bug, fmt::format("learning rate of update {}: updates count from 1", update));
  return compatible_ ? at_deepspeed(deepspeed_, update) : at_own(own_, update);
}

}  // namespace eng
