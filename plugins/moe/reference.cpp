// SPDX-License-Identifier: Apache-2.0
// Kernels for the device `reference`: the formulas of ops.hpp as plain loops on one thread. Every sum is in f64,
// whatever the type of a tensor. Other kernels are compared with these.
#include <cmath>

#include "../common/reals.hpp"
#include "kernels.hpp"
#include "ops.hpp"
#include "routing.hpp"

namespace moe {
namespace {

using common::Args;
using common::Call;
using common::columns;
using common::elements;
using common::Reals;
using common::rows;

// Every tensor holds real numbers or i32.
void expect_types(const Call& c) {
  for (const auto* list : {&c.in, &c.out})
    for (const eng_desc& d : *list)
      if (d.dtype && d.dtype != ENG_I32 && d.dtype != ENG_F32 && d.dtype != ENG_F64 && !common::is_half(d))
        throw common::Error{ENG_UNSUPPORTED, "computes in f32, f64, bf16 or f16"};
}

// The softmax over all experts of the logits of one token.
struct Softmax {
  double most = -HUGE_VAL, sum = 0;
  void read(const Reals& logits, int64_t first, int64_t n, double* p) {
    for (int64_t e = 0; e < n; ++e) most = std::max(most, p[e] = logits[first + e]);
    for (int64_t e = 0; e < n; ++e) sum += p[e] = std::exp(p[e] - most);
    for (int64_t e = 0; e < n; ++e) p[e] /= sum;
  }
  double log_sum() const { return most + std::log(sum); }
};

struct Route {
  static constexpr const char* op = MOE_OP_ROUTE;
  Call c;
  RouteSizes s;
  explicit Route(const Call& call) : c(call), s(call) {}
  static void check(const Call& c) { expect_types(c); }
  static uint64_t workspace(const Call& c) { return sizeof(double) * static_cast<uint64_t>(3 * columns(c.in[0]) + 1); }
  void run(const Args& a) const {
    const Reals logits(c, a, 0), weights(c, a, 1), load(c, a, 6);
    auto* chosen = a.out<int32_t>(1);
    double *p = a.scratch<double>(), *sums = p + s.experts;  // (E), (2E + 1)
    for (int64_t b = 0; b < s.sequences; ++b) {
      std::fill(sums, sums + 2 * s.experts + 1, 0.0);
      for (int64_t t = b * s.tokens; t < (b + 1) * s.tokens; ++t) {
        for (int64_t e = 0; e < s.experts; ++e) p[e] = logits[t * s.experts + e];
        int32_t* const mine = chosen + t * s.k;
        choose(p, s.experts, s.k, mine);
        Softmax softmax;
        softmax.read(logits, t * s.experts, s.experts, p);
        double divisor = s.normalise ? 0.0 : 1.0;
        for (int64_t j = 0; j < s.k; ++j) {
          if (s.normalise) divisor += p[mine[j]];
          sums[mine[j]] += 1;
        }
        for (int64_t j = 0; j < s.k; ++j) weights.set(t * s.k + j, p[mine[j]] / divisor);
        for (int64_t e = 0; e < s.experts; ++e) sums[s.experts + e] += p[e];
        sums[2 * s.experts] += softmax.log_sum() * softmax.log_sum();
      }
      for (int64_t i = 0; i <= 2 * s.experts; ++i) load.set(b * (2 * s.experts + 1) + i, sums[i]);
    }
    sort_pairs(chosen, s.all * s.k, s.experts, a.out<int32_t>(2), a.out<int32_t>(3), a.out<int32_t>(4));
  }
};

struct RouteGrad {
  static constexpr const char* op = MOE_OP_ROUTE_GRAD;
  Call c;
  RouteSizes s;
  explicit RouteGrad(const Call& call) : c(call), s(call) {}
  static void check(const Call& c) { expect_types(c); }
  static uint64_t workspace(const Call& c) { return sizeof(double) * static_cast<uint64_t>(2 * columns(c.in[0])); }
  void run(const Args& a) const {
    const Reals logits(c, a, 0), dweights(c, a, 2), dload(c, a, 3), dlogits(c, a, a.n_in);
    const auto* chosen = a.in<int32_t>(1);
    double *p = a.scratch<double>(), *dp = p + s.experts;  // (E): probabilities, their gradients
    for (int64_t t = 0; t < s.all; ++t) {
      Softmax softmax;
      softmax.read(logits, t * s.experts, s.experts, p);
      const int64_t load = t / s.tokens * (2 * s.experts + 1);
      for (int64_t e = 0; e < s.experts; ++e) dp[e] = c.has(3) ? dload[load + s.experts + e] : 0.0;
      if (c.has(2)) {
        double divisor = s.normalise ? 0.0 : 1.0, mean = 0.0;
        for (int64_t j = 0; s.normalise && j < s.k; ++j) divisor += p[chosen[t * s.k + j]];
        for (int64_t j = 0; s.normalise && j < s.k; ++j)
          mean += dweights[t * s.k + j] * p[chosen[t * s.k + j]] / divisor;
        for (int64_t j = 0; j < s.k; ++j) dp[chosen[t * s.k + j]] += (dweights[t * s.k + j] - mean) / divisor;
      }
      double mean = 0;
      for (int64_t e = 0; e < s.experts; ++e) mean += dp[e] * p[e];
      const double z = c.has(3) ? 2 * softmax.log_sum() * dload[load + 2 * s.experts] : 0.0;
      for (int64_t e = 0; e < s.experts; ++e) dlogits.set(t * s.experts + e, p[e] * (dp[e] - mean + z));
    }
  }
};

// Calls f(e, r) for each row r of each expert e.
template <class F>
void each_row(const int32_t* offsets, int64_t experts, F f) {
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t r = offsets[e]; r < offsets[e + 1]; ++r) f(e, r);
}

struct Linear {
  static constexpr const char* op = MOE_OP_LINEAR;
  Call c;
  explicit Linear(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_types(c); }
  void run(const Args& a) const {
    const Reals x(c, a, 0), w(c, a, 1), y(c, a, a.n_in);
    const int64_t n = c.in[1].dims[1], depth = c.in[1].dims[2];
    const auto* order = a.in<int32_t>(3);
    each_row(a.in<int32_t>(2), c.in[1].dims[0], [&](int64_t e, int64_t r) {
      const int64_t from = order ? order[r] / c.in[3].dims[2] : r;
      for (int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k) sum += x[from * depth + k] * w[(e * n + i) * depth + k];
        y.set(r * n + i, sum);
      }
    });
  }
};

