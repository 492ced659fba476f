// SPDX-License-Identifier: Apache-2.0
// Kernels of delayed scaling that go over the states of all maps (engine/ops_fp8.h): a few numbers for each of them.
#pragma once

#include "engine/ops_fp8.h"
#include "kernel.hpp"

namespace common {

// Rows of states behind each other: the scale, the largest value of the step, and those of the last `history` steps.
struct Fp8Rows {
  int64_t history, rows;
  explicit Fp8Rows(const Call& c) : history(c.integer("history")) {
    const bool fits = history > 0 && c.has(0) && elements(c.in[0]) % (3 * (2 + history)) == 0;
    if (!fits || c.in[0].dtype != ENG_F32) throw Error{ENG_INVALID, "states must be f32 (M * 3 * (2 + H))"};
    rows = elements(c.in[0]) / (2 + history);
  }
  int64_t stride() const { return 2 + history; }
};

struct Fp8Collect {
  static constexpr const char* op = ENG_OP_FP8_COLLECT;
  Fp8Rows states;

  explicit Fp8Collect(const Call& c) : states(c) {}
  static void check(const Call& c) {
    if (c.out.size() != 1 || elements(c.out[0]) != Fp8Rows(c).rows)
      throw Error{ENG_INVALID, "the output must have a number for each row"};
  }
  void run(const Args& args) const {
    for (int64_t r = 0; r < states.rows; ++r) args.out<float>(0)[r] = args.in<float>(0)[r * states.stride() + 1];
  }
};

struct Fp8Roll {
  static constexpr const char* op = ENG_OP_FP8_ROLL;
  Fp8Rows states;
  int64_t ranks;  // 0: there is one, whose largest values are in the states
  int32_t gradients, margin;
  bool recent;

  explicit Fp8Roll(const Call& c)
      : states(c),
        ranks(c.has(1) ? elements(c.in[1]) / states.rows : 0),
        gradients(static_cast<int32_t>(c.integer("gradients"))),
        margin(static_cast<int32_t>(c.integer("margin"))),
        recent(c.integer("recent") != 0) {}
  static void check(const Call& c) {
    const Fp8Roll roll(c);
    if (c.out.size() != 1 || elements(c.out[0]) != elements(c.in[0]))
      throw Error{ENG_INVALID, "the output must be the states"};
    if (c.has(1) && (c.in[1].dtype != ENG_F32 || elements(c.in[1]) != roll.ranks * roll.states.rows))
      throw Error{ENG_INVALID, "what the ranks have must be f32 (R * M * 3)"};
    if (roll.gradients != ENG_FP8_E4M3 && roll.gradients != ENG_FP8_E5M2)
      throw Error{ENG_INVALID, "gradients must be ENG_FP8_E4M3 or ENG_FP8_E5M2"};
    if (roll.margin < 0 || roll.margin > 64) throw Error{ENG_INVALID, "margin must be 0 to 64"};
  }
  void run(const Args& args) const {
    const float* const all = args.in<float>(1);
    for (int64_t r = 0; r < states.rows; ++r) {
      float* const row = args.out<float>(0) + r * states.stride();
      float latest = row[1], decides = 0;
      for (int64_t k = 0; k < ranks; ++k) latest = std::max(k ? latest : 0.0f, all[k * states.rows + r]);
      std::copy_backward(row + 2, row + 1 + states.history, row + 2 + states.history);
      row[1] = 0, row[2] = latest;
      decides = recent ? latest : *std::max_element(row + 2, row + 2 + states.history);
      const int32_t n = eng_fp8_exponent(r % 3 == 2 ? gradients : ENG_FP8_E4M3, decides, margin);
      row[0] = decides > 0 ? eng_fp8_power(n) : 0.0f;
    }
  }
};

}  // namespace common
