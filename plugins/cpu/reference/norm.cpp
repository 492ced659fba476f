// SPDX-License-Identifier: Apache-2.0
// rms_norm and its gradient.
#include "reference.hpp"

namespace reference {
namespace {

struct RmsNorm {
  static constexpr const char* op = ENG_OP_RMS_NORM;
  Call c;
  double eps;

  explicit RmsNorm(const Call& call) : c(call), eps(c.real("eps")) {}
  static void check(const Call& c) {
    const bool residual = c.has(2);
    expect_inputs(c, {0, 1});
    expect_types(c, 3, {0, 1, 2}, residual ? 3 : 2, {0});
    expect(elements(c.in[1]) == columns(c.in[0]), "w must be (H), H the last dimension of x");
    expect(elements(c.out[0]) == elements(c.in[0]), "y must have the shape of x");
    expect(is_real(c.out[1]) && elements(c.out[1]) == rows(c.in[0]), "rstd must have one f32 per row of x");
    expect(!residual || elements(c.in[2]) == elements(c.in[0]), "residual must have the shape of x");
    expect(!residual || (c.out[2].dtype == c.in[0].dtype && elements(c.out[2]) == elements(c.in[0])),
           "s must have the type and shape of x");
    c.real("eps");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const int64_t N = rows(c.in[0]), H = columns(c.in[0]);
      const T *w = a.in<T>(1), *residual = a.in<T>(2);  // (H), (N, H)
      const RealsOut rstd(c, a, 1);                     // (N)
      for (int64_t i = 0; i < N; ++i) {
        const T* s = a.in<T>(0) + i * H;
        if (residual) {
          T* sum = a.out<T>(2) + i * H;
          for (int64_t h = 0; h < H; ++h) sum[h] = s[h] + residual[i * H + h];
          s = sum;
        }
        double squares = 0;
        for (int64_t h = 0; h < H; ++h) squares += double(s[h]) * double(s[h]);
        const double r = 1.0 / std::sqrt(squares / double(H) + eps);
        rstd.set(i, r);
        for (int64_t h = 0; h < H; ++h) a.out<T>(0)[i * H + h] = T(double(s[h]) * r * double(w[h]));
      }
    });
  }
};

// With n = s * rstd and g = dy * w:  dx = rstd * (g - n * mean(g * n)) [+ ds],  dw = sum over rows of dy * n [+
// dw_acc].
struct RmsNormGrad {
  static constexpr const char* op = ENG_OP_RMS_NORM_GRAD;
  Call c;

  explicit RmsNormGrad(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1, 2, 3});
    expect_types(c, 6, {0, 1, 2, 4, 5}, 2, {0, 1});
    const int64_t all = elements(c.in[1]), H = columns(c.in[1]);
    expect(elements(c.in[0]) == all && elements(c.out[0]) == all, "dy and dx must have the shape of s");
    expect(elements(c.in[2]) == H && elements(c.out[1]) == H, "w and dw must be (H), H the last dimension of s");
    expect(is_real(c, 3) && elements(c.in[3]) == rows(c.in[1]), "rstd must have one f32 per row of s");
    expect(!c.has(4) || elements(c.in[4]) == all, "ds must have the shape of s");
    expect(!c.has(5) || elements(c.in[5]) == H, "dw_acc must be (H)");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const int64_t N = rows(c.in[1]), H = columns(c.in[1]);
      const T *dy = a.in<T>(0), *s = a.in<T>(1), *w = a.in<T>(2);  // (N, H), (N, H), (H)
      const T *ds = a.in<T>(4), *dw_acc = a.in<T>(5);              // (N, H), (H)
      const Reals rstd(c, a, 3);                                   // (N)
      for (int64_t i = 0; i < N; ++i) {
        double mean = 0;
        for (int64_t h = 0; h < H; ++h) {
          const int64_t e = i * H + h;
          mean += double(dy[e]) * double(w[h]) * double(s[e]) * rstd[i];
        }
        mean /= double(H);
        for (int64_t h = 0; h < H; ++h) {
          const int64_t e = i * H + h;
          const double dx = rstd[i] * (double(dy[e]) * double(w[h]) - double(s[e]) * rstd[i] * mean);
          a.out<T>(0)[e] = T(dx + (ds ? double(ds[e]) : 0.0));
        }
      }
      for (int64_t h = 0; h < H; ++h) {
        double sum = dw_acc ? double(dw_acc[h]) : 0.0;
        for (int64_t i = 0; i < N; ++i) sum += double(dy[i * H + h]) * double(s[i * H + h]) * rstd[i];
        a.out<T>(1)[h] = T(sum);
      }
    });
  }
};

}  // namespace

void add_norm(List& list) {
  list.insert(list.end(), {&cpu::kernel<RmsNorm>, &cpu::kernel<RmsNormGrad>});
}

}  // namespace reference