struct LinearInputGrad {
  static constexpr const char* op = MOE_OP_LINEAR_INPUT_GRAD;
  Call c;
  explicit LinearInputGrad(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_types(c); }
  void run(const Args& a) const {
    const Reals dy(c, a, 0), w(c, a, 1), dx(c, a, a.n_in);
    const int64_t n = c.in[1].dims[1], depth = c.in[1].dims[2];
    each_row(a.in<int32_t>(2), c.in[1].dims[0], [&](int64_t e, int64_t r) {
      for (int64_t k = 0; k < depth; ++k) {
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) sum += dy[r * n + i] * w[(e * n + i) * depth + k];
        dx.set(r * depth + k, sum);
      }
    });
  }
};

struct LinearWeightGrad {
  static constexpr const char* op = MOE_OP_LINEAR_WEIGHT_GRAD;
  Call c;
  explicit LinearWeightGrad(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_types(c), cpu::need_sums(c, c.in[0].dtype, {3}, {0}); }
  void run(const Args& a) const {
    const Reals dy(c, a, 0), x(c, a, 1), acc(c, a, 3), dw(c, a, a.n_in);
    const int64_t n = columns(c.in[0]), depth = columns(c.in[1]);
    const auto* offsets = a.in<int32_t>(2);
    for (int64_t e = 0; e < c.out[0].dims[0]; ++e)
      for (int64_t i = 0; i < n; ++i)
        for (int64_t k = 0; k < depth; ++k) {
          const int64_t at = (e * n + i) * depth + k;
          double sum = 0;
          for (int64_t r = offsets[e]; r < offsets[e + 1]; ++r) sum += dy[r * n + i] * x[r * depth + k];
          dw.set(at, c.has(3) ? acc[at] + sum : sum);
        }
  }
};

