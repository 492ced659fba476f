// SPDX-License-Identifier: Apache-2.0
// The activations that gated and activation share.
#pragma once

#include "reference.hpp"

namespace reference {

struct Slope {
  double value, slope;  // act(x), act'(x)
};

inline Slope activation(int64_t act, double x) {
  switch (act) {
    case ENG_ACT_SILU: {
      const double sigmoid = 1.0 / (1.0 + std::exp(-x));
      return {x * sigmoid, sigmoid * (1.0 + x * (1.0 - sigmoid))};
    }
    case ENG_ACT_GELU: {
      const double below = 0.5 * (1.0 + std::erf(x * 0.70710678118654752440));  // normal distribution
      const double density = 0.39894228040143267794 * std::exp(-0.5 * x * x);   // and its density
      return {x * below, below + x * density};
    }
    case ENG_ACT_GELU_TANH: {
      const double root = 0.79788456080286535588;  // sqrt(2 / pi)
      const double t = std::tanh(root * (x + 0.044715 * x * x * x));
      const double inner = root * (1.0 + 3.0 * 0.044715 * x * x);
      return {0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner};
    }
    default:
      return x > 0 ? Slope{x, 1.0} : Slope{0.0, 0.0};  // relu
  }
}

inline void expect_activation(const Call& c) {
  const int64_t act = c.integer("act");
  if (act < ENG_ACT_SILU || act > ENG_ACT_RELU)
    throw Error{ENG_UNSUPPORTED, "act = " + std::to_string(act) +
                                     " is unknown; it must be 1 (silu), 2 (gelu), 3 (gelu_tanh) or 4 (relu)"};
}

}  // namespace reference
