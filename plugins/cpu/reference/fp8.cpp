// SPDX-License-Identifier: Apache-2.0
// The ops of engine/ops_fp8.h. Each operand of a product is rounded into scratch, as f64.
#include "engine/ops_fp8.h"

#include <algorithm>

#include "../../common/fp8_states.hpp"
#include "reference.hpp"

namespace reference {
namespace {

float largest_finite(const Reals& x, int64_t n) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i)
    if (std::isfinite(float(x[i]))) largest = std::max(largest, std::fabs(float(x[i])));
  return largest;
}

// Q(x), or x in f64. `scale`: that of the row of x in the state; 0: there is none.
void round_operand(const Reals& x, int64_t n, int64_t format, int64_t margin, float scale, double* out) {
  if (x.dtype == ENG_F64) {
    for (int64_t i = 0; i < n; ++i) out[i] = x[i];
    return;
  }
  int32_t power = scale > 0 ? std::ilogb(scale) : 0;
  if (scale <= 0) power = eng_fp8_exponent(int32_t(format), largest_finite(x, n), int32_t(margin));
  for (int64_t i = 0; i < n; ++i) {
    double v = std::ldexp(x[i], power);
    if (std::isfinite(x[i])) v = std::clamp(v, -60000.0, 60000.0);  // beyond both formats, and within f32
    out[i] = std::ldexp(double(eng_fp8_round(int32_t(format), float(v))), -power);
  }
}

float scale_of(const Call& c, const Args& args, const char* row, int64_t fallback) {
  return c.has(3) ? args.in<float>(3)[c.integer_or(row, fallback) * columns(c.in[3])] : 0.0f;
}

void expect_state(const Call& c, size_t k) {
  expect(!c.has(k) || (c.in[k].dtype == ENG_F32 && rows(c.in[k]) == 3 && columns(c.in[k]) > 2),
         "a state must be f32 (3, 2 + H)");
}

void expect_attributes(const Call& c, std::initializer_list<const char*> formats) {
  for (const char* key : formats)
    expect(c.integer_or(key, ENG_FP8_E5M2) == ENG_FP8_E4M3 || c.integer_or(key, ENG_FP8_E5M2) == ENG_FP8_E5M2,
           "formats must be ENG_FP8_E4M3 or ENG_FP8_E5M2");
  expect(c.integer_or("margin", 0) >= 0 && c.integer_or("margin", 0) <= 64, "margin must be 0 to 64");
}

uint64_t rounded_bytes(const Call& c) {
  return sizeof(double) * uint64_t(elements(c.in[0]) + elements(c.in[1]));
}

struct Fp8Linear {
  static constexpr const char* op = ENG_OP_FP8_LINEAR;
  Call c;

  explicit Fp8Linear(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1});
    expect_types(c, 4, {0, 1, 2}, 1, {0});
    expect_attributes(c, {"gradients"}), expect_state(c, 3);
    expect(c.in[1].ndim == 2 && columns(c.in[1]) == columns(c.in[0]), "w must be (N, K), K the last dimension of x");
    expect(!c.has(2) || elements(c.in[2]) == c.in[1].dims[0], "bias must be (N)");
    expect(rows(c.out[0]) == rows(c.in[0]) && columns(c.out[0]) == c.in[1].dims[0], "y must be (..., N)");
  }
  static uint64_t workspace(const Call& c) { return rounded_bytes(c); }
  void run(const Args& args) const {
    const int64_t M = rows(c.in[0]), K = columns(c.in[0]), N = columns(c.out[0]), margin = c.integer_or("margin", 0);
    double *x = args.scratch<double>(), *w = x + M * K;  // (M, K), (N, K)
    round_operand(Reals(c, args, 0), M * K, ENG_FP8_E4M3, margin, scale_of(c, args, "", 0), x);
    round_operand(Reals(c, args, 1), N * K, ENG_FP8_E4M3, margin, scale_of(c, args, "", 1), w);
    const Reals bias(c, args, 2);
    const RealsOut y(c, args, 0);  // (M, N)
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = 0; n < N; ++n) {
        double sum = bias ? bias[n] : 0.0;
        for (int64_t k = 0; k < K; ++k) sum += x[m * K + k] * w[n * K + k];
        y.set(m * N + n, sum);
      }
  }
};

struct Fp8Matmul {
  static constexpr const char* op = ENG_OP_FP8_MATMUL;
  Call c;
  bool ta, tb;
  int64_t M, N, K;

  explicit Fp8Matmul(const Call& call) : c(call), ta(c.integer("ta") != 0), tb(c.integer("tb") != 0) {
    M = ta ? columns(c.in[0]) : rows(c.in[0]);
    K = ta ? rows(c.in[0]) : columns(c.in[0]);
    N = tb ? rows(c.in[1]) : columns(c.in[1]);
  }
  static void check(const Call& c) {
    expect_inputs(c, {0, 1});
    expect_types(c, 4, {0, 1}, 1, {});
    expect_sums(c, c.in[0].dtype, {2}, {0});
    expect_attributes(c, {"a", "b"}), expect_state(c, 3);
    for (const char* row : {"a_row", "b_row"})
      expect(!c.has(3) || (c.integer(row) >= 0 && c.integer(row) < 3), "a row of the state must be 0 to 2");
    const Fp8Matmul op(c);
    expect(op.K == (op.tb ? columns(c.in[1]) : rows(c.in[1])), "the inner dimensions of op(a) and op(b) must agree");
    expect(rows(c.out[0]) == op.M && columns(c.out[0]) == op.N, "c must be (M, N)");
    expect(!c.has(2) || (rows(c.in[2]) == op.M && columns(c.in[2]) == op.N), "acc must be (M, N)");
  }
  static uint64_t workspace(const Call& c) { return rounded_bytes(c); }
  void run(const Args& args) const {
    const int64_t margin = c.integer_or("margin", 0);
    double *a = args.scratch<double>(), *b = a + M * K;
    round_operand(Reals(c, args, 0), M * K, c.integer("a"), margin, scale_of(c, args, "a_row", 0), a);
    round_operand(Reals(c, args, 1), N * K, c.integer("b"), margin, scale_of(c, args, "b_row", 0), b);
    const Reals acc(c, args, 2);
    const RealsOut out(c, args, 0);
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = 0; n < N; ++n) {
        double sum = acc ? acc[m * N + n] : 0.0;
        for (int64_t k = 0; k < K; ++k) sum += a[ta ? k * M + m : m * K + k] * b[tb ? n * K + k : k * N + n];
        out.set(m * N + n, sum);
      }
  }
};

struct Fp8Largest {
  static constexpr const char* op = ENG_OP_FP8_LARGEST;
  Call c;

  explicit Fp8Largest(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_inputs(c, {0}), expect_state(c, 0);
    expect(c.out.size() == 1 && elements(c.out[0]) == elements(c.in[0]), "the output must be the state");
  }
  void run(const Args& args) const {
    for (size_t k = 1; k < c.in.size(); ++k)
      if (c.has(k)) {
        float& largest = args.out<float>(0)[int64_t(k - 1) * columns(c.in[0]) + 1];
        largest = std::max(largest, largest_finite(Reals(c, args, k), elements(c.in[k])));
      }
  }
};

}  // namespace

void add_fp8(List& list) {
  list.push_back(&common::kernel<Fp8Linear>), list.push_back(&common::kernel<Fp8Matmul>);
  list.push_back(&common::kernel<Fp8Largest>), list.push_back(&common::kernel<common::Fp8Collect>);
  list.push_back(&common::kernel<common::Fp8Roll>);
}

}  // namespace reference
