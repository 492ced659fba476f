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
    expect_types(c, 3, {1}, residual ? 3 : 2, {0});
    expect(is_stream(c.in[0], c.in[1].dtype), "x must have the type of w, or be f32 where w has 16 bits");
    expect(!residual || c.in[2].dtype == c.in[0].dtype, "residual must have the type of x");
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
      const Reals w(c, a, 1);                    // (H)
      const T* residual = a.in<T>(2);            // (N, H)
      const RealsOut y(c, a, 0), rstd(c, a, 1);  // (N, H), (N)
      for (int64_t i = 0; i < N; ++i) {
        const T* s = a.in<T>(0) + i * H;
        if (residual) {
          T* sum = a.out<T>(2) + i * H;
          for (int64_t h = 0; h < H; ++h) sum[h] = T(s[h] + residual[i * H + h]);
          s = sum;
        }
        double squares = 0;
        for (int64_t h = 0; h < H; ++h) squares += double(s[h]) * double(s[h]);
        const double r = 1.0 / std::sqrt(squares / double(H) + eps);
        rstd.set(i, r);
        for (int64_t h = 0; h < H; ++h) y.set(i * H + h, double(s[h]) * r * w[h]);
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
    expect_types(c, 6, {0, 2}, 2, {});
    expect(is_stream(c.in[1], c.in[0].dtype), "s must have the type of dy, or be f32 where dy has 16 bits");
    expect((!c.has(4) || c.in[4].dtype == c.in[1].dtype) && c.out[0].dtype == c.in[1].dtype,
           "ds and dx must have the type of s");
    expect_sums(c, c.in[0].dtype, {5}, {1});
    const int64_t all = elements(c.in[1]), H = columns(c.in[1]);
    expect(elements(c.in[0]) == all && elements(c.out[0]) == all, "dy and dx must have the shape of s");
    expect(elements(c.in[2]) == H && elements(c.out[1]) == H, "w and dw must be (H), H the last dimension of s");
    expect(is_real(c, 3) && elements(c.in[3]) == rows(c.in[1]), "rstd must have one f32 per row of s");
    expect(!c.has(4) || elements(c.in[4]) == all, "ds must have the shape of s");
    expect(!c.has(5) || elements(c.in[5]) == H, "dw_acc must be (H)");
  }
  void run(const Args& a) const {
    by_type(c.in[1].dtype, [&]<class T>(T) {
      const int64_t N = rows(c.in[1]), H = columns(c.in[1]);
      const Reals dy(c, a, 0), w(c, a, 2);         // (N, H), (H)
      const T *s = a.in<T>(1), *ds = a.in<T>(4);   // (N, H)
      const Reals rstd(c, a, 3), dw_acc(c, a, 5);  // (N), (H)
      const RealsOut dw(c, a, 1);                  // (H)
      for (int64_t i = 0; i < N; ++i) {
        double mean = 0;
        for (int64_t h = 0; h < H; ++h) {
          const int64_t e = i * H + h;
          mean += dy[e] * w[h] * double(s[e]) * rstd[i];
        }
        mean /= double(H);
        for (int64_t h = 0; h < H; ++h) {
          const int64_t e = i * H + h;
          const double dx = rstd[i] * (dy[e] * w[h] - double(s[e]) * rstd[i] * mean);
          a.out<T>(0)[e] = T(dx + (ds ? double(ds[e]) : 0.0));
        }
      }
      for (int64_t h = 0; h < H; ++h) {
        double sum = dw_acc ? dw_acc[h] : 0.0;
        for (int64_t i = 0; i < N; ++i) sum += dy[i * H + h] * double(s[i * H + h]) * rstd[i];
        dw.set(h, sum);
      }
    });
  }
};

}  // namespace

void add_norm(List& list) {
  list.insert(list.end(), {&common::kernel<RmsNorm>, &common::kernel<RmsNormGrad>});
}

}  // namespace reference
