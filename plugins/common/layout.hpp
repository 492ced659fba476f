// SPDX-License-Identifier: Apache-2.0
// eng.reshape/1, eng.transpose/1, eng.split/1 and eng.concat/1 on every device whose memory is host memory: copies of
// bytes, whatever their type. `Threads::ranges(threads, n, weight, f)` calls f(first, last) on ranges of 0 .. n, in any
// order; `weight` says how many elements belong to one item.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernel.hpp"

namespace common {

struct OneThread {
  template <class F>
  static void ranges(unsigned, int64_t n, int64_t, F&& f) {
    if (n > 0) f(int64_t{0}, n);
  }
};

inline int64_t dims_product(const int64_t* first, const int64_t* last) {
  int64_t n = 1;
  for (; first != last; ++first) n *= *first;
  return n;
}

template <class Threads>
struct ReshapeKernel {
  static constexpr const char* op = ENG_OP_RESHAPE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int64_t bytes;
  unsigned threads;

  static void check(const Call& c) {
    if (c.in.size() != 1 || c.out.size() != 1 || c.in[0].dtype != c.out[0].dtype ||
        elements(c.in[0]) != elements(c.out[0]))
      throw Error{ENG_INVALID, "y must have the type and the number of elements of x"};
  }
  explicit ReshapeKernel(const Call& c) : bytes(elements(c.in[0]) * dtype_size(c.in[0].dtype)), threads(c.parallel) {}
  void run(const Args& args) const {
    const char* x = args.in<char>(0);
    char* y = args.out<char>(0);
    if (x == y) return;  // in place
    constexpr int64_t line = 256;
    Threads::ranges(threads, (bytes + line - 1) / line, line / 4, [&](int64_t first, int64_t last) {
      std::memcpy(y + first * line, x + first * line, static_cast<size_t>(std::min(last * line, bytes) - first * line));
    });
  }
};

template <class Threads>
struct TransposeKernel {
  static constexpr const char* op = ENG_OP_TRANSPOSE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  static constexpr int64_t side = 16;            // of a tile
  int64_t outer = 1, a = 1, between = 1, b = 1;  // x is (outer, a, between, b, inner)
  int64_t inner;                                 // bytes
  unsigned threads;

  static void check(const Call& c) {
    const auto n = static_cast<int64_t>(c.in.empty() ? 0 : c.in[0].ndim);
    const int64_t first = c.integer("a"), second = c.integer("b");
    if (c.in.size() != 1 || c.out.size() != 1 || first < 0 || second < 0 || first >= n || second >= n)
      throw Error{ENG_INVALID, "a and b must be dimensions of x"};
    eng_desc y = c.in[0];
    std::swap(y.dims[first], y.dims[second]);
    if (y.dtype != c.out[0].dtype || y.ndim != c.out[0].ndim || !std::equal(y.dims, y.dims + n, c.out[0].dims))
      throw Error{ENG_INVALID, "y must be x with these dimensions exchanged"};
  }
  explicit TransposeKernel(const Call& c) : threads(c.parallel) {
    const int64_t* d = c.in[0].dims;
    const int64_t low = std::min(c.integer("a"), c.integer("b")), high = std::max(c.integer("a"), c.integer("b"));
    const int64_t n = c.in[0].ndim, size = dtype_size(c.in[0].dtype);
    if (low == high) {
      inner = dims_product(d, d + n) * size;
      return;
    }
    outer = dims_product(d, d + low), a = d[low], between = dims_product(d + low + 1, d + high), b = d[high];
    inner = dims_product(d + high + 1, d + n) * size;
  }
  // Size: the bytes of what moves together; 0: `inner`.
  template <int64_t Size>
  void move(const char* x, char* y, int64_t first, int64_t last) const {
    const int64_t tiles = (b + side - 1) / side, bytes = Size ? Size : inner;
    for (int64_t t = first; t < last; ++t) {
      const int64_t m = t % between, tile = t / between % tiles, o = t / (between * tiles);
      for (int64_t i = 0; i < a; ++i)
        for (int64_t j = tile * side; j < std::min(b, (tile + 1) * side); ++j)
          std::memcpy(y + (((o * b + j) * between + m) * a + i) * bytes,
                      x + (((o * a + i) * between + m) * b + j) * bytes, static_cast<size_t>(bytes));
    }
  }
  void run(const Args& args) const {
    const char* x = args.in<char>(0);
    char* y = args.out<char>(0);
    const int64_t tiles = (b + side - 1) / side;
    Threads::ranges(threads, outer * tiles * between, a * side, [&](int64_t first, int64_t last) {
      inner == 2   ? move<2>(x, y, first, last)
      : inner == 4 ? move<4>(x, y, first, last)
      : inner == 8 ? move<8>(x, y, first, last)
                   : move<0>(x, y, first, last);
    });
  }
};

// A tensor and the parts into which a dimension of it is divided, as rows of bytes.
struct Parts {
  int64_t rows = 1, row = 0;   // rows of the whole; bytes of one
  std::vector<int64_t> bytes;  // of a row of each part

