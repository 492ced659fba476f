// SPDX-License-Identifier: Apache-2.0
// rms_norm, with or without the residual sum, and its gradient.
#include <algorithm>
#include <iterator>

#include "simd/select.hpp"

namespace cpu {
namespace {

struct RmsNorm {
  static constexpr const char* op = ENG_OP_RMS_NORM;
  const simd_table& simd;
  unsigned threads;
  int32_t type, stream;  // of w and y; of what is normed
  int64_t n, h;
  bool residual;
  float eps;

  static void check(const Call& c) {
    need_counts(c, 2, 3, 2, 3);
    need_float(c.in[0], "x");
    need_float(c.in[1], "w");
    if (c.in[0].dtype != ENG_F32) need_same_type(c.in[0], c.in[1], "x and w");
    need_f32(c.out[1], "rstd");
    need_size(c.in[1], columns(c.in[0]), "w");
    need_size(c.out[1], rows(c.in[0]), "rstd");
    need_same_type(c.in[1], c.out[0], "w and y");
    need_size(c.out[0], elements(c.in[0]), "y");
    if (c.has(2) != c.has_out(2)) throw Error{ENG_INVALID, "a residual input and the output s must be given together"};
    if (c.has(2)) need_same(c.in[0], c.in[2], "x and residual"), need_same(c.in[0], c.out[2], "x and s");
    c.real("eps");
  }
  RmsNorm(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[1].dtype),
        stream(c.in[0].dtype),
        n(rows(c.in[0])),
        h(columns(c.in[0])),
        residual(c.has(2)),
        eps(static_cast<float>(c.real("eps"))) {}
  void run(const Args& args) const {
    by_types(type, stream, [&]<class T, class X>(T, X) {
      norm_forward<T, X> f{};
      f.x = args.in<X>(0), f.w = args.in<T>(1), f.residual = residual ? args.in<X>(2) : nullptr;
      f.y = args.out<T>(0), f.rstd = args.out<float>(1), f.s = residual ? args.out<X>(2) : nullptr;
      f.h = h, f.eps = eps;
      in_ranges(threads, n, h, n < 1024 ? 1 : 16, [&](int64_t first, int64_t last) {
        if constexpr (sizeof(T) == sizeof(X))
          simd.of<T>().rms_norm(f, first, last);
        else
          simd.of<T>().rms_norm_wide(f, first, last);
      });
    });
  }
};

// The weight's gradient is a sum over all rows. Its order depends on the shapes only: rows are cut into chunks,
// each is summed in row order into its own line of scratch memory, then the lines are added in order.
struct RmsNormGrad {
  static constexpr const char* op = ENG_OP_RMS_NORM_GRAD;
  static constexpr int64_t least_rows = 64, most_chunks = 512;
  const simd_table& simd;
  unsigned threads;
  int32_t type, stream, sums;  // of dy and w; of s and dx; of dw
  int64_t n, h;

  static int64_t chunk_rows(int64_t n) { return std::max(least_rows, (n + most_chunks - 1) / most_chunks); }
  static int64_t chunk_count(int64_t n) { return (n + chunk_rows(n) - 1) / chunk_rows(n); }
  static int64_t stride(int64_t h) { return (h + line_unit - 1) / line_unit * line_unit; }

  static void check(const Call& c) {
    need_counts(c, 4, 6, 2, 2);
    need_float(c.in[0], "dy");
    need_same_type(c.in[0], c.in[2], "dy and w");
    need_f32(c.in[3], "rstd");
    need_sums(c, c.in[0].dtype, {5}, {1});
    need_float(c.in[1], "s");
    if (c.in[1].dtype != ENG_F32) need_same_type(c.in[0], c.in[1], "dy and s");
    need_size(c.in[0], elements(c.in[1]), "dy");
    need_same(c.in[1], c.out[0], "s and dx");
    need_size(c.in[2], columns(c.in[0]), "w");
    need_size(c.in[3], rows(c.in[0]), "rstd");
    need_size(c.out[1], columns(c.in[0]), "dw");
    if (c.has(4)) need_same(c.in[1], c.in[4], "s and ds");
    if (c.has(5)) need_same(c.out[1], c.in[5], "dw and dw_acc");
  }
  static uint64_t workspace(const Call& c) {
    return static_cast<uint64_t>(chunk_count(rows(c.in[0])) * stride(columns(c.in[0]))) * sizeof(float);
  }
  RmsNormGrad(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[0].dtype),
        stream(c.in[1].dtype),
        sums(c.out[1].dtype),
        n(rows(c.in[0])),
        h(columns(c.in[0])) {}
  void run(const Args& args) const {
    float* const scratch = args.scratch<float>();
    const int64_t each = chunk_rows(n), chunks = chunk_count(n), wide = stride(h);
    by_types(type, stream, [&]<class T, class X>(T, X) {
      norm_backward<T, X> b{};
      b.dy = args.in<T>(0), b.s = args.in<X>(1), b.w = args.in<T>(2), b.rstd = args.in<float>(3);
      b.ds = args.in<X>(4), b.dx = args.out<X>(0), b.h = h;
      in_ranges(threads, chunks, each * h, 1, [&](int64_t first, int64_t last) {
        for (int64_t k = first; k < last; ++k) {
          const int64_t end = std::min(n, (k + 1) * each);
          if constexpr (sizeof(T) == sizeof(X))
            simd.of<T>().rms_norm_grad(b, k * each, end, scratch + k * wide);
          else
            simd.of<T>().rms_norm_grad_wide(b, k * each, end, scratch + k * wide);
        }
      });
    });
    by_type(sums, [&]<class Sum>(Sum) {
      const Sum* acc = args.in<Sum>(5);
      Sum* dw = args.out<Sum>(1);
      in_ranges(threads, h, chunks, line_unit, [&](int64_t first, int64_t last) {
        simd.of<Sum>().fold_chunks(scratch, chunks, wide, acc, dw, first, last);
      });
    });
  }
};

}  // namespace

extern const eng_kernel* const norm_kernels[] = {&kernel<RmsNorm>, &kernel<RmsNormGrad>};
extern const uint32_t norm_kernel_count = std::size(norm_kernels);

}  // namespace cpu
