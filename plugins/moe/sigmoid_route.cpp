// SPDX-License-Identifier: Apache-2.0
// The router whose scores are sigmoids, and its gradient. Both compute in f64, so the same kernels serve every device
// whose memory is host memory, and the bits do not depend on the threads.
#include <cmath>
#include <limits>

#include "../common/parallel.hpp"
#include "../common/reals.hpp"
#include "kernels.hpp"
#include "ops.hpp"
#include "routing.hpp"

namespace moe {
namespace {

using common::Args;
using common::Call;
using common::Reals;

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

struct SigmoidSizes : RouteSizes {
  int64_t groups, chosen_groups;
  double scale;
  explicit SigmoidSizes(const Call& c)
      : RouteSizes(c), groups(c.integer("groups")), chosen_groups(c.integer("chosen_groups")), scale(c.real("scale")) {}
};

// Calls f(thread, t) for every token.
template <class F>
void each_token(unsigned threads, int64_t tokens, F&& f) {
  cpu::parallel_for(threads, [&](unsigned thread, unsigned count) {
    const cpu::Share share = cpu::share_of(tokens, thread, count);
    for (int64_t t = share.first; t < share.last; ++t) f(thread, t);
  });
}

struct RouteSigmoid {
  static constexpr const char* op = MOE_OP_ROUTE_SIGMOID;
  Call c;
  SigmoidSizes s;
  explicit RouteSigmoid(const Call& call) : c(call), s(call) {}
  static uint64_t room(const SigmoidSizes& s) {  // of a thread: scores, what is chosen by, groups and their numbers
    return sizeof(double) * static_cast<uint64_t>(2 * s.experts + 2 * s.groups);
  }
  static uint64_t workspace(const Call& c) { return room(SigmoidSizes(c)) * c.parallel; }

  // Takes the experts of all but the best groups out of the choice.
  void leave_groups(double* value, double* sums, int32_t* best) const {
    const int64_t each = s.experts / s.groups;
    for (int64_t g = 0; g < s.groups; ++g) {
      int32_t two[2];
      choose(value + g * each, each, 2, two);
      sums[g] = value[g * each + two[0]] + value[g * each + two[1]];
    }
    choose(sums, s.groups, s.chosen_groups, best);
    for (int64_t g = 0; g < s.groups; ++g)
      if (std::find(best, best + s.chosen_groups, g) == best + s.chosen_groups)
        std::fill(value + g * each, value + (g + 1) * each, -std::numeric_limits<double>::infinity());
  }
  void run(const Args& a) const {
    const Reals logits(c, a, 0), correction(c, a, 1), weights(c, a, a.n_in);
    auto* const chosen = a.out<int32_t>(1);
    each_token(c.parallel, s.all, [&](unsigned thread, int64_t t) {
      auto* const score = reinterpret_cast<double*>(a.scratch<char>() + thread * room(s));
      double *const value = score + s.experts, *const sums = value + s.experts;
      int32_t* const mine = chosen + t * s.k;
      for (int64_t e = 0; e < s.experts; ++e) {
        score[e] = sigmoid(logits[t * s.experts + e]);
        value[e] = score[e] + (c.has(1) ? correction[e] : 0.0);
      }
      if (s.groups > 1) leave_groups(value, sums, reinterpret_cast<int32_t*>(sums + s.groups));
      choose(value, s.experts, s.k, mine);
      double divisor = s.normalise ? 0.0 : 1.0;
      for (int64_t j = 0; s.normalise && j < s.k; ++j) divisor += score[mine[j]];
      for (int64_t j = 0; j < s.k; ++j) weights.set(t * s.k + j, s.scale * (score[mine[j]] / divisor));
    });
    sort_pairs(chosen, s.all * s.k, s.experts, a.out<int32_t>(2), a.out<int32_t>(3), a.out<int32_t>(4));
  }
};

struct RouteSigmoidGrad {
  static constexpr const char* op = MOE_OP_ROUTE_SIGMOID_GRAD;
  Call c;
  SigmoidSizes s;
  explicit RouteSigmoidGrad(const Call& call) : c(call), s(call) {}
  static uint64_t workspace(const Call& c) {
    return sizeof(double) * static_cast<uint64_t>(c.integer("k")) * c.parallel;
  }
  void run(const Args& a) const {
    const Reals logits(c, a, 0), dweights(c, a, 2), dlogits(c, a, a.n_in);
    const auto* const chosen = a.in<int32_t>(1);
    each_token(c.parallel, s.all, [&](unsigned thread, int64_t t) {
      double* const score = a.scratch<double>() + thread * s.k;
      const int32_t* const mine = chosen + t * s.k;
      double divisor = s.normalise ? 0.0 : 1.0, mean = 0.0;
      for (int64_t j = 0; j < s.k; ++j) score[j] = sigmoid(logits[t * s.experts + mine[j]]);
      for (int64_t j = 0; s.normalise && j < s.k; ++j) divisor += score[j];
      for (int64_t j = 0; s.normalise && j < s.k; ++j) mean += dweights[t * s.k + j] * score[j] / divisor;
      for (int64_t e = 0; e < s.experts; ++e) dlogits.set(t * s.experts + e, 0.0);
      for (int64_t j = 0; j < s.k; ++j)
        dlogits.set(t * s.experts + mine[j],
                    s.scale * (dweights[t * s.k + j] - mean) / divisor * score[j] * (1.0 - score[j]));
    });
  }
};

}  // namespace

extern const eng_kernel route_sigmoid_kernel = common::kernel<RouteSigmoid>,
                        route_sigmoid_grad_kernel = common::kernel<RouteSigmoidGrad>;

}  // namespace moe
