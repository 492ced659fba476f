// SPDX-License-Identifier: Apache-2.0
// The dynamic loss scale (engine/ops.h): the rule, and its ops on every device whose memory is host memory.
#pragma once

#include <cstring>

#include "engine/ops.h"
#include "kernel.hpp"

// For functions that a GPU computes too.
#ifdef __CUDACC__
#define ENG_HOST_DEVICE __host__ __device__
#else
#define ENG_HOST_DEVICE
#endif

namespace common {

struct ScalerRule {
  enum { scale, good, overflows, skipped };  // of the state
  float initial, minimum, window, hysteresis;
  bool consecutive;

  explicit ScalerRule(const Call& c)
      : initial(static_cast<float>(c.real("initial"))),
        minimum(static_cast<float>(c.real("minimum"))),
        window(static_cast<float>(c.integer("window"))),
        hysteresis(static_cast<float>(c.integer("hysteresis"))),
        consecutive(c.integer("consecutive") != 0) {}
  static void check(const Call& c) {
    const ScalerRule rule(c);
    const auto is = [](const eng_desc& d, int64_t n) { return d.dtype == ENG_F32 && elements(d) == n; };
    if (c.in.size() != 2 || c.out.size() != 1 || !is(c.in[0], ENG_SCALER_COUNT) || !is(c.in[1], ENG_S_COUNT) ||
        c.out[0].dtype != ENG_F32)
      throw Error{ENG_INVALID, "takes a state f32 (8) and scalars f32 (32), and gives one of them"};
    if (!(rule.initial > 0 && rule.minimum > 0 && rule.hysteresis > 0 && rule.window >= 0))
      throw Error{ENG_INVALID, "initial, minimum and hysteresis must be above 0, window at least 0"};
  }

  ENG_HOST_DEVICE float scale_of(const float* state) const { return state[scale] > 0 ? state[scale] : initial; }
  ENG_HOST_DEVICE float to_go(const float* state) const { return state[scale] > 0 ? state[overflows] : hysteresis; }

  ENG_HOST_DEVICE void begin(const float* state, float* scalars) const {
    scalars[ENG_S_LOSS_SCALE] = scale_of(state);
    scalars[ENG_S_MAY_SKIP] = to_go(state) > 1 || scale_of(state) > minimum ? 1.0f : 0.0f;
  }
  ENG_HOST_DEVICE void after(bool counts, float* state) const {
    float now = scale_of(state), left = to_go(state);
    if (!counts) {
      state[good] = 0, state[skipped] += 1;
      if (left > 1)
        left -= 1;
      else
        now = now / 2 > minimum ? now / 2 : minimum;
    } else {
      state[good] += 1;
      const bool grows = window > 0 && state[good] == window + 1;
      if (grows) state[good] = 1, now = now > 0x1p126f ? now : now * 2;
      if (grows || consecutive) left = hysteresis;
      if (window == 0) state[good] = 1;  // it counts for nothing
    }
    state[scale] = now, state[overflows] = left;
  }
};

struct LossScale {
  static constexpr const char* op = ENG_OP_LOSS_SCALE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  ScalerRule rule;
  static void check(const Call& c) {
    ScalerRule::check(c);
    if (elements(c.out[0]) != ENG_S_COUNT) throw Error{ENG_INVALID, "gives scalars f32 (32)"};
  }
  explicit LossScale(const Call& c) : rule(c) {}
  void run(const Args& args) const {
    float* scalars = args.out<float>(0);
    if (scalars != args.in<float>(1)) std::memcpy(scalars, args.in<float>(1), ENG_S_COUNT * sizeof(float));
    rule.begin(args.in<float>(0), scalars);
  }
};

struct Scaler {
  static constexpr const char* op = ENG_OP_SCALER;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  ScalerRule rule;
  static void check(const Call& c) {
    ScalerRule::check(c);
    if (elements(c.out[0]) != ENG_SCALER_COUNT) throw Error{ENG_INVALID, "gives a state f32 (8)"};
  }
  explicit Scaler(const Call& c) : rule(c) {}
  void run(const Args& args) const {
    float* state = args.out<float>(0);
    if (state != args.in<float>(0)) std::memcpy(state, args.in<float>(0), ENG_SCALER_COUNT * sizeof(float));
    rule.after(args.in<float>(1)[ENG_S_OK] != 0.0f, state);
  }
};

}  // namespace common
