// SPDX-License-Identifier: Apache-2.0
// The gradient of a term of the loss (engine/ops.h) on every device whose memory is host memory.
#pragma once

#include "engine/ops.h"
#include "kernel.hpp"
#include "reals.hpp"

namespace common {

struct LossSeed {
  static constexpr const char* op = ENG_OP_LOSS_SEED;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;
  double weight;
  bool labels;
  static void check(const Call& c) {
    const auto real = [](const eng_desc& d) { return d.dtype == ENG_F32 || d.dtype == ENG_F64; };
    if (c.in.size() != 1 || c.out.size() != 1 || !real(c.in[0]) || elements(c.in[0]) != ENG_S_COUNT ||
        !real(c.out[0]) || elements(c.out[0]) != 1)
      throw Error{ENG_INVALID, "takes scalars f32 (32) and gives one number"};
    c.real("weight");
  }
  explicit LossSeed(const Call& call) : c(call), weight(c.real("weight")), labels(c.integer_or("labels", 1) != 0) {}
  template <class T>
  static double product(double a, double b, double w) {
    return static_cast<double>(static_cast<T>(static_cast<T>(a) * static_cast<T>(b)) * static_cast<T>(w));
  }
  void run(const Args& args) const {
    const Reals scalars(c, args, 0);
    const double a = labels ? scalars[ENG_S_INV_TOKENS] : 1.0, b = scalars[ENG_S_LOSS_SCALE];
    Reals(c, args, 1).set(0, c.out[0].dtype == ENG_F32 ? product<float>(a, b, weight) : product<double>(a, b, weight));
  }
};

}  // namespace common
