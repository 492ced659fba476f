// SPDX-License-Identifier: Apache-2.0
// eng.linear/1 and eng.matmul/1, both with relu, and eng.sum_rows/1.
#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>

#include "../../common/kernel.hpp"
#include "gemm.hpp"
#include "gemv.hpp"
#include "kernels.hpp"

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
  static void check(const Call& c) { check(c, 1); }
  static void check(const Call& c, size_t outputs) {
    need_arguments(c, 2, 3, outputs), need_one_type(c, 3), need_same_type(c.in[0], c.out[0], "x and y");
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

// The bits of a row's mask, and which elements of the row they say are positive.
template <class T>
void pack_positive(const T* y, int64_t n, uint8_t* mask) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
  constexpr Bits infinite = sizeof(T) == 4 ? 0x7f800000 : std::is_same_v<T, bf16> ? 0x7f80 : 0x7c00;
  const auto positive = [&](int64_t j) -> unsigned {  // above 0, and no NaN
    return static_cast<Bits>(std::bit_cast<Bits>(y[j]) - 1) < infinite;
  };
  int64_t j = 0;
  for (; j + 8 <= n; j += 8) {
    unsigned byte = 0;
    for (int k = 0; k < 8; ++k) byte |= positive(j + k) << k;
    mask[j / 8] = static_cast<uint8_t>(byte);
  }
  std::fill(mask + j / 8, mask + eng_relu_mask_bytes(n), uint8_t{0});
  for (; j < n; ++j) mask[j / 8] |= static_cast<uint8_t>(positive(j) << j % 8);
}

constexpr size_t relu = ENG_ACT_RELU - ENG_ACT_SILU;

void need_mask(const eng_desc& mask, const eng_desc& y) {
  if (mask.dtype != ENG_U8) throw Error{ENG_UNSUPPORTED, "the mask must be u8, it is " + describe(mask)};
  need_size("rows of the mask", rows(mask), rows(y));
  need_size("bytes of a row of the mask", columns(mask), eng_relu_mask_bytes(columns(y)));
}

// The bits of linear, then of activation.
struct LinearRelu : Linear {
  static constexpr const char* op = ENG_OP_LINEAR_RELU;
  const simd_table& simd;
  unsigned threads;
  int64_t n_rows, n_columns;

  static void check(const Call& c) { Linear::check(c, 2), need_mask(c.out[1], c.out[0]); }
  LinearRelu(const Call& c, void* device)
      : Linear(c, device),
        simd(simd_for(device)),
        threads(c.parallel),
        n_rows(rows(c.out[0])),
        n_columns(columns(c.out[0])) {}

  void run(const Args& a) const {
    Linear::run(a);
    by_type(type, [&]<class T>(T) {
      in_ranges(threads, n_rows, n_columns, 1, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row) {
          T* y = a.out<T>(0) + row * n_columns;
          simd.of<T>().activation[relu](y, y, n_columns);
          pack_positive(y, n_columns, a.out<uint8_t>(1) + row * eng_relu_mask_bytes(n_columns));
        }
      });
    });
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

// y = [acc +] the sums of the columns of x. Each is one chain of additions in row order, so threads may share the
// columns as they like.
template <class T, class Sum>
void sum_columns(const simd_table& simd, unsigned threads, const T* x, int64_t n_rows, int64_t n_columns,
                 const Sum* acc, Sum* y) {
  constexpr int64_t strip = line_unit;  // columns whose sums fit the registers
  const row_sums<T, Sum> call{x, nullptr, n_rows, n_columns, acc, y, false};
  parallel_tasks(threads, (n_columns + strip - 1) / strip, [&](unsigned, int64_t task) {
    sum_rows(simd, call, task * strip, std::min(n_columns, (task + 1) * strip));
  });
}

// The bits of matmul, then of activation_grad, then of sum_rows.
struct MatmulReluGrad {
  static constexpr const char* op = ENG_OP_MATMUL_RELU_GRAD;
  static constexpr int64_t tile = 512;  // elements whose slopes are written out at a time
  Gemm gemm;
  const simd_table& simd;
  unsigned threads;
  int32_t type, sums;  // sums: the type of dbias; 0: there is none
  int64_t n_rows, n_columns;

  static GemmShape shape(const Call& c) {
    const Stored s = stored_of(c.in[0]);
    return {rows(c.in[0]), columns(c.in[1]), columns(c.in[0]), false, false, s, s, s, s};
  }
  static void check(const Call& c) {
    const bool sums = c.integer("sums") != 0;
    need_arguments(c, 3, 4, sums ? 2 : 1), need_one_type(c, 2), need_same_type(c.in[0], c.out[0], "dy and dz");
    need_size("rows of w", rows(c.in[1]), columns(c.in[0]));
    need_size("rows of dz", rows(c.out[0]), rows(c.in[0])),
        need_size("columns of dz", columns(c.out[0]), columns(c.in[1]));
    need_mask(c.in[2], c.out[0]);
    if (sums)
      need_sums(c, c.in[0].dtype, {3}, {1}), need_size("elements of dbias", elements(c.out[1]), columns(c.out[0]));
    if (c.has(3)) need_size("elements of acc", elements(c.in[3]), sums ? columns(c.out[0]) : 0);
  }
  static uint64_t workspace(const Call& c) { return Gemm::scratch(shape(c), c.parallel); }
  MatmulReluGrad(const Call& c, void* device)
      : gemm(device_of(device), shape(c), c.parallel),
        simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[0].dtype),
        sums(c.has_out(1) ? c.out[1].dtype : 0),
        n_rows(rows(c.out[0])),
        n_columns(columns(c.out[0])) {}

  // dz *= the slopes of relu: 1 where the mask has a 1, elsewhere 0.
  template <class T>
  void mask_row(T* dz, const uint8_t* mask) const {
    T slopes[tile];
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
    for (int64_t from = 0; from < n_columns; from += tile) {
      const int64_t some = std::min(tile, n_columns - from);
      for (int64_t j = 0; j < some; ++j)
        slopes[j] = std::bit_cast<T>(static_cast<Bits>(mask[(from + j) / 8] >> j % 8 & 1));  // above 0, or 0
      simd.of<T>().activation_grad[relu](dz + from, slopes, dz + from, some);
    }
  }
  void run(const Args& a) const {
    gemm.run(a.in<void>(0), a.in<void>(1), nullptr, 0, a.out<void>(0), a.workspace);
    by_type(type, [&]<class T>(T) {
      T* dz = a.out<T>(0);
      in_ranges(threads, n_rows, n_columns, 1, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row)
          mask_row(dz + row * n_columns, a.in<uint8_t>(2) + row * eng_relu_mask_bytes(n_columns));
      });
    });
    if (sums)
      by_types(type, sums, [&]<class T, class Sum>(T, Sum) {
        sum_columns(simd, threads, a.out<T>(0), n_rows, n_columns, a.in<Sum>(3), a.out<Sum>(1));
      });
  }
};

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
    by_types(type, sums, [&]<class T, class Sum>(T, Sum) {
      sum_columns(simd, threads, a.in<T>(0), n_rows, n_columns, a.in<Sum>(1), a.out<Sum>(0));
    });
  }
};

}  // namespace

const eng_kernel* const gemm_kernels[] = {&kernel<Linear>, &kernel<LinearRelu>, &kernel<Matmul>,
                                          &kernel<MatmulReluGrad>, &kernel<SumRows>};
const uint32_t gemm_kernel_count = std::size(gemm_kernels);

}  // namespace cpu
