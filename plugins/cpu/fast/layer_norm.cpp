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
  int32_t type;
  int64_t n, h;
  float eps;

  static void check(const Call& c) {
    need_counts(c, 1, 4, 2, 3);
    need_float(c.in[0], "x");
    need_f32(c.out[1], "stats");
    need_size(c.out[1], 2 * rows(c.in[0]), "stats");
    need_same(c.in[0], c.out[0], "x and y");
    for (size_t k : {1, 2})
      if (c.has(k)) {
        need_same_type(c.in[0], c.in[k], "x and w or bias");
        need_size(c.in[k], columns(c.in[0]), k == 1 ? "w" : "bias");
      }
    need(c.has(1) || !c.has(2), "a bias needs a weight");
    if (c.has(3) != c.has_out(2)) throw Error{ENG_INVALID, "a residual input and the output s must be given together"};
    if (c.has(3)) need_same(c.in[0], c.in[3], "x and residual"), need_same(c.in[0], c.out[2], "x and s");
    c.real("eps");
  }
  LayerNorm(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[0].dtype),
        n(rows(c.in[0])),
        h(columns(c.in[0])),
        eps(static_cast<float>(c.real("eps"))) {}
  void run(const Args& args) const {
    by_type(type, [&]<class T>(T) {
      layer_norm_forward<T> f{};
      f.x = args.in<T>(0), f.w = args.in<T>(1), f.bias = args.in<T>(2), f.residual = args.in<T>(3);
      f.y = args.out<T>(0), f.stats = args.out<float>(1), f.s = args.out<T>(2);
      f.h = h, f.eps = eps;
      in_ranges(threads, n, h, n < 1024 ? 1 : 16,
                [&](int64_t first, int64_t last) { simd.of<T>().layer_norm(f, first, last); });
    });
  }
};

// The gradients of weight and bias are sums over all rows. Their order depends on the shapes only: rows are cut into
// chunks, each is summed in row order into its own two lines of scratch memory, then the lines are added in order.
struct LayerNormGrad {
  static constexpr const char* op = ENG_OP_LAYER_NORM_GRAD;
  static constexpr int64_t least_rows = 64, most_chunks = 256;
  const simd_table& simd;
  unsigned threads;
  int32_t type, sums;
  int64_t n, h;
  bool weight;

  static int64_t chunk_rows(int64_t n) { return std::max(least_rows, (n + most_chunks - 1) / most_chunks); }
  static int64_t chunk_count(int64_t n) { return (n + chunk_rows(n) - 1) / chunk_rows(n); }
  static int64_t stride(int64_t h) { return (h + line_unit - 1) / line_unit * line_unit; }

  static void check(const Call& c) {
    const size_t bias = c.integer("bias") != 0, outputs = 1 + c.has(2) + bias;
    need_counts(c, 4, 7, outputs, outputs);
    need_float(c.in[0], "dy");
    need_f32(c.in[3], "stats");
    need_same(c.in[0], c.in[1], "dy and s");
    need_same(c.in[0], c.out[0], "dy and dx");
    need_size(c.in[3], 2 * rows(c.in[0]), "stats");
    need(c.has(2) || !bias, "a bias needs a weight");
    if (c.has(2)) need_same_type(c.in[0], c.in[2], "dy and w"), need_size(c.in[2], columns(c.in[0]), "w");
    need_sums(c, c.in[0].dtype, {5, 6}, {1, 2});
    for (size_t k = 1; k < c.out.size(); ++k) need_size(c.out[k], columns(c.in[0]), "dw and dbias");
    if (c.has(4)) need_same(c.in[0], c.in[4], "dy and ds");
    for (size_t k : {5, 6})
      if (c.has(k)) need(outputs > k - 4, "an accumulator without its output"), need_same(c.out[k - 4], c.in[k], "acc");
  }
  static uint64_t workspace(const Call& c) {
    if (!c.has(2)) return 0;
    return static_cast<uint64_t>(chunk_count(rows(c.in[0])) * 2 * stride(columns(c.in[0]))) * sizeof(float);
  }
  LayerNormGrad(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[0].dtype),
        sums(c.has_out(1) ? c.out[1].dtype : 0),
        n(rows(c.in[0])),
        h(columns(c.in[0])),
        weight(c.has(2)) {}
  void run(const Args& args) const {
    float* const scratch = args.scratch<float>();
    const int64_t each = chunk_rows(n), chunks = chunk_count(n), line = stride(h);
    by_type(type, [&]<class T>(T) {
      layer_norm_backward<T> b{};
      b.dy = args.in<T>(0), b.s = args.in<T>(1), b.w = args.in<T>(2), b.stats = args.in<float>(3);
      b.ds = args.in<T>(4), b.dx = args.out<T>(0), b.h = h;
      in_ranges(threads, chunks, each * h, 1, [&](int64_t first, int64_t last) {
        for (int64_t k = first; k < last; ++k) {
          float* const lines = weight ? scratch + k * 2 * line : nullptr;
          simd.of<T>().layer_norm_grad(b, k * each, std::min(n, (k + 1) * each), lines,
                                       weight ? lines + line : nullptr);
        }
      });
    });
    if (!weight) return;
    by_type(sums, [&]<class Sum>(Sum) {
      Sum *dw = args.out<Sum>(1), *dbias = args.out<Sum>(2);
      in_ranges(threads, h, chunks, line_unit, [&](int64_t first, int64_t last) {
        const auto fold = simd.of<Sum>().fold_chunks;
        fold(scratch, chunks, 2 * line, args.in<Sum>(5), dw, first, last);
        if (dbias) fold(scratch + line, chunks, 2 * line, args.in<Sum>(6), dbias, first, last);
      });
    });
  }
};

}  // namespace

extern const eng_kernel* const layer_norm_kernels[] = {&kernel<LayerNorm>, &kernel<LayerNormGrad>};
extern const uint32_t layer_norm_kernel_count = std::size(layer_norm_kernels);

}  // namespace cpu