struct ValueSlope {
  double value, slope;
};
ValueSlope activate(size_t act, double x) {
  if (act == ENG_ACT_RELU - ENG_ACT_SILU) return {std::max(x, 0.0), x > 0 ? 1.0 : 0.0};
  if (act == ENG_ACT_GELU - ENG_ACT_SILU) {
    const double below = 0.5 * std::erfc(-x * M_SQRT1_2),
                 density = std::exp(-0.5 * x * x) * 0.5 * M_SQRT1_2 * M_2_SQRTPI;
    return {x * below, below + x * density};
  }
  // x sigmoid(z): z = x, or the argument of the tanh form of gelu.
  const bool silu = act == 0;
  const double root = 2 * std::sqrt(2 / M_PI), z = silu ? x : root * (x + 0.044715 * x * x * x);
  const double dz = silu ? 1.0 : root * (1 + 3 * 0.044715 * x * x), s = 1 / (1 + std::exp(-z));
  return {x * s, s + x * s * (1 - s) * dz};
}

struct Gated {
  static constexpr const char* op = MOE_OP_GATED;
  Call c;
  size_t act;
  explicit Gated(const Call& call) : c(call), act(activation_of(call)) {}
  static void check(const Call& c) { expect_types(c), activation_of(c); }
  void run(const Args& a) const {
    const Reals x(c, a, 0), weights(c, a, 1), y(c, a, a.n_in);
    const int64_t n = columns(c.out[0]);
    for (int64_t r = 0; r < rows(c.out[0]); ++r)
      for (int64_t i = 0; i < n; ++i)
        y.set(r * n + i, activate(act, x[2 * r * n + i]).value * x[(2 * r + 1) * n + i] * weights[a.in<int32_t>(2)[r]]);
  }
};

struct GatedGrad {
  static constexpr const char* op = MOE_OP_GATED_GRAD;
  Call c;
  size_t act;
  explicit GatedGrad(const Call& call) : c(call), act(activation_of(call)) {}
  static void check(const Call& c) { expect_types(c), activation_of(c); }
  void run(const Args& a) const {
    const Reals dy(c, a, 0), x(c, a, 1), weights(c, a, 2), dx(c, a, a.n_in), dweights(c, a, a.n_in + 1);
    const int64_t n = columns(c.in[0]);
    for (int64_t r = 0; r < rows(c.in[0]); ++r) {
      const int32_t pair = a.in<int32_t>(3)[r];
      const double weight = weights[pair];
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t gate = 2 * r * n + i, up = gate + n;
        const ValueSlope v = activate(act, x[gate]);
        const double d = dy[r * n + i], u = x[up];
        sum += d * v.value * u;
        dx.set(gate, d * weight * u * v.slope), dx.set(up, d * weight * v.value);
      }
      dweights.set(pair, sum);
    }
  }
};

struct Combine {
  static constexpr const char* op = MOE_OP_COMBINE;
  Call c;
  explicit Combine(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_types(c); }
  void run(const Args& a) const {
    const Reals x(c, a, 0), y(c, a, a.n_in);
    const int64_t n = columns(c.out[0]), k = c.in[1].dims[2];
    for (int64_t t = 0; t < rows(c.out[0]); ++t)
      for (int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < k; ++j) sum += x[a.in<int32_t>(1)[t * k + j] * n + i];
        y.set(t * n + i, sum);
      }
  }
};

struct Gather {
  static constexpr const char* op = MOE_OP_GATHER;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;
  explicit Gather(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_types(c); }
  void run(const Args& a) const {
    const Reals x(c, a, 0), y(c, a, a.n_in);
    const int64_t n = columns(c.in[0]), k = c.in[1].dims[2];
    for (int64_t r = 0; r < elements(c.in[1]); ++r)
      for (int64_t i = 0; i < n; ++i) y.set(r * n + i, x[a.in<int32_t>(1)[r] / k * n + i]);
  }
};

const eng_kernel* const list[] = {&common::kernel<Route>,
                                  &common::kernel<RouteGrad>,
                                  &common::kernel<Linear>,
                                  &common::kernel<LinearInputGrad>,
                                  &common::kernel<LinearWeightGrad>,
                                  &common::kernel<Gated>,
                                  &common::kernel<GatedGrad>,
                                  &common::kernel<Combine>,
                                  &common::kernel<Gather>,
                                  &balance_kernel,
                                  &balance_grad_kernel,
                                  &route_sigmoid_kernel,
                                  &route_sigmoid_grad_kernel};

}  // namespace

extern const eng_kernels reference_kernels = {
    .struct_size = sizeof(eng_kernels), .count = sizeof list / sizeof *list, .kernels = list};

}  // namespace moe
