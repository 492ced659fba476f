// SPDX-License-Identifier: Apache-2.0
// Causal attention and its gradient, one query row at a time, in O(T) scratch for a row of probabilities; the same
// within a window and with capped scores.
#include <algorithm>

#include "scores.hpp"

namespace reference {
namespace {

// Sizes shared by both directions. Query head h reads key head h / group.
struct Heads {
  int64_t B, T, heads, kv_heads, D, group;
  Scores scores;

  Heads(const Call& c, size_t q, size_t k)
      : B(c.in[q].dims[0]), T(c.in[q].dims[1]), heads(c.integer("heads")), kv_heads(c.integer("kv_heads")), scores(c) {
    expect(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, "heads must be a multiple of kv_heads");
    D = columns(c.in[q]) / heads;
    group = heads / kv_heads;
    expect(c.in[q].ndim == 3 && columns(c.in[q]) == heads * D, "q must be (B, T, heads*D)");
    for (size_t i : {k, k + 1})
      expect(c.in[i].ndim == 3 && c.in[i].dims[0] == B && c.in[i].dims[1] == T && columns(c.in[i]) == kv_heads * D,
             "k and v must be (B, T, kv_heads*D)");
  }
  int64_t query(int64_t b, int64_t t, int64_t h) const { return ((b * T + t) * heads + h) * D; }
  int64_t key(int64_t b, int64_t t, int64_t h) const { return ((b * T + t) * kv_heads + h) * D; }
  int64_t row(int64_t b, int64_t t, int64_t h) const { return (b * heads + h) * T + t; }
  // Calls f(i, first) for each position and the first one that it attends to.
  template <class F>
  void each_query(const int32_t* segments, F&& f) const {
    cpu::each_document(segments, T, [&](int64_t first, int64_t tokens) {
      for (int64_t i = first; i < first + tokens; ++i) f(i, scores.first(i, first));
    });
  }
};

template <bool window>
struct Attention {
  static constexpr const char* op = window ? ENG_OP_ATTENTION_WINDOW : ENG_OP_ATTENTION;
  Call c;
  Heads s;

  explicit Attention(const Call& call) : c(call), s(c, 0, 1) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1, 2});
    expect_types(c, 4, {0, 1, 2}, 2, {0});
    const Heads s(c, 0, 1);
    cpu::need_numbers(c, 3, c.in[0], "segments");
    expect(elements(c.out[0]) == elements(c.in[0]), "o must have the shape of q");
    expect(is_real(c.out[1]) && elements(c.out[1]) == s.B * s.heads * s.T, "lse must be (B, heads, T) f32");
  }
  static uint64_t workspace(const Call& c) { return uint64_t(c.in[0].dims[1]) * sizeof(double); }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class Type>(Type) {
      const Type *q = a.in<Type>(0), *k = a.in<Type>(1), *v = a.in<Type>(2);
      const RealsOut lse(c, a, 1);
      double* p = a.scratch<double>();  // (T)
      for (int64_t b = 0; b < s.B; ++b)
        for (int64_t h = 0; h < s.heads; ++h)
          s.each_query(cpu::segments_of(a, 3, b, s.T), [&](int64_t i, int64_t first) {
            const int64_t kv = h / s.group;
            double top = -INFINITY, sum = 0;
            for (int64_t j = first; j <= i; ++j) {
              p[j] = s.scores.capped(dot(q + s.query(b, i, h), k + s.key(b, j, kv), s.D));
              top = std::max(top, p[j]);
            }
            for (int64_t j = first; j <= i; ++j) sum += p[j] = std::exp(p[j] - top);
            for (int64_t d = 0; d < s.D; ++d) {
              double o = 0;
              for (int64_t j = first; j <= i; ++j) o += p[j] * double(v[s.key(b, j, kv) + d]);
              a.out<Type>(0)[s.query(b, i, h) + d] = Type(o / sum);
            }
            lse.set(s.row(b, i, h), top + std::log(sum));
          });
    });
  }
};

