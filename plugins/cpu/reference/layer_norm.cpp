// SPDX-License-Identifier: Apache-2.0
// layer_norm and its gradient.
#include "reference.hpp"

namespace reference {
namespace {

struct LayerNorm {
  static constexpr const char* op = ENG_OP_LAYER_NORM;
  Call c;
  double eps;

  explicit LayerNorm(const Call& call) : c(call), eps(c.real("eps")) {}
  static void check(const Call& c) {
    const bool residual = c.has(3);
    expect_inputs(c, {0});
    expect_types(c, 4, {0, 1, 2, 3}, residual ? 3 : 2, {0});
    for (size_t k : {1, 2})
      expect(!c.has(k) || elements(c.in[k]) == columns(c.in[0]), "w and bias must be (H), H the last dimension of x");
    expect(c.has(1) || !c.has(2), "a bias needs a weight");
    expect(elements(c.out[0]) == elements(c.in[0]), "y must have the shape of x");
    expect(is_real(c.out[1]) && elements(c.out[1]) == 2 * rows(c.in[0]), "stats must have two f32 per row of x");
    expect(!residual || elements(c.in[3]) == elements(c.in[0]), "residual must have the shape of x");
    expect(!residual || (c.out[2].dtype == c.in[0].dtype && elements(c.out[2]) == elements(c.in[0])),
           "s must have the type and shape of x");
    c.real("eps");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const int64_t N = rows(c.in[0]), H = columns(c.in[0]);
      const T *w = a.in<T>(1), *bias = a.in<T>(2), *residual = a.in<T>(3);  // (H), (H), (N, H)
      const RealsOut stats(c, a, 1);                                        // (N, 2)
      for (int64_t i = 0; i < N; ++i) {
        const T* s = a.in<T>(0) + i * H;
        if (residual) {
          T* sum = a.out<T>(2) + i * H;
          for (int64_t h = 0; h < H; ++h) sum[h] = T(s[h] + residual[i * H + h]);
          s = sum;
        }
        double mean = 0, variance = 0;
        for (int64_t h = 0; h < H; ++h) mean += double(s[h]) / double(H);
        for (int64_t h = 0; h < H; ++h) variance += (double(s[h]) - mean) * (double(s[h]) - mean) / double(H);
        const double rstd = 1.0 / std::sqrt(variance + eps);
        stats.set(2 * i, mean), stats.set(2 * i + 1, rstd);
        for (int64_t h = 0; h < H; ++h) {
          const double n = (double(s[h]) - mean) * rstd;
          a.out<T>(0)[i * H + h] = T((w ? n * double(w[h]) : n) + (bias ? double(bias[h]) : 0.0));
        }
      }
    });
  }
};

// With n = (s - mean) * rstd and g = dy * w:  dx = rstd * (g - mean(g) - n * mean(g * n)) [+ ds],  dw = sum over rows
// of dy * n [+ dw_acc],  dbias = sum over rows of dy [+ dbias_acc].
struct LayerNormGrad {
  static constexpr const char* op = ENG_OP_LAYER_NORM_GRAD;
  Call c;
  bool bias;

  explicit LayerNormGrad(const Call& call) : c(call), bias(c.integer("bias") != 0) {}
  static void check(const Call& c) {
    const bool bias = c.integer("bias") != 0;
    expect_inputs(c, {0, 1, 3});
    expect_types(c, 7, {0, 1, 2, 4}, 1 + c.has(2) + bias, {0});
    expect_sums(c, c.in[0].dtype, {5, 6}, {1, 2});
    const int64_t all = elements(c.in[1]), H = columns(c.in[1]);
    expect(elements(c.in[0]) == all && elements(c.out[0]) == all, "dy and dx must have the shape of s");
    expect(c.has(2) || !bias, "a bias needs a weight");
    expect(!c.has(2) || elements(c.in[2]) == H, "w must be (H), H the last dimension of s");
    for (size_t k = 1; k < c.out.size(); ++k) expect(elements(c.out[k]) == H, "dw and dbias must be (H)");
    expect(is_real(c, 3) && elements(c.in[3]) == 2 * rows(c.in[1]), "stats must have two f32 per row of s");
    expect(!c.has(4) || elements(c.in[4]) == all, "ds must have the shape of s");
    for (size_t k : {5, 6}) expect(!c.has(k) || elements(c.in[k]) == H, "dw_acc and dbias_acc must be (H)");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const int64_t N = rows(c.in[1]), H = columns(c.in[1]);
      const T *dy = a.in<T>(0), *s = a.in<T>(1), *w = a.in<T>(2), *ds = a.in<T>(4);  // (N, H), (N, H), (H), (N, H)
      const Reals stats(c, a, 3), dw_acc(c, a, 5), dbias_acc(c, a, 6);               // (N, 2), (H), (H)
      const auto weight = [&](int64_t h) { return w ? double(w[h]) : 1.0; };
      const auto normal = [&](int64_t i, int64_t h) {
        return (double(s[i * H + h]) - stats[2 * i]) * stats[2 * i + 1];
      };
      if (w)
        for (int64_t h = 0; h < H; ++h) {
          double dw = dw_acc ? dw_acc[h] : 0.0, db = dbias_acc ? dbias_acc[h] : 0.0;
          for (int64_t i = 0; i < N; ++i) dw += double(dy[i * H + h]) * normal(i, h), db += double(dy[i * H + h]);
          RealsOut(c, a, 1).set(h, dw);
          if (bias) RealsOut(c, a, 2).set(h, db);
        }
      for (int64_t i = 0; i < N; ++i) {
        double mean = 0, along = 0;
        for (int64_t h = 0; h < H; ++h) {
          const double g = double(dy[i * H + h]) * weight(h);
          mean += g / double(H), along += g * normal(i, h) / double(H);
        }
        for (int64_t h = 0; h < H; ++h) {
          const double dx = stats[2 * i + 1] * (double(dy[i * H + h]) * weight(h) - mean - normal(i, h) * along);
          a.out<T>(0)[i * H + h] = T(dx + (ds ? double(ds[i * H + h]) : 0.0));
        }
      }
    });
  }
};

}  // namespace

void add_layer_norm(List& list) {
  list.insert(list.end(), {&common::kernel<LayerNorm>, &common::kernel<LayerNormGrad>});
}

}  // namespace reference
