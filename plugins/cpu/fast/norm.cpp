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
  int64_t n, h;
  bool residual;
  float eps;

  static void check(const Call& c) {
    need_counts(c, 2, 3, 2, 3);
    need_f32(c.in[0], "x");
    need_f32(c.in[1], "w");
    need_f32(c.out[1], "rstd");
    need_size(c.in[1], columns(c.in[0]), "w");
    need_size(c.out[1], rows(c.in[0]), "rstd");
    need_same(c.in[0], c.out[0], "x and y");
    if (c.has(2) != c.has_out(2)) throw Error{ENG_INVALID, "a residual input and the output s must be given together"};
    if (c.has(2)) need_same(c.in[0], c.in[2], "x and residual"), need_same(c.in[0], c.out[2], "x and s");
    c.real("eps");
  }
  RmsNorm(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        n(rows(c.in[0])),
        h(columns(c.in[0])),
        residual(c.has(2)),
        eps(static_cast<float>(c.real("eps"))) {}
  void run(const Args& args) const {
    norm_forward f{};
    f.x = args.in<float>(0), f.w = args.in<float>(1), f.residual = residual ? args.in<float>(2) : nullptr;
    f.y = args.out<float>(0), f.rstd = args.out<float>(1), f.s = residual ? args.out<float>(2) : nullptr;
    f.h = h, f.eps = eps;
    in_ranges(threads, n, h, n < 1024 ? 1 : 16, [&](int64_t first, int64_t last) { simd.rms_norm(f, first, last); });
  }
};

// The weight's gradient is a sum over all rows. Its order depends on the shapes only: rows are cut into chunks,
// each is summed in row order into its own line of scratch memory, then the lines are added in order.
struct RmsNormGrad {
  static constexpr const char* op = ENG_OP_RMS_NORM_GRAD;
  static constexpr int64_t least_rows = 64, most_chunks = 512;
  const simd_table& simd;
  unsigned threads;
  int64_t n, h;

  static int64_t chunk_rows(int64_t n) { return std::max(least_rows, (n + most_chunks - 1) / most_chunks); }
  static int64_t chunk_count(int64_t n) { return (n + chunk_rows(n) - 1) / chunk_rows(n); }
  static int64_t stride(int64_t h) { return (h + line_unit - 1) / line_unit * line_unit; }

  static void check(const Call& c) {
    need_counts(c, 4, 6, 2, 2);
    need_f32(c.in[0], "dy");
    need_f32(c.in[2], "w");
    need_f32(c.in[3], "rstd");
    need_f32(c.out[1], "dw");
    need_same(c.in[0], c.in[1], "dy and s");
    need_same(c.in[0], c.out[0], "dy and dx");
    need_size(c.in[2], columns(c.in[0]), "w");
    need_size(c.in[3], rows(c.in[0]), "rstd");
    need_size(c.out[1], columns(c.in[0]), "dw");
    if (c.has(4)) need_same(c.in[0], c.in[4], "dy and ds");
    if (c.has(5)) need_same(c.out[1], c.in[5], "dw and dw_acc");
  }
  static uint64_t workspace(const Call& c) {
    return static_cast<uint64_t>(chunk_count(rows(c.in[0])) * stride(columns(c.in[0]))) * sizeof(float);
  }
  RmsNormGrad(const Call& c, void* device)
      : simd(simd_for(device)), threads(c.parallel), n(rows(c.in[0])), h(columns(c.in[0])) {}
  void run(const Args& args) const {
    norm_backward b{};
    b.dy = args.in<float>(0), b.s = args.in<float>(1), b.w = args.in<float>(2), b.rstd = args.in<float>(3);
    b.ds = args.in<float>(4), b.dx = args.out<float>(0), b.h = h;
    const float* acc = args.in<float>(5);
    float *dw = args.out<float>(1), *scratch = args.scratch<float>();
    const int64_t each = chunk_rows(n), chunks = chunk_count(n), wide = stride(h);
    in_ranges(threads, chunks, each * h, 1, [&](int64_t first, int64_t last) {
      for (int64_t k = first; k < last; ++k)
        simd.rms_norm_grad(b, k * each, std::min(n, (k + 1) * each), scratch + k * wide);
    });
    in_ranges(threads, h, chunks, line_unit,
              [&](int64_t first, int64_t last) { simd.fold_chunks(scratch, chunks, wide, acc, dw, first, last); });
  }
};

}  // namespace

extern const eng_kernel* const norm_kernels[] = {&kernel<RmsNorm>, &kernel<RmsNormGrad>};
extern const uint32_t norm_kernel_count = std::size(norm_kernels);

}  // namespace cpu
