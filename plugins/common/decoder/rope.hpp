// SPDX-License-Identifier: Apache-2.0
// Tables of rotary position embedding.
#pragma once

#include <cstdint>
#include <vector>

namespace decoder {

enum class RopeType { plain, linear, dynamic, yarn, longrope, llama3 };

struct Rope {
  RopeType type = RopeType::plain;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  double attention_factor = 0.0;                         // multiplies cos and sin; 0: the formula of the type
  int64_t max_positions = 2048;
  int64_t original_positions = 2048;              // length the frequencies were trained for
  std::vector<double> short_factor, long_factor;  // longrope, head_dim / 2 each
};

// Radians per position, one per pair of channels, for sequences of `length`.
std::vector<double> rope_frequencies(const Rope& rope, int64_t head_dim, int64_t length);
// The factor of cos and sin.
double rope_attention_scaling(const Rope& rope);
// (length, head_dim): [cos | sin] of each position, computed in double, rounded once.
std::vector<float> rope_table(const Rope& rope, int64_t head_dim, int64_t length);

}  // namespace decoder
