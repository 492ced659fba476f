// SPDX-License-Identifier: Apache-2.0
// The router and its gradient on the device `cpu`.
#pragma once

#include <cmath>

#include "cpu_shared.hpp"

namespace moe {
namespace {

// Tokens of a chunk, of one sequence. Its sums are one row: E probabilities, one square.
constexpr int64_t chunk = 64;
int64_t chunks(int64_t tokens) {
  return (tokens + chunk - 1) / chunk;
}

// exp of the logits of a token, less the largest one; log of the sum of exp(logits).
struct Exps {
  float sum, log_sum;
  template <class T>
  Exps(const Loops& loops, const T* logits, int64_t n, float* out) {
    loops.of<T>().widen(logits, out, n);
    float most = out[0];
    for (int64_t e = 1; e < n; ++e)
      if (out[e] > most) most = out[e];
    sum = loops.exps(out, most, n);
    log_sum = most + std::log(sum);
  }
};

template <Choose isa>
struct Route {
  static constexpr const char* op = MOE_OP_ROUTE;
  RouteSizes s;
  int32_t type;
  unsigned threads;
  const Loops& loops;

  static void check(const Call& c) { cpu::need_float(c.in[0], "logits"), need_wide(c, {}, {0, 5}, "weights and load"); }
  static uint64_t workspace(const Call& c) {
    const RouteSizes s(c);
    return sizeof(double) * static_cast<uint64_t>(s.sequences * chunks(s.tokens) * (s.experts + 1)) +
           floats(2 * s.experts) * c.parallel;
  }
  explicit Route(const Call& c) : s(c), type(c.in[0].dtype), threads(c.parallel), loops(*isa().loops) {}

  template <class T>
  void token(const T* logits, float* x, float* p, int32_t* chosen, float* weights, double* sums) const {
    loops.of<T>().widen(logits, x, s.experts);
    choose(x, s.experts, s.k, chosen);
    const Exps exps(loops, logits, s.experts, p);
    float divisor = 0;
    for (int64_t j = 0; j < s.k; ++j) divisor += p[chosen[j]];
    if (!s.normalise) divisor = exps.sum;
    for (int64_t j = 0; j < s.k; ++j) weights[j] = p[chosen[j]] / divisor;
    for (int64_t e = 0; e < s.experts; ++e) sums[e] += static_cast<double>(p[e] / exps.sum);
    sums[s.experts] += static_cast<double>(exps.log_sum) * static_cast<double>(exps.log_sum);
  }
  void run(const Args& a) const {
    auto* const sums = a.scratch<double>();  // (B, chunks, E + 1)
    const int64_t each = chunks(s.tokens), width = s.experts + 1, load_width = 2 * s.experts + 1;
    auto* const rooms = reinterpret_cast<float*>(sums + s.sequences * each * width);
    auto* const chosen = a.out<int32_t>(1);
    cpu::parallel_tasks(threads, s.sequences * each, [&](unsigned thread, int64_t task) {
      double* const mine = sums + task * width;
      float *const x = rooms + thread * 2 * s.experts, *const p = x + s.experts;
      std::fill(mine, mine + width, 0.0);
      const int64_t b = task / each, first = task % each * chunk, last = std::min(first + chunk, s.tokens);
      cpu::by_type(type, [&]<class T>(T) {
        for (int64_t t = b * s.tokens + first; t < b * s.tokens + last; ++t)
          token(a.in<T>(0) + t * s.experts, x, p, chosen + t * s.k, a.out<float>(0) + t * s.k, mine);
      });
    });
    float* const load = a.out<float>(5);
    for (int64_t b = 0; b < s.sequences; ++b) {
      float *const counts = load + b * load_width, *const more = counts + s.experts;
      double* const total = sums + b * each * width;
      for (int64_t i = 1; i < each; ++i)
        for (int64_t e = 0; e < width; ++e) total[e] += total[i * width + e];
      for (int64_t e = 0; e < width; ++e) more[e] = static_cast<float>(total[e]);
      std::fill(counts, counts + s.experts, 0.0f);
      for (int64_t p = b * s.tokens * s.k; p < (b + 1) * s.tokens * s.k; ++p) counts[chosen[p]] += 1.0f;
    }
    sort_pairs(chosen, s.all * s.k, s.experts, a.out<int32_t>(2), a.out<int32_t>(3), a.out<int32_t>(4));
  }
};

template <Choose isa>
struct RouteGrad {
  static constexpr const char* op = MOE_OP_ROUTE_GRAD;
  RouteSizes s;
  int32_t type;
  unsigned threads;
  const Loops& loops;

  static void check(const Call& c) {
    cpu::need_float(c.in[0], "logits"), cpu::need_same_type(c.in[0], c.out[0], "logits and dlogits");
    need_wide(c, {2, 3}, {}, "gradients of weights and load");
  }
  static uint64_t workspace(const Call& c) { return floats(2 * columns(c.in[0])) * c.parallel; }
  explicit RouteGrad(const Call& c) : s(c), type(c.in[0].dtype), threads(c.parallel), loops(*isa().loops) {}

  template <class T>
  void token(const T* logits, const int32_t* chosen, const float* dweights, const float* dload, float* p, float* dp,
             T* dlogits) const {
    const Exps exps(loops, logits, s.experts, p);
    for (int64_t e = 0; e < s.experts; ++e) p[e] /= exps.sum, dp[e] = dload ? dload[s.experts + e] : 0.0f;
    if (dweights) {
      float divisor = s.normalise ? 0.0f : 1.0f, mean = 0;
      for (int64_t j = 0; s.normalise && j < s.k; ++j) divisor += p[chosen[j]];
      for (int64_t j = 0; s.normalise && j < s.k; ++j) mean += dweights[j] * (p[chosen[j]] / divisor);
      for (int64_t j = 0; j < s.k; ++j) dp[chosen[j]] += (dweights[j] - mean) / divisor;
    }
    float mean = 0;
    for (int64_t e = 0; e < s.experts; ++e) mean += dp[e] * p[e];
    const float z = dload ? 2.0f * exps.log_sum * dload[2 * s.experts] : 0.0f;
    for (int64_t e = 0; e < s.experts; ++e) p[e] *= dp[e] - mean + z;
    loops.of<T>().narrow(p, dlogits, s.experts);
  }
  void run(const Args& a) const {
    cpu::parallel_for(threads, [&](unsigned thread, unsigned count) {
      const cpu::Share share = cpu::share_of(s.all, thread, count);
      float* const p = a.scratch<float>() + thread * 2 * s.experts;
      const float *dweights = a.in<float>(2), *dload = a.in<float>(3);
      cpu::by_type(type, [&]<class T>(T) {
        for (int64_t t = share.first; t < share.last; ++t)
          token(a.in<T>(0) + t * s.experts, a.in<int32_t>(1) + t * s.k, dweights ? dweights + t * s.k : nullptr,
                dload ? dload + t / s.tokens * (2 * s.experts + 1) : nullptr, p, p + s.experts,
                a.out<T>(0) + t * s.experts);
      });
    });
  }
};

}  // namespace
}  // namespace moe
