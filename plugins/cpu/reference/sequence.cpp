// SPDX-License-Identifier: Apache-2.0
// rope_step, attention_step: the next positions of a running sequence.
#include <algorithm>
#include <cstring>

#include "scores.hpp"

namespace reference {
namespace {

// The first of `n` positions, which must lie below `length`.
int64_t position(const int64_t* counters, int64_t n, int64_t length) {
  const int64_t at = counters[ENG_C_POSITION];
  if (at < 0 || at > length - n)
    throw Error{ENG_OUT_OF_RANGE, "positions " + std::to_string(at) + " to " + std::to_string(at + n - 1) +
                                      " of a sequence of " + std::to_string(length)};
  return at;
}

struct RopeStep {
  static constexpr const char* op = ENG_OP_ROPE_STEP;
  Call c;
  int64_t heads;
  double sign;

  explicit RopeStep(const Call& call) : c(call), heads(c.integer("heads")), sign(c.integer("inverse") ? -1.0 : 1.0) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1, 2});
    expect_types(c, 3, {0}, 1, {0});
    const RopeStep op(c);
    expect(c.in[0].ndim == 3 && op.heads > 0 && columns(c.in[0]) % (2 * op.heads) == 0,
           "x must be (B, n, heads*D) with D even");
    expect(is_real(c, 1) && c.in[1].ndim == 2 && c.in[1].dims[0] >= c.in[0].dims[1] &&
               columns(c.in[1]) == columns(c.in[0]) / op.heads,
           "table must be (T, D) f32, T at least n");
    expect_counters(c.in[2]);
    expect(elements(c.out[0]) == elements(c.in[0]), "y must have the shape of x");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class Type>(Type) {
      const int64_t B = c.in[0].dims[0], n = c.in[0].dims[1], D = columns(c.in[0]) / heads, d = D / 2;
      const int64_t at = position(a.in<int64_t>(2), n, c.in[1].dims[0]);
      const Reals table(c, a, 1);  // (T, D): cos, then sin
      for (int64_t token = 0; token < B * n; ++token)
        for (int64_t h = 0; h < heads; ++h) {
          const Type* x = a.in<Type>(0) + (token * heads + h) * D;
          Type* y = a.out<Type>(0) + (token * heads + h) * D;
          for (int64_t j = 0; j < d; ++j) {
            const int64_t row = (at + token % n) * D;
            const double cosine = table[row + j], sine = sign * table[row + d + j];
            const double x1 = double(x[j]), x2 = double(x[d + j]);
            y[j] = Type(x1 * cosine - x2 * sine);
            y[d + j] = Type(x2 * cosine + x1 * sine);
          }
        }
    });
  }
};

template <bool window>
struct AttentionStep {
  static constexpr const char* op = window ? ENG_OP_ATTENTION_WINDOW_STEP : ENG_OP_ATTENTION_STEP;
  Call c;
  int64_t B, n, S, heads, kv_heads, D;
  Scores scores;

  explicit AttentionStep(const Call& call)
      : c(call), heads(c.integer("heads")), kv_heads(c.integer("kv_heads")), scores(c) {
    expect(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, "heads must be a multiple of kv_heads");
    expect(c.in[0].ndim == 3 && columns(c.in[0]) % heads == 0, "q must be (B, n, heads*D)");
    expect(c.in[3].ndim == 3 && c.in[3].dims[1] >= c.in[0].dims[1], "caches must be (B, S, kv_heads*D), S at least n");
    B = c.in[0].dims[0], n = c.in[0].dims[1], S = c.in[3].dims[1], D = columns(c.in[0]) / heads;
  }
  static void check(const Call& c) {
    expect_inputs(c, {0, 1, 2, 3, 4, 5});
    expect_types(c, 6, {0, 1, 2, 3, 4}, 3, {0, 1, 2});
    expect_counters(c.in[5]);
    const AttentionStep s(c);
    for (size_t k : {1, 2})
      expect(elements(c.in[k]) == s.B * s.n * s.kv_heads * s.D &&
                 elements(c.in[k + 2]) == s.B * s.S * s.kv_heads * s.D && elements(c.out[k]) == elements(c.in[k + 2]),
             "k and v must be (B, n, kv_heads*D), their caches (B, S, kv_heads*D)");
    expect(elements(c.out[0]) == elements(c.in[0]), "o must have the shape of q");
  }
  static uint64_t workspace(const Call& c) { return uint64_t(AttentionStep(c).S) * sizeof(double); }
  void run(const Args& a) const {
    const int64_t at = position(a.in<int64_t>(5), n, S), row = kv_heads * D;
    by_type(c.in[0].dtype, [&]<class Type>(Type) {
      for (size_t k : {1, 2}) {
        if (a.out<Type>(k) != a.in<Type>(k + 2)) std::copy_n(a.in<Type>(k + 2), B * S * row, a.out<Type>(k));
        for (int64_t b = 0; b < B; ++b)
          std::copy_n(a.in<Type>(k) + b * n * row, n * row, a.out<Type>(k) + (b * S + at) * row);
      }
      double* p = a.scratch<double>();  // (S)
      for (int64_t token = 0; token < B * n; ++token)
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t cache = token / n * S * row + h / (heads / kv_heads) * D, last = at + token % n,
                        first = scores.first(last, 0);
          const Type *q = a.in<Type>(0) + (token * heads + h) * D, *k = a.out<Type>(1) + cache,
                     *v = a.out<Type>(2) + cache;
          double top = -INFINITY, sum = 0;
          for (int64_t j = first; j <= last; ++j) {
            p[j] = 0;
            for (int64_t d = 0; d < D; ++d) p[j] += double(q[d]) * double(k[j * row + d]);
            top = std::max(top, p[j] = scores.capped(p[j]));
          }
          for (int64_t j = first; j <= last; ++j) sum += p[j] = std::exp(p[j] - top);
          for (int64_t d = 0; d < D; ++d) {
            double o = 0;
            for (int64_t j = first; j <= last; ++j) o += p[j] * double(v[j * row + d]);
            a.out<Type>(0)[(token * heads + h) * D + d] = Type(o / sum);
          }
        }
    });
  }
};

}  // namespace

void add_sequence(List& list) {
  list.insert(list.end(),
              {&common::kernel<RopeStep>, &common::kernel<AttentionStep<false>>, &common::kernel<AttentionStep<true>>});
}

}  // namespace reference
