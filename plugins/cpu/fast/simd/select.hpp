// SPDX-License-Identifier: Apache-2.0
// The inner loops that a device uses, and how its kernels share work between threads.
#pragma once

#include <cstdint>
#include <string>

#include "../../../common/kernel.hpp"
#include "../shapes.hpp"
#include "../threads.hpp"
#include "engine/ops.h"
#include "table.hpp"

namespace cpu {

// The loops for the widest instruction set that the processor has and the device's option `isa` allows.
const simd_table& simd_for(const void* device);

// A parallel region costs some microseconds: below this many elements one thread is faster.
constexpr int64_t parallel_least = 16384;

// f(first, last) on ranges of 0 .. n that start at multiples of `unit`; `weight` elements belong to one item.
// f may not depend on where a range is cut. f must not throw.
template <class F>
void in_ranges(unsigned threads, int64_t n, int64_t weight, int64_t unit, F&& f) {
  if (n <= 0) return;
  if (n * weight < parallel_least) return f(int64_t{0}, n);
  parallel_for(threads, [&](unsigned thread, unsigned count) {
    const Share share = share_of(n, thread, count, unit);
    if (share.first < share.last) f(share.first, share.last);
  });
}

// At least 128 bytes: neighbours never write to one cache line, whatever the width.
constexpr int64_t line_unit = 64;

// Elementwise over n elements.
template <class F>
void in_lines(unsigned threads, int64_t n, F&& f) {
  in_ranges(threads, n, 1, line_unit, f);
}

// Calls f(T{}, Sum{}): Sum, the type of sums over rows, is T or float.
template <class F>
void by_types(int32_t dtype, int32_t sums, F&& f) {
  by_type(dtype, [&](auto t) {
    if (sums == dtype)
      f(t, t);
    else
      f(t, float{});
  });
}

template <class T, class Sum>
void sum_rows(const simd_table& simd, const row_sums<T, Sum>& call, int64_t begin, int64_t end) {
  if constexpr (sizeof(T) == sizeof(Sum))
    simd.of<T>().sum_rows(call, begin, end);
  else
    simd.of<T>().sum_rows_wide(call, begin, end);
}

inline void need(bool condition, const char* text) {
  if (!condition) throw Error{ENG_INVALID, text};
}
inline void need_counts(const Call& c, size_t in_least, size_t in_most, size_t out_least, size_t out_most) {
  if (c.in.size() < in_least || c.in.size() > in_most || c.out.size() < out_least || c.out.size() > out_most)
    throw Error{ENG_INVALID, "has " + std::to_string(c.in.size()) + " inputs and " + std::to_string(c.out.size()) +
                                 " outputs, the op takes " + std::to_string(in_least) + " to " +
                                 std::to_string(in_most) + " and " + std::to_string(out_least) + " to " +
                                 std::to_string(out_most)};
}
inline void need_same(const eng_desc& a, const eng_desc& b, const char* what) {
  need_same_type(a, b, what);
  if (elements(a) != elements(b))
    throw Error{ENG_INVALID, std::string(what) + " differ in size: " + describe(a) + ", " + describe(b)};
}
inline void need_size(const eng_desc& d, int64_t n, const char* what) {
  if (elements(d) != n)
    throw Error{ENG_INVALID, std::string(what) + " must have " + std::to_string(n) + " elements, it is " + describe(d)};
}
inline void need_scalars(const eng_desc& d) {
  need_f32(d, "scalars");
  need_size(d, ENG_S_COUNT, "scalars");
}
inline void need_counters(const eng_desc& d) {
  if (d.dtype != ENG_I64) throw Error{ENG_INVALID, "counters must be i64, they are " + describe(d)};
  need_size(d, ENG_C_COUNT, "counters");
}

}  // namespace cpu
