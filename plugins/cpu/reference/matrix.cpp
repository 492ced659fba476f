// SPDX-License-Identifier: Apache-2.0
// linear, matmul, sum_rows, add.
#include <algorithm>

#include "reference.hpp"

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
  static void check(const Call& c) {
    expect_inputs(c, {0, 1});
    expect_types(c, 3, {0, 1, 2}, 1, {0});
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
      const int64_t M = rows(c.in[0]), N = columns(c.in[0]);
      const T* x = a.in<T>(0);    // (M, N)
      const Reals acc(c, a, 1);   // (N)
      const RealsOut y(c, a, 0);  // (N)
      for (int64_t n = 0; n < N; ++n) {
        double sum = acc ? acc[n] : 0.0;
        for (int64_t m = 0; m < M; ++m) sum += double(x[m * N + n]);
        y.set(n, sum);
      }
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
  list.insert(list.end(), {&cpu::kernel<Linear>, &cpu::kernel<Matmul>, &cpu::kernel<SumRows>, &cpu::kernel<Add>});
}

}  // namespace reference
