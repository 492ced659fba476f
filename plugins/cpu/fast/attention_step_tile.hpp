// SPDX-License-Identifier: Apache-2.0
// Attention of several next positions of a running sequence, in the blocks and with the running softmax of
// attention_tile.hpp. Keys and values are rows of caches; each block of them is packed once for all query heads that
// read it.
#pragma once

#include "attention_tile.hpp"

namespace cpu::CPU_ISA {
namespace {

struct StepScratch {
  float *kt, *v, *s, *factor, *heads;
  int64_t block;
  StepScratch(const AttentionShape& a, void* scratch) : block(side * a.padded()) {
    kt = static_cast<float*>(scratch), v = kt + block, s = v + block, factor = s + side * side, heads = factor + side;
  }
  // Parts of one query head: its packed queries, their sums over the values, their maxima and the sums of their terms.
  float* q(int64_t head) const { return heads + head * (2 * block + 2 * side); }
  float* o(int64_t head) const { return q(head) + block; }
  float* top(int64_t head) const { return o(head) + block; }
  float* sum(int64_t head) const { return top(head) + side; }
};

// Row r sees the keys up to `shift` + r of the block.
inline void mask_later(int64_t rows, int64_t shift, float* s) {
  const float lowest = -__builtin_inff();
  for (int64_t r = 0; r < rows && shift + r + 1 < side; ++r) {
    int64_t j = shift + r + 1 < 0 ? 0 : shift + r + 1;
    for (; j % W != 0; ++j) s[r * side + j] = lowest;
    for (; j < side; j += W) store_all(s + r * side + j, splat(lowest));
  }
}

// The queries q0 .. q0 + 63 of sequence b, at positions `at` + q0 and on, of the query heads first, first + step, ...
// of those that read key head kv_head. The caches have `length` rows.
inline void attention_step(const AttentionShape& a, int64_t at, int64_t length, int64_t b, int64_t q0, int64_t kv_head,
                           int64_t first, int64_t step, const void* q, const void* k, const void* v, void* o,
                           void* scratch) {
  const StepScratch w(a, scratch);
  const Packing& pack = packings[a.stored];
  const int64_t d = a.width, padded = a.padded(), group = a.heads / a.kv_heads;
  const int64_t q_stride = a.heads * d, kv_stride = a.kv_heads * d;
  const int64_t rows = least(side, a.tokens - q0), begin = at + q0, end = begin + rows;
  const int64_t q_at = (b * a.tokens + q0) * q_stride + kv_head * group * d;
  const int64_t kv_at = b * length * kv_stride + kv_head * d;
  for (int64_t h = first; h < group; h += step) {
    pack.rows(q, q_at + h * d, q_stride, rows, d, padded, a.scale * log2_e, w.q(h));
    for (int64_t r = 0; r < side; ++r) w.top(h)[r] = -__builtin_inff(), w.sum(h)[r] = 0.0f;
    for (int64_t i = 0; i < rows * padded; i += W) store_all(w.o(h) + i, splat(0.0f));
  }
  for (int64_t k0 = first_block(a, begin); k0 < end; k0 += side) {
    const int64_t keys = least(side, end - k0);
    pack.transposed(k, kv_at + k0 * kv_stride, kv_stride, keys, d, w.kt);
    pack.rows(v, kv_at + k0 * kv_stride, kv_stride, keys, d, padded, 1.0f, w.v);
    for (int64_t h = first; h < group; h += step) {
      product(rows, whole(keys, W), d, w.q(h), padded, 1, w.kt, side, w.s, side, false);
      if (a.cap != 0.0f) cap_row(w.s, rows * side, a.cap * log2_e, w.s);
      mask_later(rows, begin - k0, w.s);
      block_softmax(rows, false, hidden_keys(a, begin, k0), w.s, w.top(h), w.sum(h), w.factor);
      for (int64_t r = 0; r < rows; ++r) {
        float* const row = w.o(h) + r * padded;
        const V by = splat(w.factor[r]);
        for (int64_t i = 0; i < padded; i += W) store_all(row + i, load_all(row + i) * by);
      }
      product(rows, padded, keys, w.s, side, 1, w.v, padded, w.o(h), padded, true);
    }
  }
  for (int64_t h = first; h < group; h += step)
    for (int64_t r = 0; r < rows; ++r)
      pack.unpack(w.o(h) + r * padded, padded, 1, d, 1.0f / w.sum(h)[r], o, q_at + r * q_stride + h * d, q_stride);
}

}  // namespace
}  // namespace cpu::CPU_ISA
