// SPDX-License-Identifier: Apache-2.0
// The sum of rows in a balanced tree.
#include <bit>
#include <iterator>

#include "../../common/half.hpp"
#include "simd/select.hpp"

namespace cpu {
namespace {

struct Fold {
  static constexpr const char* op = ENG_OP_FOLD;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  static constexpr int64_t tile = 512;  // elements
  static constexpr int deepest = 20;    // most levels of the tree
  unsigned threads;
  int64_t rows, n;
  int32_t type, sum_type;

  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1);
    const int32_t type = c.in[0].dtype;
    if (type != ENG_F32 && type != ENG_BF16 && type != ENG_F16)
      throw Error{ENG_UNSUPPORTED, "x is neither f32 nor bf16 nor f16"};
    need(c.out[0].dtype == type || c.out[0].dtype == ENG_F32, "the sum must have the type of x, or be f32");
    const int64_t rows = c.integer("rows");
    need(rows >= 1 && rows <= int64_t{1} << deepest, "rows must be 1 to 2^20");
    need(elements(c.in[0]) == rows * elements(c.out[0]), "x must be `rows` rows of the sum's length");
  }
  explicit Fold(const Call& c)
      : threads(c.parallel),
        rows(c.integer("rows")),
        n(elements(c.out[0])),
        type(c.in[0].dtype),
        sum_type(c.out[0].dtype) {}

  // sum[j] = x[j] + x[n + j] + ... over m rows, as a balanced tree: the left half is the largest power of two below m,
  // the right half the rest. Each level of the recursion uses one row of `spare`.
  void add(const float* x, int64_t m, int64_t count, float* sum, float (*spare)[tile]) const {
    if (m == 1) {
      for (int64_t j = 0; j < count; ++j) sum[j] = x[j];
    } else if (m == 2) {
      for (int64_t j = 0; j < count; ++j) sum[j] = x[j] + x[n + j];
    } else {
      const auto half = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(m - 1)));
      add(x, half, count, sum, spare);
      add(x + half * n, m - half, count, *spare, spare + 1);
      for (int64_t j = 0; j < count; ++j) sum[j] = sum[j] + (*spare)[j];
    }
  }
  // Adds 16-bit values in the same tree: every sum is rounded to Sum, and kept in f32.
  template <class Sum, class T>
  void add_half(const T* x, int64_t m, int64_t count, float* sum, float (*spare)[tile]) const {
    const auto rounded = [](float value) {
      if constexpr (sizeof(Sum) == sizeof(float)) return value;
      Sum out;
      from_f32(value, out);
      return to_f32(out);
    };
    if (m == 1) {
      for (int64_t j = 0; j < count; ++j) sum[j] = to_f32(x[j]);
    } else {
      const auto half = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(m - 1)));
      add_half<Sum>(x, half, count, sum, spare);
      add_half<Sum>(x + half * n, m - half, count, *spare, spare + 1);
      for (int64_t j = 0; j < count; ++j) sum[j] = rounded(sum[j] + (*spare)[j]);
    }
  }
  template <class T>
  void run_half(const Args& args) const {
    const T* x = args.in<T>(0);
    in_lines(threads, n, [&](int64_t first, int64_t last) {
      float spare[deepest + 1][tile];
      for (int64_t j = first; j < last; j += tile) {
        const int64_t count = std::min(tile, last - j);
        if (sum_type == ENG_F32) {
          add_half<float>(x + j, rows, count, args.out<float>(0) + j, spare);
          continue;
        }
        add_half<T>(x + j, rows, count, spare[0], spare + 1);
        for (int64_t k = 0; k < count; ++k) from_f32(spare[0][k], args.out<T>(0)[j + k]);
      }
    });
  }
  void run(const Args& args) const {
    if (type == ENG_BF16) return run_half<Bf16>(args);
    if (type == ENG_F16) return run_half<F16>(args);
    const float* x = args.in<float>(0);
    float* sum = args.out<float>(0);
    in_lines(threads, n, [&](int64_t first, int64_t last) {
      float spare[deepest][tile];
      for (int64_t j = first; j < last; j += tile) add(x + j, rows, std::min(tile, last - j), sum + j, spare);
    });
  }
};

}  // namespace

extern const eng_kernel* const fold_kernels[] = {&kernel<Fold>};
extern const uint32_t fold_kernel_count = std::size(fold_kernels);

}  // namespace cpu
