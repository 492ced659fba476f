// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of a vocabulary whose rows ranks divide: the scores of a rank's rows, and their gradients.
#include "../../common/vocabulary.hpp"

#include "reference.hpp"

namespace reference {
namespace {

constexpr int32_t no_label = common::VocabularyLoss::no_label;

// N tokens; V rows of w, the first of them `first` of `whole`.
struct Part {
  int64_t N, V, H, first, whole;
  double cap;  // of the logits; 0: none
  explicit Part(const Call& c)
      : N(rows(c.in[0])),
        V(rows(c.in[1])),
        H(columns(c.in[0])),
        first(c.integer("first")),
        whole(c.integer("whole")),
        cap(c.real_or("softcap", 0)) {
    expect(c.in[1].ndim == 2 && columns(c.in[1]) == H, "w must be (R, H), H the last dimension of x");
    expect(V > 0 && first >= 0 && first <= whole - V, "the rows of w must lie in 0 .. whole - 1");
    expect(c.in[2].dtype == ENG_I32 && elements(c.in[2]) == N, "labels must be (B, T) i32");
  }
  template <class T>
  double logit(const T* x, const T* w, int64_t i, int64_t v) const {
    const double z = dot(x + i * H, w + v * H, H);
    return cap > 0 ? cap * std::tanh(z / cap) : z;
  }
  int64_t row_of(int32_t label) const { return common::row_of_label(label, first, V, whole); }
};

struct VocabularyScores {
  static constexpr const char* op = ENG_OP_VOCABULARY_SCORES;
  Call c;
  Part s;

  explicit VocabularyScores(const Call& call) : c(call), s(c) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1, 2});
    expect_types(c, 3, {0, 1}, 1, {});
    expect(is_real(c.out[0]) && elements(c.out[0]) == 2 * Part(c).N, "scores must be (2 B T) f32");
  }
  static uint64_t workspace(const Call& c) { return uint64_t(Part(c).V) * sizeof(double); }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const T *x = a.in<T>(0), *w = a.in<T>(1);
      const int32_t* labels = a.in<int32_t>(2);
      double* logits = a.scratch<double>();
      const RealsOut out(c, a, 0);
      for (int64_t i = 0; i < s.N; ++i) {
        out.set(i, 0), out.set(s.N + i, 0);
        if (labels[i] == no_label) continue;
        const int64_t own = s.row_of(labels[i]);
        double top = -INFINITY, sum = 0;
        for (int64_t v = 0; v < s.V; ++v) {
          logits[v] = s.logit(x, w, i, v);
          top = std::max(top, logits[v]);
        }
        for (int64_t v = 0; v < s.V; ++v) sum += std::exp(logits[v] - top);
        out.set(i, top + std::log(sum));
        if (own >= 0) out.set(s.N + i, logits[own]);
      }
    });
  }
};

struct VocabularyGrad {
  static constexpr const char* op = ENG_OP_VOCABULARY_GRAD;
  Call c;
  Part s;

  explicit VocabularyGrad(const Call& call) : c(call), s(c) {}
  static bool has_dw(const Call& c) { return c.integer_or("no_dw", 0) == 0; }
  static void check(const Call& c) {
    expect_inputs(c, {0, 1, 2, 3, 4});
    expect_types(c, 7, {0, 1}, has_dw(c) ? 2 : 1, {0});
    if (has_dw(c)) expect_sums(c, c.in[0].dtype, {5}, {1});
    const Part s(c);
    expect(is_real(c, 3) && elements(c.in[3]) == s.N, "lse must be (B, T) f32");
    expect(is_real(c, 4) && elements(c.in[4]) >= 2, "scalars must be (32) f32");
    expect(!c.has(6) || (is_real(c, 6) && elements(c.in[6]) == s.N), "loss weights must be (B, T) f32");
    expect(elements(c.out[0]) == s.N * s.H, "dx must have the shape of x");
    expect(!has_dw(c) || elements(c.out[1]) == s.V * s.H, "dw must have the shape of w");
    expect(!c.has(5) || elements(c.in[5]) == s.V * s.H, "dw_acc must have the shape of w");
  }
  static uint64_t workspace(const Call& c) { return uint64_t(Part(c).H) * sizeof(double); }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const T *x = a.in<T>(0), *w = a.in<T>(1);
      const int32_t* labels = a.in<int32_t>(2);
      const Reals lse(c, a, 3), scalars(c, a, 4), dw_acc(c, a, 5), weights(c, a, 6);
      const double all = scalars[ENG_S_INV_TOKENS] * scalars[ENG_S_LOSS_SCALE], scale = all * c.real_or("weight", 1),
                   z_loss = all * c.real_or("z_loss", 0);
      const auto dlogit = [&](int64_t i, int64_t v) {
        if (labels[i] == no_label) return 0.0;
        const double logit = s.logit(x, w, i, v), softmax = std::exp(logit - lse[i]), l = weights ? weights[i] : 1.0,
                     slope = s.cap > 0 ? 1 - logit / s.cap * (logit / s.cap) : 1;
        return slope * l * (scale * (softmax - (s.row_of(labels[i]) == v)) + z_loss * 2 * lse[i] * softmax);
      };
      double* row = a.scratch<double>();  // (H)
      for (int64_t i = 0; i < s.N; ++i) {
        std::fill(row, row + s.H, 0.0);
        for (int64_t v = 0; v < s.V; ++v) {
          const double d = dlogit(i, v);
          for (int64_t h = 0; h < s.H; ++h) row[h] += d * double(w[v * s.H + h]);
        }
        for (int64_t h = 0; h < s.H; ++h) a.out<T>(0)[i * s.H + h] = T(row[h]);
      }
      for (int64_t v = 0; v < s.V && has_dw(c); ++v) {
        for (int64_t h = 0; h < s.H; ++h) row[h] = dw_acc ? dw_acc[v * s.H + h] : 0.0;
        for (int64_t i = 0; i < s.N; ++i) {
          const double d = dlogit(i, v);
          for (int64_t h = 0; h < s.H; ++h) row[h] += d * double(x[i * s.H + h]);
        }
        for (int64_t h = 0; h < s.H; ++h) RealsOut(c, a, 1).set(v * s.H + h, row[h]);
      }
    });
  }
};

}  // namespace

void add_vocabulary(List& list) {
  list.insert(list.end(), {&common::kernel<VocabularyScores>, &common::kernel<common::VocabularyLoss>,
                           &common::kernel<VocabularyGrad>});
}

}  // namespace reference
