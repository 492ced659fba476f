// SPDX-License-Identifier: Apache-2.0
// eng.linear/1, eng.matmul/1, eng.sum_rows/1.
#include <algorithm>
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
  int32_t type;
  std::optional<Gemm> gemm;
  std::optional<Gemv> gemv;  // instead, for few rows

  static GemmShape shape(const Call& c) {
    const Stored s = stored_of(c.in[0]);
    return {rows(c.in[0]), rows(c.in[1]), columns(c.in[0]), false, true, s, s, s, s};
  }
  static void check(const Call& c) {
    need_arguments(c, 2, 3, 1), need_one_type(c, 3), need_same_type(c.in[0], c.out[0], "x and y");
    need_size("columns of w", columns(c.in[1]), columns(c.in[0]));
    need_size("columns of y", columns(c.out[0]), rows(c.in[1]));
    need_size("rows of y", rows(c.out[0]), rows(c.in[0]));
    if (c.has(2)) need_size("elements of bias", elements(c.in[2]), rows(c.in[1]));
  }
  static uint64_t workspace(const Call& c) { return Gemm::scratch(shape(c), c.parallel); }
  Linear(const Call& c, void* device) : type(c.in[0].dtype) {
    const GemmShape s = shape(c);
    if (s.m <= Gemv::most_rows)
      gemv.emplace(Gemv{device, s.m, s.n, s.k, c.parallel});
    else
      gemm.emplace(device_of(device), s, c.parallel);
  }

  void run(const Args& a) const {
    if (gemv)
      by_type(type, [&]<class T>(T) { gemv->run(a.in<T>(0), a.in<T>(1), a.in<T>(2), a.out<T>(0)); });
    else
      gemm->run(a.in<void>(0), a.in<void>(1), a.in<void>(2), 0, a.out<void>(0), a.workspace);
  }
};

struct Matmul {
  static constexpr const char* op = ENG_OP_MATMUL;
  Gemm gemm;
  int64_t stride;

  static GemmShape shape(const Call& c) {
    const bool ta = c.integer("ta") != 0, tb = c.integer("tb") != 0;
    const Stored in = stored_of(c.in[0]), out = stored_of(c.out[0]);
    return {ta ? columns(c.in[0]) : rows(c.in[0]),
            tb ? rows(c.in[1]) : columns(c.in[1]),
            ta ? rows(c.in[0]) : columns(c.in[0]),
            ta,
            tb,
            in,
            in,
            out,
            out};
  }
  static void check(const Call& c) {
    need_arguments(c, 2, 3, 1), need_one_type(c, 2), need_sums(c, c.in[0].dtype, {2}, {0});
    const GemmShape s = shape(c);
    need_size("the inner size of b", s.tb ? columns(c.in[1]) : rows(c.in[1]), s.k);
    need_size("elements of c", elements(c.out[0]), s.m * s.n);
    if (c.has(2)) need_size("elements of acc", elements(c.in[2]), s.m * s.n);
  }
  static uint64_t workspace(const Call& c) { return Gemm::scratch(shape(c), c.parallel); }
  Matmul(const Call& c, void* device) : gemm(device_of(device), shape(c), c.parallel), stride(shape(c).n) {}

  void run(const Args& a) const {
    gemm.run(a.in<void>(0), a.in<void>(1), a.in<void>(2), stride, a.out<void>(0), a.workspace);
  }
};

// Each column is one chain of additions in row order, so threads may share the columns as they like.
struct SumRows {
  static constexpr const char* op = ENG_OP_SUM_ROWS;
  const simd_table& simd;
  unsigned threads;
  int32_t type, sums;
  int64_t n_rows, n_columns;

  static void check(const Call& c) {
    need_arguments(c, 1, 2, 1), need_float(c.in[0], "x"), need_sums(c, c.in[0].dtype, {1}, {0});
    need_size("elements of y", elements(c.out[0]), columns(c.in[0]));
    if (c.has(1)) need_size("elements of acc", elements(c.in[1]), columns(c.in[0]));
  }
  SumRows(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[0].dtype),
        sums(c.out[0].dtype),
        n_rows(rows(c.in[0])),
        n_columns(columns(c.in[0])) {}

  void run(const Args& a) const {
    constexpr int64_t strip = line_unit;  // columns whose sums fit the registers
    by_types(type, sums, [&]<class T, class Sum>(T, Sum) {
      const row_sums<T, Sum> call{a.in<T>(0), nullptr, n_rows, n_columns, a.in<Sum>(1), a.out<Sum>(0), false};
      parallel_tasks(threads, (n_columns + strip - 1) / strip, [&](unsigned, int64_t task) {
        sum_rows(simd, call, task * strip, std::min(n_columns, (task + 1) * strip));
      });
    });
  }
};

}  // namespace

const eng_kernel* const gemm_kernels[] = {&kernel<Linear>, &kernel<Matmul>, &kernel<SumRows>};
const uint32_t gemm_kernel_count = std::size(gemm_kernels);

}  // namespace cpu
