// SPDX-License-Identifier: Apache-2.0
// linear, matmul, both with relu, sum_rows, add.
#include <algorithm>

#include "activation.hpp"

namespace reference {
namespace {

// sum[i] += a b_i for up to four vectors b_i of K elements, which begin `next` elements apart. Each sum is made in the
// order of k, so its bits are those of one at a time; four do not wait for each other.
template <class T>
void add_products(const T* a, int64_t a_step, const T* b, int64_t b_step, int64_t next, int64_t K, int64_t n,
                  double* sum) {
  if (n == 4) {
    double s[4] = {sum[0], sum[1], sum[2], sum[3]};
    for (int64_t k = 0; k < K; ++k, a += a_step, b += b_step) {
      const double x = double(*a);
      for (int64_t i = 0; i < 4; ++i) s[i] += x * double(b[i * next]);
    }
    std::copy(s, s + 4, sum);
  } else
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = 0; k < K; ++k) sum[i] += double(a[k * a_step]) * double(b[i * next + k * b_step]);
}

struct Linear {
  static constexpr const char* op = ENG_OP_LINEAR;
  Call c;

  explicit Linear(const Call& call) : c(call) {}
  static void check(const Call& c) { check(c, 1); }
  static void check(const Call& c, size_t outputs) {
    expect_inputs(c, {0, 1});
    expect_types(c, 3, {0, 1, 2}, outputs, {0});
    expect(c.in[1].ndim == 2 && columns(c.in[1]) == columns(c.in[0]), "w must be (N, K), K the last dimension of x");
    expect(!c.has(2) || elements(c.in[2]) == c.in[1].dims[0], "bias must be (N)");
    expect(rows(c.out[0]) == rows(c.in[0]) && columns(c.out[0]) == c.in[1].dims[0], "y must be (..., N)");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const int64_t M = rows(c.in[0]), K = columns(c.in[0]), N = columns(c.out[0]);
      const T *x = a.in<T>(0), *w = a.in<T>(1), *bias = a.in<T>(2);  // (M, K), (N, K), (N)
      T* y = a.out<T>(0);                                            // (M, N)
      for (int64_t m = 0; m < M; ++m)
        for (int64_t n = 0; n < N; n += 4) {
          const int64_t some = std::min<int64_t>(4, N - n);
          double sum[4] = {};
          for (int64_t i = 0; bias && i < some; ++i) sum[i] = double(bias[n + i]);
          add_products(x + m * K, 1, w + n * K, 1, K, K, some, sum);
          for (int64_t i = 0; i < some; ++i) y[m * N + n + i] = T(sum[i]);
        }
    });
  }
};

void expect_mask(const eng_desc& mask, const eng_desc& y) {
  expect(mask.dtype == ENG_U8 && rows(mask) == rows(y) && columns(mask) == eng_relu_mask_bytes(columns(y)),
         "the mask must be (..., 16 ceil(N/128)) u8, N the last dimension of what is masked");
}

struct LinearRelu : Linear {
  static constexpr const char* op = ENG_OP_LINEAR_RELU;
  using Linear::Linear;
  static void check(const Call& c) { Linear::check(c, 2), expect_mask(c.out[1], c.out[0]); }
  void run(const Args& a) const {
    Linear::run(a);
    std::fill_n(a.out<uint8_t>(1), elements(c.out[1]), uint8_t{0});
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const int64_t M = rows(c.out[0]), N = columns(c.out[0]);
      for (int64_t m = 0; m < M; ++m)
        for (int64_t n = 0; n < N; ++n) {
          T& y = a.out<T>(0)[m * N + n];
          if (double(y) > 0) a.out<uint8_t>(1)[m * columns(c.out[1]) + n / 8] |= uint8_t(1 << n % 8);
          y = T(activation(ENG_ACT_RELU, double(y)).value);
        }
    });
  }
};

struct Matmul {
  static constexpr const char* op = ENG_OP_MATMUL;
  Call c;
  bool ta, tb;
  int64_t M, N, K;

  explicit Matmul(const Call& call) : c(call), ta(c.integer("ta") != 0), tb(c.integer("tb") != 0) {
    M = ta ? columns(c.in[0]) : rows(c.in[0]);
    K = ta ? rows(c.in[0]) : columns(c.in[0]);
    N = tb ? rows(c.in[1]) : columns(c.in[1]);
  }
  static void check(const Call& c) {
    expect_inputs(c, {0, 1});
    expect_types(c, 3, {0, 1}, 1, {});
    expect_sums(c, c.in[0].dtype, {2}, {0});
    const Matmul op(c);
    expect(op.K == (op.tb ? columns(c.in[1]) : rows(c.in[1])), "the inner dimensions of op(a) and op(b) must agree");
    expect(rows(c.out[0]) == op.M && columns(c.out[0]) == op.N, "c must be (M, N)");
    expect(!c.has(2) || (rows(c.in[2]) == op.M && columns(c.in[2]) == op.N), "acc must be (M, N)");
  }
  void run(const Args& args) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const T *a = args.in<T>(0), *b = args.in<T>(1);
      const Reals acc(c, args, 2);
      const RealsOut out(c, args, 0);
      for (int64_t m = 0; m < M; ++m)
        for (int64_t n = 0; n < N; n += 4) {
          const int64_t some = std::min<int64_t>(4, N - n);
          double sum[4] = {};
          for (int64_t i = 0; acc && i < some; ++i) sum[i] = acc[m * N + n + i];
          add_products(ta ? a + m : a + m * K, ta ? M : 1, tb ? b + n * K : b + n, tb ? 1 : N, tb ? K : 1, K, some,
                       sum);
          for (int64_t i = 0; i < some; ++i) out.set(m * N + n + i, sum[i]);
        }
    });
  }
};

