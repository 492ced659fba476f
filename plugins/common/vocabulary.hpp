// SPDX-License-Identifier: Apache-2.0
// The loss from the scores of ranks that divide a vocabulary (engine/ops_parallel.h), on every device whose memory is
// host memory.
#pragma once

#include <algorithm>
#include <cmath>

#include "engine/ops_parallel.h"
#include "kernel.hpp"
#include "reals.hpp"

namespace common {

struct VocabularyLoss {
  static constexpr const char* op = ENG_OP_VOCABULARY_LOSS;
  static constexpr int32_t no_label = -100;
  Call c;
  int64_t members, tokens;
  bool z_loss;

  static void check(const Call& c) {
    const auto real = [&](const eng_desc& d) { return d.dtype == c.in[0].dtype; };
    const bool z = c.real_or("z_loss", 0.0) > 0;
    if (c.in.size() < 2 || c.in.size() > 3 || c.out.size() != (z ? 3U : 2U) || !c.has(0) || !c.has(1))
      throw Error{ENG_INVALID, "takes scores, labels, [loss weights] and gives loss, lse, with z_loss z"};
    if ((c.in[0].dtype != ENG_F32 && c.in[0].dtype != ENG_F64) || c.in[1].dtype != ENG_I32 ||
        !std::all_of(c.out.begin(), c.out.end(), real) || (c.has(2) && !real(c.in[2])))
      throw Error{ENG_UNSUPPORTED, "labels must be i32, all else f32, or all f64"};
    const int64_t n = elements(c.in[1]);
    if (c.integer("members") < 1 || elements(c.in[0]) != c.integer("members") * 2 * n || elements(c.out[1]) != n ||
        elements(c.out[0]) != 1 || (z && elements(c.out[2]) != 1) || (c.has(2) && elements(c.in[2]) != n))
      throw Error{ENG_INVALID, "the sizes of scores, labels, weights and outputs do not match"};
  }
  explicit VocabularyLoss(const Call& call)
      : c(call), members(c.integer("members")), tokens(elements(c.in[1])), z_loss(c.real_or("z_loss", 0.0) > 0) {}
  void run(const Args& args) const {
    const Reals scores(c, args, 0), weights(c, args, c.in.size() > 2 ? 2 : SIZE_MAX), lses(c, args, c.in.size() + 1);
    const int32_t* labels = args.in<int32_t>(1);
    double loss = 0, z = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      lses.set(t, 0);
      if (labels[t] == no_label) continue;
      double top = -INFINITY, sum = 0, logit = 0;
      for (int64_t r = 0; r < members; ++r) top = std::max(top, scores[r * 2 * tokens + t]);
      for (int64_t r = 0; r < members; ++r) {
        sum += std::exp(scores[r * 2 * tokens + t] - top);
        logit += scores[(r * 2 + 1) * tokens + t];
      }
      const double lse = top + std::log(sum), weight = weights ? weights[t] : 1.0;
      lses.set(t, lse);
      loss += weight * (lse - logit), z += weight * lse * lse;
    }
    Reals(c, args, c.in.size()).set(0, loss);
    if (z_loss) Reals(c, args, c.in.size() + 2).set(0, z);
  }
};

// The row of a label among those from `first` on; -1 for a label of other rows. Throws for one that no member has.
inline int64_t row_of_label(int32_t label, int64_t first, int64_t rows, int64_t whole) {
  if (label < 0 || label >= whole)
    throw Error{ENG_OUT_OF_RANGE, "label " + std::to_string(label) + " is neither -100 nor below the vocabulary of " +
                                      std::to_string(whole)};
  return label >= first && label < first + rows ? label - first : -1;
}

}  // namespace common
