// SPDX-License-Identifier: Apache-2.0
// Linear and cross-entropy in one op: the logits of one token exist at a time, never those of all tokens.
#include <algorithm>

#include "reference.hpp"

namespace reference {
namespace {

constexpr int32_t ignored = -100;

struct Sizes {
  int64_t N, V, H;
  explicit Sizes(const Call& c) : N(rows(c.in[0])), V(rows(c.in[1])), H(columns(c.in[0])) {
    expect(c.in[1].ndim == 2 && columns(c.in[1]) == H, "w must be (V, H), H the last dimension of x");
    expect(c.in[2].dtype == ENG_I32 && elements(c.in[2]) == N, "labels must be (B, T) i32");
    expect(is_real(c.out[0]) && elements(c.out[0]) == 1, "loss must be (1) f32");
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
    logits[v] = dot(x, w + v * s.H, s.H);
    top = std::max(top, logits[v]);
  }
  for (int64_t v = 0; v < s.V; ++v) sum += std::exp(logits[v] - top);
  return top + std::log(sum);
}

struct CrossEntropy {
  static constexpr const char* op = ENG_OP_CROSS_ENTROPY;
  Call c;
  Sizes s;

  explicit CrossEntropy(const Call& call) : c(call), s(c) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1, 2});
    expect_types(c, 3, {0, 1}, 1, {});
    (void)Sizes(c);
  }
  static uint64_t workspace(const Call& c) { return uint64_t(Sizes(c).V) * sizeof(double); }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const T *x = a.in<T>(0), *w = a.in<T>(1);  // (N, H), (V, H)
      const int32_t* labels = a.in<int32_t>(2);  // (N)
      double* logits = a.scratch<double>();      // (V)
      s.expect_labels(labels);
      double loss = 0;
      for (int64_t i = 0; i < s.N; ++i) {
        if (labels[i] == ignored) continue;
        const double lse = logits_of(x + i * s.H, w, s, logits);
        loss += lse - logits[labels[i]];
      }
      RealsOut(c, a, 0).set(0, loss);
    });
  }
};

// dlogits = (softmax - onehot(label)) * inv_tokens * loss_scale, 0 for an ignored label;  dx = dlogits w,
// dw = dlogits^T x [+ dw_acc], unless there is no such output.
struct CrossEntropyGrad {
  static constexpr const char* op = ENG_OP_CROSS_ENTROPY_GRAD;
  Call c;
  Sizes s;

  explicit CrossEntropyGrad(const Call& call) : c(call), s(c) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1, 2, 3});
    expect_types(c, 5, {0, 1}, c.out.size() == 2 ? 2 : 3, {1});
    expect_sums(c, c.in[0].dtype, {4}, {2});
    const Sizes s(c);
    expect(is_real(c, 3) && elements(c.in[3]) >= 2, "scalars must be (32) f32");
    expect(elements(c.out[1]) == s.N * s.H, "dx must have the shape of x");
    expect(c.out.size() == 2 || elements(c.out[2]) == s.V * s.H, "dw must have the shape of w");
    expect(!c.has(4) || elements(c.in[4]) == s.V * s.H, "dw_acc must have the shape of w");
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
      const double scale = scalars[ENG_S_INV_TOKENS] * scalars[ENG_S_LOSS_SCALE];
      double *logits = a.scratch<double>(), *lse = logits + s.V, *row = lse + s.N;  // (V), (N), (H)
      s.expect_labels(labels);
      double loss = 0;
      for (int64_t i = 0; i < s.N; ++i) {
        std::fill(row, row + s.H, 0.0);
        if (labels[i] != ignored) {
          lse[i] = logits_of(x + i * s.H, w, s, logits);
          loss += lse[i] - logits[labels[i]];
          for (int64_t v = 0; v < s.V; ++v) {
            const double d = scale * (std::exp(logits[v] - lse[i]) - (v == labels[i] ? 1.0 : 0.0));
            for (int64_t h = 0; h < s.H; ++h) row[h] += d * double(w[v * s.H + h]);
          }
        }
        for (int64_t h = 0; h < s.H; ++h) a.out<T>(1)[i * s.H + h] = T(row[h]);
      }
      // Loops over rows of w, so that the sums of one row are enough scratch; each logit is computed a second time.
      for (int64_t v = 0; v < s.V && c.out.size() == 3; ++v) {
        for (int64_t h = 0; h < s.H; ++h) row[h] = dw_acc ? dw_acc[v * s.H + h] : 0.0;
        for (int64_t i = 0; i < s.N; ++i) {
          if (labels[i] == ignored) continue;
          const double logit = dot(x + i * s.H, w + v * s.H, s.H);
          const double d = scale * (std::exp(logit - lse[i]) - (v == labels[i] ? 1.0 : 0.0));
          for (int64_t h = 0; h < s.H; ++h) row[h] += d * double(x[i * s.H + h]);
        }
        for (int64_t h = 0; h < s.H; ++h) RealsOut(c, a, 2).set(v * s.H + h, row[h]);
      }
      RealsOut(c, a, 0).set(0, loss);
    });
  }
};

}  // namespace

void add_cross_entropy(List& list) {
  list.insert(list.end(), {&cpu::kernel<CrossEntropy>, &cpu::kernel<CrossEntropyGrad>});
}

}  // namespace reference
