// SPDX-License-Identifier: Apache-2.0
// Linear and cross-entropy, or linear and the log-probability of the label, in one op: the logits of one token exist at
// a time, never those of all tokens.
#include <algorithm>

#include "engine/ops_softcap.h"
#include "reference.hpp"

namespace reference {
namespace {

constexpr int32_t ignored = -100;

struct Sizes {
  int64_t N, V, H, R;  // R: rows of w and dw, of which those from V on only pad them
  double cap;          // of the logits; 0: none
  explicit Sizes(const Call& c)
      : N(rows(c.in[0])),
        V(c.integer_or("vocabulary", rows(c.in[1]))),
        H(columns(c.in[0])),
        R(rows(c.in[1])),
        cap(c.real_or("softcap", 0)) {
    expect(cap >= 0 && std::isfinite(cap), "softcap must be above 0, and finite");
    expect(c.in[1].ndim == 2 && columns(c.in[1]) == H, "w must be (V, H), H the last dimension of x");
    expect(V >= 0 && V <= R, "vocabulary must be at most the number of rows of w");
    expect(c.in[2].dtype == ENG_I32 && elements(c.in[2]) == N, "labels must be (B, T) i32");
  }
  double capped(double logit) const { return cap > 0 ? cap * std::tanh(logit / cap) : logit; }
  // The derivative of a capped logit by the product.
  double slope(double logit) const { return cap > 0 ? 1 - logit / cap * (logit / cap) : 1; }
  // `k`: the input with loss weights; `out`: the output z.
  void check_rest(const Call& c, size_t k, size_t out) const {
    expect(is_real(c.out[0]) && elements(c.out[0]) == 1, "loss must be (1) f32");
    expect(!c.has(k) || (is_real(c, k) && elements(c.in[k]) == N), "loss weights must be (B, T) f32");
    expect(!c.has_out(out) || (is_real(c.out[out]) && elements(c.out[out]) == 1), "z must be (1) f32");
  }
  void expect_labels(const int32_t* labels) const {
    for (int64_t i = 0; i < N; ++i)
      if (labels[i] != ignored && (labels[i] < 0 || labels[i] >= V))
        throw Error{ENG_OUT_OF_RANGE, "label " + std::to_string(labels[i]) + " at position " + std::to_string(i) +
                                          " is neither -100 nor below " + std::to_string(V)};
  }
};

// Fills the logits of one token and returns log(sum(exp(logits))).
template <class T>
double logits_of(const T* x, const T* w, const Sizes& s, double* logits) {
  double top = -INFINITY, sum = 0;
  for (int64_t v = 0; v < s.V; ++v) {
    logits[v] = s.capped(dot(x, w + v * s.H, s.H));
    top = std::max(top, logits[v]);
  }
  for (int64_t v = 0; v < s.V; ++v) sum += std::exp(logits[v] - top);
  return top + std::log(sum);
}

template <bool capped>
struct CrossEntropy {
  static constexpr const char* op = capped ? ENG_OP_CAPPED_CROSS_ENTROPY : ENG_OP_CROSS_ENTROPY;
  Call c;
  Sizes s;

  explicit CrossEntropy(const Call& call) : c(call), s(c) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1, 2});
    expect(!capped || c.real("softcap") > 0, "softcap must be above 0, and finite");
    expect_types(c, 4, {0, 1}, c.real_or("z_loss", 0) > 0 ? 2 : 1, {});
    Sizes(c).check_rest(c, 3, 1);
  }
  static uint64_t workspace(const Call& c) { return uint64_t(Sizes(c).V) * sizeof(double); }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const T *x = a.in<T>(0), *w = a.in<T>(1);  // (N, H), (V, H)
      const int32_t* labels = a.in<int32_t>(2);  // (N)
      double* logits = a.scratch<double>();      // (V)
      const Reals weights(c, a, 3);              // (N)
      s.expect_labels(labels);
      double loss = 0, z = 0;
      for (int64_t i = 0; i < s.N; ++i) {
        if (labels[i] == ignored) continue;
        const double lse = logits_of(x + i * s.H, w, s, logits), l = weights ? weights[i] : 1.0;
        loss += l * (lse - logits[labels[i]]);
        z += l * lse * lse;
      }
      RealsOut(c, a, 0).set(0, loss);
      if (c.has_out(1)) RealsOut(c, a, 1).set(0, z);
    });
  }
};

// dlogits as in ops.h, 0 for an ignored label;  dx = dlogits w, dw = dlogits^T x [+ dw_acc], unless there is no such
// output.
template <bool capped>
struct CrossEntropyGrad {
  static constexpr const char* op = capped ? ENG_OP_CAPPED_CROSS_ENTROPY_GRAD : ENG_OP_CROSS_ENTROPY_GRAD;
  Call c;
  Sizes s;