// P = exp(s - lse), s the scores, scale q k^T where there is no cap;  dP = do v^T;  dS = P * (dP - rowsum(do * o));
// dq = slope dS k,  dk = slope dS^T q,  dv = P^T do, the last two summed over the query heads of a group. slope: of s
// by q k^T, scale where there is no cap.
template <bool window>
struct AttentionGrad {
  static constexpr const char* op = window ? ENG_OP_ATTENTION_WINDOW_GRAD : ENG_OP_ATTENTION_GRAD;
  Call c;
  Heads s;

  explicit AttentionGrad(const Call& call) : c(call), s(c, 1, 2) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1, 2, 3, 4, 5});
    expect_types(c, 7, {0, 1, 2, 3, 4}, 3, {0, 1, 2});
    const Heads s(c, 1, 2);
    cpu::need_numbers(c, 6, c.in[1], "segments");
    const int64_t nq = elements(c.in[1]), nk = elements(c.in[2]);
    expect(elements(c.in[0]) == nq && elements(c.in[4]) == nq && elements(c.out[0]) == nq,
           "do, o and dq must have the shape of q");
    expect(elements(c.out[1]) == nk && elements(c.out[2]) == nk, "dk and dv must have the shape of k");
    expect(is_real(c, 5) && elements(c.in[5]) == s.B * s.heads * s.T, "lse must be (B, heads, T) f32");
  }
  static uint64_t workspace(const Call& c) {
    const Heads s(c, 1, 2);
    return uint64_t(2 * s.T * s.D + s.D) * sizeof(double);
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class Type>(Type) {
      const Type *dout = a.in<Type>(0), *q = a.in<Type>(1), *k = a.in<Type>(2), *v = a.in<Type>(3), *o = a.in<Type>(4);
      const Reals lse(c, a, 5);
      double *dk = a.scratch<double>(), *dv = dk + s.T * s.D, *dq = dv + s.T * s.D;  // (T, D), (T, D), (D)
      for (int64_t b = 0; b < s.B; ++b)
        for (int64_t kv = 0; kv < s.kv_heads; ++kv) {
          std::fill(dk, dq, 0.0);
          for (int64_t h = kv * s.group; h < (kv + 1) * s.group; ++h)
            s.each_query(cpu::segments_of(a, 6, b, s.T), [&](int64_t i, int64_t first) {
              const int64_t at = s.query(b, i, h);
              const double delta = dot(dout + at, o + at, s.D);
              std::fill(dq, dq + s.D, 0.0);
              for (int64_t j = first; j <= i; ++j) {
                const int64_t from = s.key(b, j, kv);
                const double score = s.scores.capped(dot(q + at, k + from, s.D));
                const double p = std::exp(score - lse[s.row(b, i, h)]);
                const double ds = s.scores.slope(score) * p * (dot(dout + at, v + from, s.D) - delta);
                for (int64_t d = 0; d < s.D; ++d) {
                  dq[d] += ds * double(k[from + d]);
                  dk[j * s.D + d] += ds * double(q[at + d]);
                  dv[j * s.D + d] += p * double(dout[at + d]);
                }
              }
              for (int64_t d = 0; d < s.D; ++d) a.out<Type>(0)[at + d] = Type(dq[d]);
            });
          for (int64_t j = 0; j < s.T; ++j)
            for (int64_t d = 0; d < s.D; ++d) {
              a.out<Type>(1)[s.key(b, j, kv) + d] = Type(dk[j * s.D + d]);
              a.out<Type>(2)[s.key(b, j, kv) + d] = Type(dv[j * s.D + d]);
            }
        }
    });
  }
};

}  // namespace

void add_attention(List& list) {
  list.insert(list.end(), {&common::kernel<Attention<false>>, &common::kernel<AttentionGrad<false>>,
                           &common::kernel<Attention<true>>, &common::kernel<AttentionGrad<true>>});
}

}  // namespace reference
