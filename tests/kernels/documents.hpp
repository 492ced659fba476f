// SPDX-License-Identifier: Apache-2.0
// Samples that hold several documents, and each document alone.
#pragma once

#include <numeric>

#include "kernel_harness.hpp"

namespace kernels_test {

struct Documents {
  std::vector<Dims> lengths;  // of the documents of each sequence, which are equally long

  int64_t batch() const { return int64_t(lengths.size()); }
  int64_t tokens() const { return std::accumulate(lengths[0].begin(), lengths[0].end(), int64_t{0}); }
  // Calls f(b, first, n, number in its sequence) for each document.
  template <class F>
  void each(F&& f) const {
    for (int64_t b = 0; b < batch(); ++b) {
      int64_t first = 0, number = 0;
      for (const int64_t n : lengths[size_t(b)]) f(b, first, n, number++), first += n;
    }
  }
  // Only neighbours differ: the third document of a sequence has the value of the first.
  Tensor segments() const {
    Tensor out(ENG_I32, {batch(), tokens()});
    each([&](int64_t b, int64_t first, int64_t n, int64_t number) {
      for (int64_t t = first; t < first + n; ++t) out.put(b * tokens() + t, number % 2 ? -3 : 7);
    });
    return out;
  }
  Tensor positions() const {
    Tensor out(ENG_I32, {batch(), tokens()});
    each([&](int64_t b, int64_t first, int64_t n, int64_t) {
      for (int64_t t = 0; t < n; ++t) out.put(b * tokens() + first + t, double(t));
    });
    return out;
  }
  // Planted fault: the first border of the first sequence lies one token later. Its second document is longer than 1.
  Documents moved() const {
    Documents out = *this;
    ++out.lengths[0][0], --out.lengths[0][1];
    return out;
  }
};

// Borders inside and at the edges of blocks of 64 tokens, documents of one token, and of several blocks.
inline const std::vector<Documents>& packed_samples() {
  static const std::vector<Documents> all = {
      {{{3, 2, 1}, {6}}}, {{{1, 63, 65, 1, 1, 9}, {70, 64, 6}}}, {{{64, 64, 2}}}, {{{1, 2}, {2, 1}, {3}}}};
  return all;
}

// Tokens first .. first + n - 1 of sequence b. by_head: of x (B, heads, T), otherwise of x (B, T, ...).
inline Tensor part(const Tensor& x, int64_t b, int64_t first, int64_t n, bool by_head = false) {
  const int64_t length = x.d.dims[by_head ? 2 : 1], rows = by_head ? x.d.dims[1] : 1;
  const size_t size = x.memory.size() / size_t(x.d.dims[0] * length * rows);
  Tensor out([&] {
    eng_desc d = x.d;
    return d.dims[0] = 1, d.dims[by_head ? 2 : 1] = n, d;
  }());
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(out.memory.data() + size_t(row * n) * size,
                x.memory.data() + size_t((b * rows + row) * length + first) * size, size_t(n) * size);
  return out;
}

// Puts NaN into all elements of these tokens of x (B, T, ...).
inline void poison(Tensor& x, int64_t b, int64_t first, int64_t n) {
  const int64_t width = x.size() / (x.d.dims[0] * x.d.dims[1]);
  for (int64_t i = 0; i < n * width; ++i) x.put((b * x.d.dims[1] + first) * width + i, std::nan(""));
}

}  // namespace kernels_test
