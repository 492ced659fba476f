// SPDX-License-Identifier: Apache-2.0
// Su et al. 2021 (RoPE), Chen et al. 2023 (linear), NTK-aware scaling (dynamic), Peng et al. 2023 (YaRN),
// Ding et al. 2024 (LongRoPE), Llama 3.1 (llama3); parameters as Hugging Face files spell them.
#include "rope.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace decoder {
namespace {

constexpr double two_pi = 6.283185307179586476925286766559;

// The share of interpolation for each frequency: 0 for fast ones, which stay unchanged, 1 for slow ones.
double yarn_ramp(const Rope& rope, int64_t head_dim, int64_t j) {
  const double dim = static_cast<double>(head_dim);
  // The channel that makes `turns` full turns over the trained length.
  auto channel = [&](double turns) {
    return dim * std::log(static_cast<double>(rope.original_positions) / (turns * two_pi)) /
           (2.0 * std::log(rope.theta));
  };
  const double low = std::max(std::floor(channel(rope.beta_fast)), 0.0);
  double high = std::min(std::ceil(channel(rope.beta_slow)), dim - 1.0);
  if (high == low) high += 0.001;
  return std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
}

double llama3_frequency(const Rope& rope, double frequency) {
  const double turns = static_cast<double>(rope.original_positions) * frequency / two_pi;  // over the trained length
  if (turns > rope.high_freq_factor) return frequency;
  if (turns < rope.low_freq_factor) return frequency / rope.factor;
  const double keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - keep) * frequency / rope.factor + keep * frequency;
}

}  // namespace

std::vector<double> rope_frequencies(const Rope& rope, int64_t head_dim, int64_t length) {
  const double dim = static_cast<double>(head_dim);
  double theta = rope.theta;
  if (rope.type == RopeType::dynamic) {
    const double limit = static_cast<double>(rope.max_positions);
    const double longest = std::max(static_cast<double>(length), limit);
    theta *= std::pow(rope.factor * longest / limit - (rope.factor - 1.0), dim / (dim - 2.0));
  }
  const std::vector<double>& stretch = length > rope.original_positions ? rope.long_factor : rope.short_factor;
  std::vector<double> out(static_cast<size_t>(head_dim / 2));
  for (size_t j = 0; j < out.size(); ++j) {
    const double f = std::pow(theta, -2.0 * static_cast<double>(j) / dim);
    switch (rope.type) {
      case RopeType::plain:
      case RopeType::dynamic:
        out[j] = f;
        break;
      case RopeType::linear:
        out[j] = f / rope.factor;
        break;
      case RopeType::yarn: {
        const double ramp = yarn_ramp(rope, head_dim, static_cast<int64_t>(j));
        out[j] = f / rope.factor * ramp + f * (1.0 - ramp);
        break;
      }
      case RopeType::longrope:
        out[j] = f / stretch[j];
        break;
      case RopeType::llama3:
        out[j] = llama3_frequency(rope, f);
        break;
    }
  }
  return out;
}

double rope_attention_scaling(const Rope& rope) {
  if (rope.type != RopeType::yarn && rope.type != RopeType::longrope) return 1.0;
  if (rope.attention_factor > 0.0) return rope.attention_factor;
  if (rope.factor <= 1.0) return 1.0;
  if (rope.type == RopeType::yarn) return 0.1 * std::log(rope.factor) + 1.0;
  return std::sqrt(1.0 + std::log(rope.factor) / std::log(static_cast<double>(rope.original_positions)));
}

namespace {

std::vector<float> new_table(const Rope& rope, int64_t head_dim, int64_t length) {
  const std::vector<double> frequencies = rope_frequencies(rope, head_dim, length);
  const double scaling = rope_attention_scaling(rope);
  const size_t half = frequencies.size();
  std::vector<float> out(static_cast<size_t>(length) * 2 * half);
  for (size_t t = 0; t < static_cast<size_t>(length); ++t) {
    float* row = out.data() + t * 2 * half;
    for (size_t j = 0; j < half; ++j) {
      const double angle = static_cast<double>(t) * frequencies[j];
      row[j] = static_cast<float>(std::cos(angle) * scaling);
      row[half + j] = static_cast<float>(std::sin(angle) * scaling);
    }
  }
  return out;
}

}  // namespace

// A search for a plan traces the same model again and again, so the last table is kept if it is not large.
std::vector<float> rope_table(const Rope& rope, int64_t head_dim, int64_t length) {
  constexpr size_t most_kept = size_t{1} << 18;  // elements: 1 MiB
  struct Last {
    Rope rope;
    int64_t head_dim = 0, length = 0;
    std::vector<float> table;
  };
  static thread_local Last last;
  const auto key = [](const Rope& r) {
    return std::tie(r.type, r.theta, r.factor, r.low_freq_factor, r.high_freq_factor, r.beta_fast, r.beta_slow,
                    r.attention_factor, r.max_positions, r.original_positions, r.short_factor, r.long_factor);
  };
  if (!last.table.empty() && last.head_dim == head_dim && last.length == length && key(last.rope) == key(rope))
    return last.table;
  std::vector<float> table = new_table(rope, head_dim, length);
  if (table.size() <= most_kept) last = {rope, head_dim, length, table};
  return table;
}

}  // namespace decoder