// y = [acc +] the column sums of x (M, N).
template <class T>
void sum_columns(const T* x, int64_t M, int64_t N, const Reals& acc, const RealsOut& y) {
  for (int64_t n = 0; n < N; ++n) {
    double sum = acc ? acc[n] : 0.0;
    for (int64_t m = 0; m < M; ++m) sum += double(x[m * N + n]);
    y.set(n, sum);
  }
}

struct MatmulReluGrad {
  static constexpr const char* op = ENG_OP_MATMUL_RELU_GRAD;
  Call c;

  explicit MatmulReluGrad(const Call& call) : c(call) {}
  static void check(const Call& c) {
    const bool sums = c.integer("sums") != 0;
    expect_inputs(c, {0, 1, 2});
    expect_types(c, 4, {0, 1}, sums ? 2 : 1, {0});
    expect(c.in[1].ndim == 2 && c.in[1].dims[0] == columns(c.in[0]), "w must be (N, K), N the last dimension of dy");
    expect(rows(c.out[0]) == rows(c.in[0]) && columns(c.out[0]) == columns(c.in[1]), "dz must be (..., K)");
    expect_mask(c.in[2], c.out[0]);
    expect(sums || !c.has(3), "acc is for sums");
    if (!sums) return;
    expect_sums(c, c.in[0].dtype, {3}, {1});
    expect(elements(c.out[1]) == columns(c.out[0]), "dbias must be (K)");
    expect(!c.has(3) || elements(c.in[3]) == columns(c.out[0]), "acc must be (K)");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const int64_t M = rows(c.in[0]), K = columns(c.in[0]), N = columns(c.out[0]), bytes = columns(c.in[2]);
      const T *dy = a.in<T>(0), *w = a.in<T>(1);  // (M, K), (K, N)
      T* dz = a.out<T>(0);                        // (M, N)
      for (int64_t m = 0; m < M; ++m)
        for (int64_t n = 0; n < N; n += 4) {
          const int64_t some = std::min<int64_t>(4, N - n);
          double sum[4] = {};
          add_products(dy + m * K, 1, w + n, N, 1, K, some, sum);
          for (int64_t i = n; i < n + some; ++i) {
            const bool positive = a.in<uint8_t>(2)[m * bytes + i / 8] >> i % 8 & 1;
            dz[m * N + i] = T(double(T(sum[i - n])) * (positive ? 1.0 : 0.0));
          }
        }
      if (c.out.size() > 1) sum_columns(dz, M, N, Reals(c, a, 3), RealsOut(c, a, 1));
    });
  }
};

struct SumRows {
  static constexpr const char* op = ENG_OP_SUM_ROWS;
  Call c;

  explicit SumRows(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_inputs(c, {0});
    expect_types(c, 2, {0}, 1, {});
    expect_sums(c, c.in[0].dtype, {1}, {0});
    expect(elements(c.out[0]) == columns(c.in[0]), "y must be (N), N the last dimension of x");
    expect(!c.has(1) || elements(c.in[1]) == columns(c.in[0]), "acc must be (N), N the last dimension of x");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      sum_columns(a.in<T>(0), rows(c.in[0]), columns(c.in[0]), Reals(c, a, 1), RealsOut(c, a, 0));
    });
  }
};

struct Add {
  static constexpr const char* op = ENG_OP_ADD;
  Call c;

  explicit Add(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1});
    expect_types(c, 2, {0}, 1, {});
    expect(is_stream(c.in[0], c.in[1].dtype) || is_stream(c.in[1], c.in[0].dtype),
           "a and b must have one type, or one of them is f32 and the other has 16 bits");
    expect(c.out[0].dtype == c.in[is_half(c.in[0]) ? 1 : 0].dtype, "y must have the wider type");
    expect(elements(c.in[1]) == elements(c.in[0]) && elements(c.out[0]) == elements(c.in[0]),
           "a, b and y must have the same shape");
  }
  void run(const Args& a) const {
    const Reals x(c, a, 0), y(c, a, 1);
    const RealsOut sum(c, a, 0);
    for (int64_t i = 0; i < elements(c.in[0]); ++i) sum.set(i, x[i] + y[i]);
  }
};

}  // namespace

void add_matrix(List& list) {
  list.insert(list.end(), {&common::kernel<Linear>, &common::kernel<LinearRelu>, &common::kernel<Matmul>,
                           &common::kernel<MatmulReluGrad>, &common::kernel<SumRows>, &common::kernel<Add>});
}

}  // namespace reference
