// SPDX-License-Identifier: Apache-2.0
// eng.fp8.linear/1 and eng.fp8.matmul/1 (engine/ops_fp8.h). An operand is rounded into scratch as bf16, which has every
// value of the formats, and every power of two that they are scaled by: then the product is one of bf16.
#include "engine/ops_fp8.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <iterator>

#include "../../common/kernel.hpp"
#include "gemm.hpp"
#include "kernels.hpp"
#include "simd/select.hpp"

namespace cpu {
namespace {

struct Fp8Operand {
  int64_t n;
  int32_t type, format;
};

constexpr uint64_t fp8_aligned(uint64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

class Fp8Product {
 public:
  Fp8Product(const Call& c, void* device, const GemmShape& shape, const Fp8Operand& a, const Fp8Operand& b)
      : gemm_(device_of(device), shape, c.parallel),
        simd_(simd_for(device)),
        threads_(c.parallel),
        margin_(static_cast<int32_t>(c.integer_or("margin", 0))),
        a_(a),
        b_(b),
        first_(fp8_aligned(Gemm::scratch(shape, c.parallel))) {}
  static uint64_t workspace(const Call& c, const GemmShape& s, const Fp8Operand& a, const Fp8Operand& b) {
    return fp8_aligned(Gemm::scratch(s, c.parallel)) + fp8_aligned(sizeof(bf16) * static_cast<uint64_t>(a.n)) +
           sizeof(bf16) * static_cast<uint64_t>(b.n);
  }
  void run(const Args& args, const void* plus, int64_t plus_stride) const {
    char* const scratch = args.scratch<char>();
    bf16* const a = reinterpret_cast<bf16*>(scratch + first_);
    bf16* const b = reinterpret_cast<bf16*>(scratch + first_ + fp8_aligned(sizeof(bf16) * static_cast<uint64_t>(a_.n)));
    round(a_, args.in<void>(0), a), round(b_, args.in<void>(1), b);
    gemm_.run(a, b, plus, plus_stride, args.out<void>(0), scratch);
  }

 private:
  void round(const Fp8Operand& o, const void* from, bf16* to) const {
    by_type(o.type, [&]<class T>(T) {
      const T* const x = static_cast<const T*>(from);
      const auto& loops = simd_.of<T>();
      std::atomic<uint32_t> largest{0};
      in_lines(threads_, o.n, [&](int64_t first, int64_t last) {
        const uint32_t mine = loops.largest_finite(x, first, last);
        uint32_t all = largest.load(std::memory_order_relaxed);
        while (all < mine && !largest.compare_exchange_weak(all, mine, std::memory_order_relaxed)) {
        }
      });
      const int32_t n = eng_fp8_exponent(o.format, std::bit_cast<float>(largest.load()), margin_);
      const fp8_format format =
          o.format == ENG_FP8_E4M3 ? fp8_format{3, 121, 448.0f, false} : fp8_format{2, 113, 57344.0f, true};
      in_lines(threads_, o.n, [&](int64_t first, int64_t last) {
        loops.to_fp8(format, eng_fp8_power(n), eng_fp8_power(-n), x, to, first, last);
      });
    });
  }

  Gemm gemm_;
  const simd_table& simd_;
  unsigned threads_;
  int32_t margin_;
  Fp8Operand a_, b_;
  uint64_t first_;  // the byte of the scratch at which the rounded operands begin
};

void need_margin(const Call& c) {
  if (c.integer_or("margin", 0) < 0 || c.integer_or("margin", 0) > 64)
    throw Error{ENG_INVALID, "margin must be 0 to 64"};
}
int32_t format_of(const Call& c, const char* key) {
  const int64_t format = c.integer(key);
  if (format != ENG_FP8_E4M3 && format != ENG_FP8_E5M2)
    throw Error{ENG_UNSUPPORTED, std::string(key) + " must be ENG_FP8_E4M3 or ENG_FP8_E5M2"};
  return static_cast<int32_t>(format);
}

struct Fp8Linear {
  static constexpr const char* op = ENG_OP_FP8_LINEAR;
  Fp8Product product;

  static GemmShape shape(const Call& c) {
    const Stored s = stored_of(c.in[0]);
    return {rows(c.in[0]), rows(c.in[1]), columns(c.in[0]), false, true, stored_bf16, stored_bf16, s, s};
  }
  static Fp8Operand operand(const Call& c, size_t k) { return {elements(c.in[k]), c.in[k].dtype, ENG_FP8_E4M3}; }
  static void check(const Call& c) {
    need_arguments(c, 2, 3, 1), need_one_type(c, 3), need_same_type(c.in[0], c.out[0], "x and y"), need_margin(c);
    need_size("columns of w", columns(c.in[1]), columns(c.in[0]));
    need_size("columns of y", columns(c.out[0]), rows(c.in[1]));
    need_size("rows of y", rows(c.out[0]), rows(c.in[0]));
    if (c.has(2)) need_size("elements of bias", elements(c.in[2]), rows(c.in[1]));
  }
  static uint64_t workspace(const Call& c) { return Fp8Product::workspace(c, shape(c), operand(c, 0), operand(c, 1)); }
  Fp8Linear(const Call& c, void* device) : product(c, device, shape(c), operand(c, 0), operand(c, 1)) {}
  void run(const Args& a) const { product.run(a, a.in<void>(2), 0); }
};

struct Fp8Matmul {
  static constexpr const char* op = ENG_OP_FP8_MATMUL;
  Fp8Product product;
  int64_t stride;

  static GemmShape shape(const Call& c) {
    const bool ta = c.integer("ta") != 0, tb = c.integer("tb") != 0;
    const Stored out = stored_of(c.out[0]);
    return {ta ? columns(c.in[0]) : rows(c.in[0]),
            tb ? rows(c.in[1]) : columns(c.in[1]),
            ta ? rows(c.in[0]) : columns(c.in[0]),
            ta,
            tb,
            stored_bf16,
            stored_bf16,
            out,
            out};
  }
  static Fp8Operand operand(const Call& c, size_t k) {
    return {elements(c.in[k]), c.in[k].dtype, format_of(c, k ? "b" : "a")};
  }
  static void check(const Call& c) {
    need_arguments(c, 2, 3, 1), need_one_type(c, 2), need_sums(c, c.in[0].dtype, {2}, {0}), need_margin(c);
    format_of(c, "a"), format_of(c, "b");
    const GemmShape s = shape(c);
    need_size("the inner size of b", s.tb ? columns(c.in[1]) : rows(c.in[1]), s.k);
    need_size("elements of c", elements(c.out[0]), s.m * s.n);
    if (c.has(2)) need_size("elements of acc", elements(c.in[2]), s.m * s.n);
  }
  static uint64_t workspace(const Call& c) { return Fp8Product::workspace(c, shape(c), operand(c, 0), operand(c, 1)); }
  Fp8Matmul(const Call& c, void* device)
      : product(c, device, shape(c), operand(c, 0), operand(c, 1)), stride(shape(c).n) {}
  void run(const Args& a) const { product.run(a, a.in<void>(2), stride); }
};

}  // namespace

const eng_kernel* const fp8_kernels[] = {&kernel<Fp8Linear>, &kernel<Fp8Matmul>};
const uint32_t fp8_kernel_count = std::size(fp8_kernels);

}  // namespace cpu
