// SPDX-License-Identifier: Apache-2.0
// The scores of attention and the keys that a query sees, with the window and the cap that a call may have.
#pragma once

#include <algorithm>

#include "engine/ops_attention.h"
#include "reference.hpp"

namespace reference {

struct Scores {
  double scale;
  int64_t window;  // 0: none
  double cap;      // 0: none

  explicit Scores(const Call& c)
      : scale(c.real("scale")), window(c.integer_or("window", 0)), cap(c.real_or("softcap", 0)) {
    expect(window >= 0, "window must be at least 0");
    expect(cap >= 0 && std::isfinite(cap), "softcap must be at least 0, and finite");
  }
  // The first key that position i sees; `start`: the first one of its document.
  int64_t first(int64_t i, int64_t start) const { return window ? std::max(start, i - window + 1) : start; }
  // The score of a product q k^T.
  double capped(double product) const {
    const double score = scale * product;
    return cap != 0 ? cap * std::tanh(score / cap) : score;
  }
  // The derivative of a score by the product, from the score.
  double slope(double score) const {
    if (cap == 0) return scale;
    const double t = score / cap;
    return scale * (1 - t * t);
  }
};

}  // namespace reference
