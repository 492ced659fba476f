// SPDX-License-Identifier: Apache-2.0
// layer_norm, with or without weight, bias and the residual sum, and its gradient.
#include <algorithm>
#include <iterator>

#include "simd/select.hpp"

namespace cpu {
namespace {

struct LayerNorm {
  static constexpr const char* op = ENG_OP_LAYER_NORM;
  const simd_table& simd;
  unsigned threads;
  int64_t n, h;
  float eps;

  static void check(const Call& c) {
    need_counts(c, 1, 4, 2, 3);
    need_f32(c.in[0], "x");
    need_f32(c.out[1], "stats");
    need_size(c.out[1], 2 * rows(c.in[0]), "stats");
    need_same(c.in[0], c.out[0], "x and y");
    for (size_t k : {1, 2})
      if (c.has(k)) need_f32(c.in[k], "w or bias"), need_size(c.in[k], columns(c.in[0]), k == 1 ? "w" : "bias");
    need(c.has(1) || !c.has(2), "a bias needs a weight");
    if (c.has(3) != c.has_out(2)) throw Error{ENG_INVALID, "a residual input and the output s must be given together"};
    if (c.has(3)) need_same(c.in[0], c.in[3], "x and residual"), need_same(c.in[0], c.out[2], "x and s");
    c.real("eps");
  }
  LayerNorm(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        n(rows(c.in[0])),
        h(columns(c.in[0])),
        eps(static_cast<float>(c.real("eps"))) {}
  void run(const Args& args) const {
    layer_norm_forward f{};
    f.x = args.in<float>(0), f.w = args.in<float>(1), f.bias = args.in<float>(2), f.residual = args.in<float>(3);
    f.y = args.out<float>(0), f.stats = args.out<float>(1), f.s = args.out<float>(2);
    f.h = h, f.eps = eps;
    in_ranges(threads, n, h, n < 1024 ? 1 : 16, [&](int64_t first, int64_t last) { simd.layer_norm(f, first, last); });
  }
};

// The gradients of weight and bias are sums over all rows. Their order depends on the shapes only: rows are cut into
// chunks, each is summed in row order into its own two lines of scratch memory, then the lines are added in order.
struct LayerNormGrad {
  static constexpr const char* op = ENG_OP_LAYER_NORM_GRAD;
  static constexpr int64_t least_rows = 64, most_chunks = 256;
  const simd_table& simd;
  unsigned threads;
  int64_t n, h;
  bool weight;

  static int64_t chunk_rows(int64_t n) { return std::max(least_rows, (n + most_chunks - 1) / most_chunks); }
  static int64_t chunk_count(int64_t n) { return (n + chunk_rows(n) - 1) / chunk_rows(n); }
  static int64_t stride(int64_t h) { return (h + line_unit - 1) / line_unit * line_unit; }

  static void check(const Call& c) {
    const size_t bias = c.integer("bias") != 0, outputs = 1 + c.has(2) + bias;
    need_counts(c, 4, 7, outputs, outputs);
    need_f32(c.in[0], "dy");
    need_f32(c.in[3], "stats");
    need_same(c.in[0], c.in[1], "dy and s");
    need_same(c.in[0], c.out[0], "dy and dx");
    need_size(c.in[3], 2 * rows(c.in[0]), "stats");
    need(c.has(2) || !bias, "a bias needs a weight");
    if (c.has(2)) need_f32(c.in[2], "w"), need_size(c.in[2], columns(c.in[0]), "w");
    for (size_t k = 1; k < c.out.size(); ++k) need_same(c.out[k], c.in[2], "w and its gradients");
    if (c.has(4)) need_same(c.in[0], c.in[4], "dy and ds");
    for (size_t k : {5, 6})
      if (c.has(k)) need(outputs > k - 4, "an accumulator without its output"), need_same(c.out[k - 4], c.in[k], "acc");
  }
  static uint64_t workspace(const Call& c) {
    if (!c.has(2)) return 0;
    return static_cast<uint64_t>(chunk_count(rows(c.in[0])) * 2 * stride(columns(c.in[0]))) * sizeof(float);
  }
  LayerNormGrad(const Call& c, void* device)
      : simd(simd_for(device)), threads(c.parallel), n(rows(c.in[0])), h(columns(c.in[0])), weight(c.has(2)) {}
  void run(const Args& args) const {
    layer_norm_backward b{};
    b.dy = args.in<float>(0), b.s = args.in<float>(1), b.w = args.in<float>(2), b.stats = args.in<float>(3);
    b.ds = args.in<float>(4), b.dx = args.out<float>(0), b.h = h;
    float *dw = args.out<float>(1), *dbias = args.out<float>(2), *scratch = args.scratch<float>();
    const int64_t each = chunk_rows(n), chunks = chunk_count(n), line = stride(h);
    in_ranges(threads, chunks, each * h, 1, [&](int64_t first, int64_t last) {
      for (int64_t k = first; k < last; ++k) {
        float* const lines = weight ? scratch + k * 2 * line : nullptr;
        simd.layer_norm_grad(b, k * each, std::min(n, (k + 1) * each), lines, weight ? lines + line : nullptr);
      }
    });
    if (weight)
      in_ranges(threads, h, chunks, line_unit, [&](int64_t first, int64_t last) {
        simd.fold_chunks(scratch, chunks, 2 * line, args.in<float>(5), dw, first, last);
        if (dbias) simd.fold_chunks(scratch + line, chunks, 2 * line, args.in<float>(6), dbias, first, last);
      });
  }
};

}  // namespace

extern const eng_kernel* const layer_norm_kernels[] = {&kernel<LayerNorm>, &kernel<LayerNormGrad>};
extern const uint32_t layer_norm_kernel_count = std::size(layer_norm_kernels);

}  // namespace cpu