  explicit CrossEntropyGrad(const Call& call) : c(call), s(c) {}
  static bool has_dw(const Call& c) { return c.out.size() != 2 && c.integer_or("no_dw", 0) == 0; }
  static void check(const Call& c) {
    expect_inputs(c, {0, 1, 2, 3});
    expect(!capped || c.real("softcap") > 0, "softcap must be above 0, and finite");
    const size_t z = has_dw(c) ? 3 : 2;
    expect_types(c, 6, {0, 1}, c.real_or("z_loss", 0) > 0 ? z + 1 : z, {1});
    if (has_dw(c)) expect_sums(c, c.in[0].dtype, {4}, {2});
    const Sizes s(c);
    s.check_rest(c, 5, z);
    expect(is_real(c, 3) && elements(c.in[3]) >= 2, "scalars must be (32) f32");
    expect(elements(c.out[1]) == s.N * s.H, "dx must have the shape of x");
    expect(!has_dw(c) || elements(c.out[2]) == s.R * s.H, "dw must have the shape of w");
    expect(!c.has(4) || elements(c.in[4]) == s.R * s.H, "dw_acc must have the shape of w");
  }
  static uint64_t workspace(const Call& c) {
    const Sizes s(c);
    return uint64_t(s.V + s.N + s.H) * sizeof(double);
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const T *x = a.in<T>(0), *w = a.in<T>(1);       // (N, H), (V, H)
      const int32_t* labels = a.in<int32_t>(2);       // (N)
      const Reals scalars(c, a, 3), dw_acc(c, a, 4);  // (32), (V, H)
      const Reals weights(c, a, 5);                   // (N)
      const double all = scalars[ENG_S_INV_TOKENS] * scalars[ENG_S_LOSS_SCALE], z_loss = c.real_or("z_loss", 0),
                   scale = all * c.real_or("weight", 1);
      const bool with_dw = has_dw(c);
      const auto dlogit = [&](int64_t i, int64_t v, double logit, double lse) {
        const double softmax = std::exp(logit - lse), l = weights ? weights[i] : 1.0;
        const double d = l * (scale * (softmax - (v == labels[i] ? 1.0 : 0.0)) + all * z_loss * 2 * lse * softmax);
        return capped ? d * s.slope(logit) : d;
      };
      double *logits = a.scratch<double>(), *lse = logits + s.V, *row = lse + s.N;  // (V), (N), (H)
      s.expect_labels(labels);
      double loss = 0, z = 0;
      for (int64_t i = 0; i < s.N; ++i) {
        std::fill(row, row + s.H, 0.0);
        if (labels[i] != ignored) {
          lse[i] = logits_of(x + i * s.H, w, s, logits);
          const double l = weights ? weights[i] : 1.0;
          loss += l * (lse[i] - logits[labels[i]]);
          z += l * lse[i] * lse[i];
          for (int64_t v = 0; v < s.V; ++v) {
            const double d = dlogit(i, v, logits[v], lse[i]);
            for (int64_t h = 0; h < s.H; ++h) row[h] += d * double(w[v * s.H + h]);
          }
        }
        for (int64_t h = 0; h < s.H; ++h) a.out<T>(1)[i * s.H + h] = T(row[h]);
      }
      // Loops over rows of w, so that the sums of one row are enough scratch; each logit is computed a second time.
      for (int64_t v = 0; v < s.R && with_dw; ++v) {
        for (int64_t h = 0; h < s.H; ++h) row[h] = dw_acc ? dw_acc[v * s.H + h] : 0.0;
        for (int64_t i = 0; i < s.N && v < s.V; ++i) {
          if (labels[i] == ignored) continue;
          const double logit = s.capped(dot(x + i * s.H, w + v * s.H, s.H));
          const double d = dlogit(i, v, logit, lse[i]);
          for (int64_t h = 0; h < s.H; ++h) row[h] += d * double(x[i * s.H + h]);
        }
        for (int64_t h = 0; h < s.H; ++h) RealsOut(c, a, 2).set(v * s.H + h, row[h]);
      }
      RealsOut(c, a, 0).set(0, loss);
      if (z_loss > 0) RealsOut(c, a, with_dw ? 3 : 2).set(0, z);
    });
  }
};

// y = cap tanh(x / cap).
struct Softcap {
  static constexpr const char* op = ENG_OP_SOFTCAP;
  Call c;
  double cap;

  explicit Softcap(const Call& call) : c(call), cap(c.real("softcap")) {}
  static void check(const Call& c) {
    expect_inputs(c, {0});
    expect(c.in.size() == 1 && c.out.size() == 1 && is_real(c.in[0]) && c.out[0].dtype == c.in[0].dtype,
           "takes x in f32 or f64, and gives y of its type");
    expect(elements(c.out[0]) == elements(c.in[0]), "y must have the shape of x");
    expect(c.real("softcap") > 0 && std::isfinite(c.real("softcap")), "softcap must be above 0, and finite");
  }
  void run(const Args& a) const {
    const Reals x(c, a, 0);
    const RealsOut y(c, a, 0);
    for (int64_t i = 0; i < elements(c.in[0]); ++i) y.set(i, cap * std::tanh(x[i] / cap));
  }
};

