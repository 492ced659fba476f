// SPDX-License-Identifier: Apache-2.0
// The ops of engine/ops_fp8.h. An operand is rounded into scratch as bf16, which has every value of the formats, and
// every power of two that they are scaled by: then the product is one of bf16.
#include "engine/ops_fp8.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <iterator>

#include "../../common/fp8_states.hpp"
#include "gemm.hpp"
#include "kernels.hpp"
#include "simd/select.hpp"

namespace cpu {
namespace {

struct Fp8Operand {
  int64_t n;
  int32_t type, format;
  int64_t scale;  // the element of the state with its scale; -1: there is no state
};

// The place of a row's scale.
int64_t scale_at(const Call& c, int64_t row) {
  return c.has(3) ? row * columns(c.in[3]) : -1;
}
void need_state(const Call& c, size_t k) {
  if (c.has(k) && (c.in[k].dtype != ENG_F32 || rows(c.in[k]) != 3 || columns(c.in[k]) < 3))
    throw Error{ENG_INVALID, "a state must be f32 (3, 2 + H)"};
}

template <class T>
float largest_finite_of(const simd_table& simd, unsigned threads, const T* x, int64_t n) {
  std::atomic<uint32_t> largest{0};
  in_lines(threads, n, [&](int64_t first, int64_t last) {
    const uint32_t mine = simd.of<T>().largest_finite(x, first, last);
    uint32_t all = largest.load(std::memory_order_relaxed);
    while (all < mine && !largest.compare_exchange_weak(all, mine, std::memory_order_relaxed)) {
    }
  });
  return std::bit_cast<float>(largest.load());
}

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
    const float* const state = args.in<float>(3);
    round(a_, args.in<void>(0), state, a), round(b_, args.in<void>(1), state, b);
    gemm_.run(a, b, plus, plus_stride, args.out<void>(0), scratch);
  }

 private:
  void round(const Fp8Operand& o, const void* from, const float* state, bf16* to) const {
    by_type(o.type, [&]<class T>(T) {
      const T* const x = static_cast<const T*>(from);
      float up = o.scale < 0 ? 0 : state[o.scale];
      if (up <= 0) up = eng_fp8_power(eng_fp8_exponent(o.format, largest_finite_of(simd_, threads_, x, o.n), margin_));
      const fp8_format format =
          o.format == ENG_FP8_E4M3 ? fp8_format{3, 121, 448.0f, false} : fp8_format{2, 113, 57344.0f, true};
      in_lines(threads_, o.n,
               [&](int64_t first, int64_t last) { simd_.of<T>().to_fp8(format, up, 1.0f / up, x, to, first, last); });
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
  static Fp8Operand operand(const Call& c, size_t k) {
    return {elements(c.in[k]), c.in[k].dtype, ENG_FP8_E4M3, scale_at(c, static_cast<int64_t>(k))};
  }
  static void check(const Call& c) {
    need_arguments(c, 2, 4, 1), need_one_type(c, 3), need_same_type(c.in[0], c.out[0], "x and y"), need_margin(c);
    need_state(c, 3);
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
    const int64_t row = c.has(3) ? c.integer(k ? "b_row" : "a_row") : 0;
    if (row < 0 || row > 2) throw Error{ENG_INVALID, "a row of the state must be 0 to 2"};
    return {elements(c.in[k]), c.in[k].dtype, format_of(c, k ? "b" : "a"), scale_at(c, row)};
  }
  static void check(const Call& c) {
    need_arguments(c, 2, 4, 1), need_one_type(c, 2), need_sums(c, c.in[0].dtype, {2}, {0}), need_margin(c);
    need_state(c, 3), operand(c, 0), operand(c, 1);
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

struct Fp8Largest {
  static constexpr const char* op = ENG_OP_FP8_LARGEST;
  const Call c;
  const simd_table& simd;

  Fp8Largest(const Call& call, void* device) : c(call), simd(simd_for(device)) {}
  static void check(const Call& c) {
    need_arguments(c, 1, 4, 1), need_state(c, 0);
    need_size("elements of the output", elements(c.out[0]), elements(c.in[0]));
    for (size_t k = 1; k < c.in.size(); ++k)
      if (c.has(k) && c.in[k].dtype == ENG_F64) throw Error{ENG_UNSUPPORTED, "computes in f32, bf16 or f16"};
  }
  void run(const Args& args) const {
    for (size_t k = 1; k < c.in.size(); ++k)
      if (c.has(k))
        by_type(c.in[k].dtype, [&]<class T>(T) {
          float& largest = args.out<float>(0)[static_cast<int64_t>(k - 1) * columns(c.in[0]) + 1];
          largest = std::max(largest, largest_finite_of(simd, c.parallel, args.in<T>(k), elements(c.in[k])));
        });
  }
};

}  // namespace

const eng_kernel* const fp8_kernels[] = {&kernel<Fp8Linear>, &kernel<Fp8Matmul>, &kernel<Fp8Largest>,
                                         &kernel<common::Fp8Collect>, &kernel<common::Fp8Roll>};
const uint32_t fp8_kernel_count = std::size(fp8_kernels);

}  // namespace cpu
