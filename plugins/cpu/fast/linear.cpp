// SPDX-License-Identifier: Apache-2.0
// eng.linear/1, eng.matmul/1, eng.sum_rows/1.
#include <iterator>
#include <optional>

#include "../../common/kernel.hpp"
#include "gemm.hpp"
#include "gemv.hpp"
#include "kernels.hpp"
#include "shapes.hpp"
#include "threads.hpp"

namespace cpu {
namespace {

struct Linear {
  static constexpr const char* op = ENG_OP_LINEAR;
  std::optional<Gemm> gemm;
  std::optional<Gemv> gemv;  // instead, for few rows

  static GemmShape shape(const Call& c) { return {rows(c.in[0]), rows(c.in[1]), columns(c.in[0]), false, true}; }
  static void check(const Call& c) {
    need_arguments(c, 2, 3, 1), need_f32(c);
    need_size("columns of w", columns(c.in[1]), columns(c.in[0]));
    need_size("columns of y", columns(c.out[0]), rows(c.in[1]));
    need_size("rows of y", rows(c.out[0]), rows(c.in[0]));
    if (c.has(2)) need_size("elements of bias", elements(c.in[2]), rows(c.in[1]));
  }
  static uint64_t workspace(const Call& c) { return Gemm::scratch(shape(c), c.parallel); }
  Linear(const Call& c, void* device) {
    const GemmShape s = shape(c);
    if (s.m <= Gemv::most_rows)
      gemv.emplace(Gemv{device, s.m, s.n, s.k, c.parallel});
    else
      gemm.emplace(device_of(device), s, c.parallel);
  }

  void run(const Args& a) const {
    const float *x = a.in<float>(0), *w = a.in<float>(1), *bias = a.in<float>(2);
    if (gemv)
      gemv->run(x, w, bias, a.out<float>(0));
    else
      gemm->run(x, w, bias, 0, a.out<float>(0), a.workspace);
  }
};

struct Matmul {
  static constexpr const char* op = ENG_OP_MATMUL;
  Gemm gemm;
  int64_t stride;

  static GemmShape shape(const Call& c) {
    const bool ta = c.integer("ta") != 0, tb = c.integer("tb") != 0;
    return {ta ? columns(c.in[0]) : rows(c.in[0]), tb ? rows(c.in[1]) : columns(c.in[1]),
            ta ? rows(c.in[0]) : columns(c.in[0]), ta, tb};
  }
  static void check(const Call& c) {
    need_arguments(c, 2, 3, 1), need_f32(c);
    const GemmShape s = shape(c);
    need_size("the inner size of b", s.tb ? columns(c.in[1]) : rows(c.in[1]), s.k);
    need_size("elements of c", elements(c.out[0]), s.m * s.n);
    if (c.has(2)) need_size("elements of acc", elements(c.in[2]), s.m * s.n);
  }
  static uint64_t workspace(const Call& c) { return Gemm::scratch(shape(c), c.parallel); }
  Matmul(const Call& c, void* device) : gemm(device_of(device), shape(c), c.parallel), stride(shape(c).n) {}

  void run(const Args& a) const {
    gemm.run(a.in<float>(0), a.in<float>(1), a.in<float>(2), stride, a.out<float>(0), a.workspace);
  }
};

// Each column is one chain of additions in row order, so threads may share the columns as they like.
struct SumRows {
  static constexpr const char* op = ENG_OP_SUM_ROWS;
  int64_t n_rows, n_columns;
  unsigned threads;

  static void check(const Call& c) {
    need_arguments(c, 1, 2, 1), need_f32(c);
    need_size("elements of y", elements(c.out[0]), columns(c.in[0]));
    if (c.has(1)) need_size("elements of acc", elements(c.in[1]), columns(c.in[0]));
  }
  explicit SumRows(const Call& c) : n_rows(rows(c.in[0])), n_columns(columns(c.in[0])), threads(c.parallel) {}

  void run(const Args& a) const {
    constexpr int64_t strip = 64;  // columns whose sums fit the registers
    const float *x = a.in<float>(0), *acc = a.in<float>(1);
    float* const y = a.out<float>(0);
    parallel_tasks(threads, (n_columns + strip - 1) / strip, [&](unsigned, int64_t task) {
      const int64_t first = task * strip, n = n_columns - first < strip ? n_columns - first : strip;
      float sum[strip] = {};
      for (int64_t r = 0; r < n_rows; ++r) {
        const float* row = x + r * n_columns + first;
        if (n == strip)
          for (int64_t k = 0; k < strip; ++k) sum[k] += row[k];
        else
          for (int64_t k = 0; k < n; ++k) sum[k] += row[k];
      }
      for (int64_t k = 0; k < n; ++k) y[first + k] = acc ? acc[first + k] + sum[k] : sum[k];
    });
  }
};

}  // namespace

const eng_kernel* const gemm_kernels[] = {&kernel<Linear>, &kernel<Matmul>, &kernel<SumRows>};
const uint32_t gemm_kernel_count = std::size(gemm_kernels);

}  // namespace cpu