// log softmax(x w^T)[label], 0 for an ignored label.
struct LabelLogprob {
  static constexpr const char* op = ENG_OP_LABEL_LOGPROB;
  Call c;
  Sizes s;

  explicit LabelLogprob(const Call& call) : c(call), s(c) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1, 2});
    expect_types(c, 3, {0, 1}, 1, {});
    expect(is_real(c.out[0]) && elements(c.out[0]) == Sizes(c).N, "log-probabilities must be (B, T) f32");
  }
  static uint64_t workspace(const Call& c) { return uint64_t(Sizes(c).V) * sizeof(double); }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const int32_t* labels = a.in<int32_t>(2);
      double* logits = a.scratch<double>();
      RealsOut out(c, a, 0);
      s.expect_labels(labels);
      for (int64_t i = 0; i < s.N; ++i) {
        if (labels[i] == ignored) {
          out.set(i, 0.0);
          continue;
        }
        const double lse = logits_of(a.in<T>(0) + i * s.H, a.in<T>(1), s, logits);
        out.set(i, logits[labels[i]] - lse);
      }
    });
  }
};

// dlogits = dy (onehot - softmax), 0 for an ignored label;  dx = dlogits w, dw = dlogits^T x [+ dw_acc].
struct LabelLogprobGrad {
  static constexpr const char* op = ENG_OP_LABEL_LOGPROB_GRAD;
  Call c;
  Sizes s;

  explicit LabelLogprobGrad(const Call& call) : c(call), s(c) {}
  static bool has_dw(const Call& c) { return c.integer_or("no_dw", 0) == 0; }
  static void check(const Call& c) {
    expect_inputs(c, {0, 1, 2, 3});
    expect_types(c, 5, {0, 1}, has_dw(c) ? 2 : 1, {0});
    if (has_dw(c)) expect_sums(c, c.in[0].dtype, {4}, {1});
    const Sizes s(c);
    expect(is_real(c, 3) && elements(c.in[3]) == s.N, "dy must be (B, T) f32");
    expect(elements(c.out[0]) == s.N * s.H, "dx must have the shape of x");
    expect(!has_dw(c) || elements(c.out[1]) == s.R * s.H, "dw must have the shape of w");
    expect(!c.has(4) || elements(c.in[4]) == s.R * s.H, "dw_acc must have the shape of w");
  }
  static uint64_t workspace(const Call& c) {
    const Sizes s(c);
    return uint64_t(s.V + s.N + s.H) * sizeof(double);
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const T *x = a.in<T>(0), *w = a.in<T>(1);
      const int32_t* labels = a.in<int32_t>(2);
      const Reals dy(c, a, 3), dw_acc(c, a, 4);
      double *logits = a.scratch<double>(), *lse = logits + s.V, *row = lse + s.N;  // (V), (N), (H)
      s.expect_labels(labels);
      const auto dlogit = [&](int64_t i, int64_t v, double logit) {
        return dy[i] * ((v == labels[i] ? 1.0 : 0.0) - std::exp(logit - lse[i]));
      };
      for (int64_t i = 0; i < s.N; ++i) {
        std::fill(row, row + s.H, 0.0);
        if (labels[i] != ignored) {
          lse[i] = logits_of(x + i * s.H, w, s, logits);
          for (int64_t v = 0; v < s.V; ++v) {
            const double d = dlogit(i, v, logits[v]);
            for (int64_t h = 0; h < s.H; ++h) row[h] += d * double(w[v * s.H + h]);
          }
        }
        for (int64_t h = 0; h < s.H; ++h) a.out<T>(0)[i * s.H + h] = T(row[h]);
      }
      for (int64_t v = 0; v < s.R && has_dw(c); ++v) {
        for (int64_t h = 0; h < s.H; ++h) row[h] = dw_acc ? dw_acc[v * s.H + h] : 0.0;
        for (int64_t i = 0; i < s.N && v < s.V; ++i) {
          if (labels[i] == ignored) continue;
          const double d = dlogit(i, v, dot(x + i * s.H, w + v * s.H, s.H));
          for (int64_t h = 0; h < s.H; ++h) row[h] += d * double(x[i * s.H + h]);
        }
        for (int64_t h = 0; h < s.H; ++h) RealsOut(c, a, 1).set(v * s.H + h, row[h]);
      }
    });
  }
};

}  // namespace

void add_cross_entropy(List& list) {
  list.insert(list.end(), {&common::kernel<CrossEntropy<false>>, &common::kernel<CrossEntropyGrad<false>>,
                           &common::kernel<CrossEntropy<true>>, &common::kernel<CrossEntropyGrad<true>>,
                           &common::kernel<Softcap>, &common::kernel<LabelLogprob>, &common::kernel<LabelLogprobGrad>});
}

}  // namespace reference