  static int64_t length(const Call& c, const std::vector<eng_desc>& parts, size_t k, int64_t axis) {
    return parts[k].dtype ? parts[k].dims[axis] : c.integer_or(("size" + std::to_string(k)).c_str(), 0);
  }
  static void check(const Call& c, const eng_desc& whole, const std::vector<eng_desc>& parts) {
    const int64_t axis = c.integer("axis");
    if (axis < 0 || axis >= whole.ndim) throw Error{ENG_INVALID, "axis must be a dimension"};
    int64_t all = 0;
    for (size_t k = 0; k < parts.size(); ++k) {
      eng_desc like = whole;
      like.dims[axis] = length(c, parts, k, axis);
      if (parts[k].dtype && (parts[k].dtype != like.dtype || parts[k].ndim != like.ndim ||
                             !std::equal(like.dims, like.dims + like.ndim, parts[k].dims)))
        throw Error{ENG_INVALID, "the parts and the whole must agree in all dimensions but one"};
      all += like.dims[axis];
    }
    if (all != whole.dims[axis]) throw Error{ENG_INVALID, "the parts must be as long as the whole"};
  }
  Parts(const Call& c, const eng_desc& whole, const std::vector<eng_desc>& parts) {
    const int64_t axis = c.integer("axis");
    const int64_t inner = dims_product(whole.dims + axis + 1, whole.dims + whole.ndim) * dtype_size(whole.dtype);
    rows = dims_product(whole.dims, whole.dims + axis), row = whole.dims[axis] * inner;
    for (size_t k = 0; k < parts.size(); ++k) bytes.push_back(length(c, parts, k, axis) * inner);
  }
};

template <class Threads>
struct SplitKernel {
  static constexpr const char* op = ENG_OP_SPLIT;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Parts parts;
  unsigned threads;

  static void check(const Call& c) {
    if (c.in.size() != 1 || c.out.empty()) throw Error{ENG_INVALID, "takes one input and gives its parts"};
    Parts::check(c, c.in[0], c.out);
  }
  explicit SplitKernel(const Call& c) : parts(c, c.in[0], c.out), threads(c.parallel) {}
  void run(const Args& args) const {
    Threads::ranges(threads, parts.rows, parts.row / 4 + 1, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        const char* from = args.in<char>(0) + r * parts.row;
        for (size_t k = 0; k < parts.bytes.size(); from += parts.bytes[k++])
          std::memcpy(args.out<char>(k) + r * parts.bytes[k], from, static_cast<size_t>(parts.bytes[k]));
      }
    });
  }
};

template <class Threads>
struct ConcatKernel {
  static constexpr const char* op = ENG_OP_CONCAT;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Parts parts;
  unsigned threads;

  static void check(const Call& c) {
    if (c.in.empty() || c.out.size() != 1) throw Error{ENG_INVALID, "takes parts and gives the whole"};
    Parts::check(c, c.out[0], c.in);
  }
  explicit ConcatKernel(const Call& c) : parts(c, c.out[0], c.in), threads(c.parallel) {}
  void run(const Args& args) const {
    Threads::ranges(threads, parts.rows, parts.row / 4 + 1, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        char* to = args.out<char>(0) + r * parts.row;
        for (size_t k = 0; k < parts.bytes.size(); to += parts.bytes[k++])
          if (const char* from = args.in<char>(k))
            std::memcpy(to, from + r * parts.bytes[k], static_cast<size_t>(parts.bytes[k]));
          else
            std::memset(to, 0, static_cast<size_t>(parts.bytes[k]));
      }
    });
  }
};

}  // namespace common
