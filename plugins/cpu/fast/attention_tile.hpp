// SPDX-License-Identifier: Apache-2.0
// Causal attention in blocks of 64 queries by 64 keys (`side`). Blocks above the diagonal are skipped; within a
// diagonal block the register tiles above the diagonal are skipped. Every sum has one order that depends on the shapes
// only.
//
// Each document of a sample is computed as if it were a sample of its own: its blocks begin with it, so no block holds
// two documents, no product is computed only to be masked, and the bits are those of the document alone.
//
// With a window, the blocks that no query of a block sees are skipped, and in the first of the others the keys before
// the window of each row are masked. With a cap, scores are capped before they are masked.
//
// Forward: each row has a running maximum and a running sum, which are corrected block by block (Milakov and Gimelshein
// 2018, Dao et al. 2022). Backward: the probabilities are computed again from the stored log-sum-exp.
#pragma once

#include "../../common/segments.hpp"
#include "../../common/simd/tile.hpp"
#include "isa.hpp"
#include "softmax_tile.hpp"

namespace cpu::CPU_ISA {
namespace {

inline constexpr int64_t side = attention_side;

CPU_INLINE int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
CPU_INLINE int64_t whole(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}
CPU_INLINE int64_t blocks_of(int64_t tokens) {
  return (tokens + side - 1) / side;
}

// The first block of keys that the queries from q0 on see.
CPU_INLINE int64_t first_block(const AttentionShape& a, int64_t q0) {
  return a.window && q0 >= a.window ? (q0 - a.window + 1) / side * side : 0;
}
// Row r of the queries from q0 on does not see the keys k0 .. k0 + hidden + r - 1.
CPU_INLINE int64_t hidden_keys(const AttentionShape& a, int64_t q0, int64_t k0) {
  return a.window ? q0 - a.window + 1 - k0 : -side;
}

// Copies n rows of `width` elements from a wider matrix to dense rows of `padded` floats, times `factor`; the floats
// after the width are zero.
template <class T>
void pack_rows(const void* matrix, int64_t first, int64_t stride, int64_t n, int64_t width, int64_t padded,
               float factor, float* out) {
  const V by = splat(factor);
  const T* from = static_cast<const T*>(matrix) + first;
  for (int64_t r = 0; r < n; ++r, from += stride, out += padded) {
    int64_t d = 0;
    for (; d + W <= width; d += W) store_all(out + d, load_all(from + d) * by);
    for (; d < padded; ++d) out[d] = d < width ? load_one(from + d) * factor : 0.0f;
  }
}

// The way back: n dense rows of `padded` floats, times `factor`, to rows of a wider matrix.
template <class T>
void unpack_rows(const float* from, int64_t padded, int64_t n, int64_t width, float factor, void* matrix, int64_t first,
                 int64_t stride) {
  const V by = splat(factor);
  T* out = static_cast<T*>(matrix) + first;
  for (int64_t r = 0; r < n; ++r, from += padded, out += stride) {
    int64_t d = 0;
    for (; d + W <= width; d += W) store_all(out + d, load_all(from + d) * by);
    if (d < width) store_some(out + d, load_some(from + d, width - d) * by, width - d);
  }
}

// Transposes n rows of `width` elements to blocks of `side` columns: block j is (width, side), its column c is row
// j * side + c. From row n on, columns are zero up to a whole register, and nothing reads those after it. Four by four
// elements are transposed in registers.
template <class T>
void pack_transposed(const void* matrix, int64_t first, int64_t stride, int64_t n, int64_t width, float* out) {
  const T* const from = static_cast<const T*>(matrix) + first;
  for (int64_t j = 0; j < n; j += side, out += side * width)
    for (int64_t c = 0; c < least(side, whole(n - j, W)); c += 4) {
      const T* const rows = from + (j + c) * stride;
      int64_t d = 0;
      if (j + c + 4 <= n)
        for (; d + 4 <= width; d += 4) {
          const Four r0 = load_four(rows + d), r1 = load_four(rows + stride + d), r2 = load_four(rows + 2 * stride + d),
                     r3 = load_four(rows + 3 * stride + d);
          const Four a = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), b = __builtin_shufflevector(r2, r3, 0, 4, 1, 5),
                     e = __builtin_shufflevector(r0, r1, 2, 6, 3, 7), f = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
          float* const to = out + d * side + c;
          *reinterpret_cast<Four*>(to) = __builtin_shufflevector(a, b, 0, 1, 4, 5);
          *reinterpret_cast<Four*>(to + side) = __builtin_shufflevector(a, b, 2, 3, 6, 7);
          *reinterpret_cast<Four*>(to + 2 * side) = __builtin_shufflevector(e, f, 0, 1, 4, 5);
          *reinterpret_cast<Four*>(to + 3 * side) = __builtin_shufflevector(e, f, 2, 3, 6, 7);
        }
      for (; d < width; ++d)
        for (int64_t k = 0; k < 4; ++k) out[d * side + c + k] = j + c + k < n ? load_one(rows + k * stride + d) : 0.0f;
    }
}

// Access to tensors, by the kinds of their elements.
struct Packing {
  void (*rows)(const void* matrix, int64_t first, int64_t stride, int64_t n, int64_t width, int64_t padded,
               float factor, float* out);
  void (*transposed)(const void* matrix, int64_t first, int64_t stride, int64_t n, int64_t width, float* out);
  void (*unpack)(const float* from, int64_t padded, int64_t n, int64_t width, float factor, void* matrix, int64_t first,
                 int64_t stride);
};
constexpr Packing packings[stored_kinds] = {{pack_rows<float>, pack_transposed<float>, unpack_rows<float>},
                                            {pack_rows<bf16>, pack_transposed<bf16>, unpack_rows<bf16>},
                                            {pack_rows<f16>, pack_transposed<f16>, unpack_rows<f16>}};

// Calls f(first, count, reach) for the rows of a diagonal block, most_rows at a time. Keys from `reach` on are masked
// for all of these rows, so their products need not be computed.
template <class F>
CPU_INLINE void diagonal_rows(int64_t rows, F&& f) {
  for (int64_t r = 0; r < rows; r += most_rows) {
    const int64_t count = least(most_rows, rows - r);
    f(r, count, r + count);
  }
}

// Scores of one block: S (rows, side) = Q (rows, width) KT (width, side).
inline void block_scores(int64_t rows, int64_t width, bool diagonal, const float* q, int64_t padded, const float* kt,
                         float* s) {
  if (!diagonal) return product(rows, side, width, q, padded, 1, kt, side, s, side, false);
  diagonal_rows(rows, [&](int64_t r, int64_t count, int64_t reach) {
    product(count, whole(reach, W), width, q + r * padded, padded, 1, kt, side, s + r * side, side, false);
  });
}

// out (rows, padded) += X (rows, keys) M (keys, padded); X is zero where masked.
inline void block_rows(int64_t rows, int64_t keys, int64_t padded, bool diagonal, const float* x, const float* m,
                       float* out) {
  if (!diagonal) return product(rows, padded, keys, x, side, 1, m, padded, out, padded, true);
  diagonal_rows(rows, [&](int64_t r, int64_t count, int64_t reach) {
    product(count, padded, least(reach, keys), x + r * side, side, 1, m, padded, out + r * padded, padded, true);
  });
}

// out (keys, padded) += X^T (keys, rows) M (rows, padded).
inline void block_columns(int64_t rows, int64_t keys, int64_t padded, bool diagonal, const float* x, const float* m,
                          float* out) {
  if (!diagonal) return product(keys, padded, rows, x, 1, side, m, padded, out, padded, true);
  for (int64_t c = 0; c < keys; c += most_rows)  // key c is masked for the rows before it
    product(least(most_rows, keys - c), padded, rows - c, x + c * side + c, 1, side, m + c * padded, padded,
            out + c * padded, padded, true);
}

struct ForwardScratch {
  float *kt, *v, *q, *o, *s, *top, *sum, *factor;
  ForwardScratch(const AttentionShape& a, void* scratch) {
    const int64_t t = whole(a.tokens, side), d = a.padded();
    kt = static_cast<float*>(scratch), v = kt + t * d, q = v + t * d, o = q + side * d, s = o + side * d;
    top = s + side * side, sum = top + side, factor = sum + side;
  }
};

// Sets the keys before the windows of the rows to `value`.
inline void mask_hidden(int64_t rows, int64_t hidden, V value, float* s) {
  for (int64_t r = hidden < 0 ? -hidden : 0; r < rows; ++r)
    for (int64_t j = 0, end = least(hidden + r, side); j < end; j += W)
      store_some(s + r * side + j, value, least(W, end - j));
}

// One block of the running softmax, with scores in units of log2. top: the maximum of each row so far, sum: its sum of
// 2^(score - top). With the block's scores both are updated, and S becomes 2^(score - top), zero where masked. factor
// is 2^(old top - new top): the row's earlier sums must be multiplied by it.
inline void block_softmax(int64_t rows, bool diagonal, int64_t hidden, float* s, float* top, float* sum,
                          float* factor) {
  const V lowest = splat(-__builtin_inff());
  mask_hidden(rows, hidden, lowest, s);
  if (diagonal)  // mask
    for (int64_t r = 0; r < rows; ++r) {
      float* const row = s + r * side;
      int64_t j = (r + 1) / W * W;
      if (j < side) store_all(row + j, load_some_or(row + j, static_cast<int>(r + 1 - j), lowest)), j += W;
      for (; j < side; j += W) store_all(row + j, lowest);
    }
  // The new maximum of each row. A row that has seen no key yet has none: its terms are 2^(-inf - 0).
  float high[side], base[side];
  for (int64_t r = 0; r < rows; ++r) {
    V most = splat(top[r]);
    CPU_UNROLL
    for (int64_t j = 0; j < side; j += W) most = max(most, load_all(s + r * side + j));
    high[r] = largest(most);
  }
  for (int64_t r = rows; r < side; ++r) high[r] = 0.0f;
  for (int64_t r = 0; r < side; ++r) base[r] = high[r] == -__builtin_inff() ? 0.0f : high[r];
  // The correction factor, for a register of rows at a time.
  for (int64_t r = 0; r < side; r += W) {
    store_all(factor + r, exp2(load_all(top + r) - load_all(base + r)));
    store_all(top + r, load_all(high + r));
  }
  // The probabilities, not yet divided by the sum, and the new sum: lanes first, then across the lanes.
  for (int64_t r = 0; r < rows; ++r) {
    const V by = splat(base[r]);
    V total = splat(0.0f);
    CPU_UNROLL
    for (int64_t j = 0; j < side; j += W) {
      const V p = exp2(load_all(s + r * side + j) - by);
      total = total + p;
      store_all(s + r * side + j, p);
    }
    sum[r] = sum[r] * factor[r] + cpu::sum(total);
  }
}

// Several query heads read one key head. Their query blocks in one document, the `tokens` positions from `start` of
// sequence b, are numbered head after head; this call computes the blocks first, first + step, ... of key head kv_head.
// Steps:
//   1. pack the keys, transposed, and the values, once for all query blocks
//   2. for each query block: scale its queries, so that scores are in units of log2
//   3. for each key block from the window up to the diagonal: scores, running softmax, correct o, o += P V
//   4. o = o / sum, lse = ln(sum of e^score) for the backward
inline void document_forward(const AttentionShape& a, int64_t b, int64_t start, int64_t tokens, int64_t kv_head,
                             int64_t first, int64_t step, const void* q, const void* k, const void* v, void* o,
                             float* lse, void* scratch) {
  const ForwardScratch w(a, scratch);
  const Packing& pack = packings[a.stored];
  const int64_t d = a.width, padded = a.padded(), group = a.heads / a.kv_heads, blocks = blocks_of(tokens);
  const int64_t q_stride = a.heads * d, kv_stride = a.kv_heads * d;
  const int64_t kv_at = (b * a.tokens + start) * kv_stride + kv_head * d;
  // The last query of this part decides how many keys are needed.
  const int64_t units = group * blocks;
  int64_t reach = 0;
  for (int64_t u = first; u < units; u += step) {
    const int64_t end = least((u % blocks + 1) * side, tokens);
    reach = end > reach ? end : reach;
  }
  pack.transposed(k, kv_at, kv_stride, reach, d, w.kt);
  pack.rows(v, kv_at, kv_stride, reach, d, padded, 1.0f, w.v);

  for (int64_t u = first; u < units; u += step) {
    const int64_t head = kv_head * group + u / blocks, q0 = u % blocks * side, rows = least(side, tokens - q0);
    const int64_t q_at = (b * a.tokens + start + q0) * q_stride + head * d;
    pack.rows(q, q_at, q_stride, rows, d, padded, a.scale * log2_e, w.q);
    for (int64_t r = 0; r < side; ++r) w.top[r] = -__builtin_inff(), w.sum[r] = 0.0f;
    const int64_t from = first_block(a, q0);
    for (int64_t k0 = from; k0 <= q0; k0 += side) {
      const bool diagonal = k0 == q0;
      block_scores(rows, d, diagonal, w.q, padded, w.kt + k0 * d, w.s);
      if (a.cap != 0.0f) cap_row(w.s, rows * side, a.cap * log2_e, w.s);
      block_softmax(rows, diagonal, hidden_keys(a, q0, k0), w.s, w.top, w.sum, w.factor);
      if (k0 > from)
        for (int64_t r = 0; r < rows; ++r) {
          float* const row = w.o + r * padded;
          const V by = splat(w.factor[r]);
          for (int64_t i = 0; i < padded; i += W) store_all(row + i, load_all(row + i) * by);
        }
      if (k0 == from)
        for (int64_t i = 0; i < rows * padded; i += W) store_all(w.o + i, splat(0.0f));
      block_rows(rows, least(side, reach - k0), padded, diagonal, w.s, w.v + k0 * padded, w.o);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const float by = 1.0f / w.sum[r];
      pack.unpack(w.o + r * padded, padded, 1, d, by, o, q_at + r * q_stride, q_stride);
      lse[(b * a.heads + head) * a.tokens + start + q0 + r] = w.top[r] * ln_2 + __builtin_logf(w.sum[r]);
    }
  }
}

// The query blocks of all documents are numbered document after document.
inline void attention_forward(const AttentionShape& a, int64_t b, int64_t kv_head, int64_t first, int64_t step,
                              const int32_t* segments, const void* q, const void* k, const void* v, void* o, float* lse,
                              void* scratch) {
  int64_t before = 0;  // blocks of earlier documents
  each_document(segments, a.tokens, [&](int64_t start, int64_t tokens) {
    const int64_t units = a.heads / a.kv_heads * blocks_of(tokens);
    const int64_t from = ((first - before) % step + step) % step;
    if (from < units) document_forward(a, b, start, tokens, kv_head, from, step, q, k, v, o, lse, scratch);
    before += units;
  });
}

struct BackwardScratch {
  float *kt, *vt, *k, *dk, *dv, *q, *go, *dq, *s, *ds, *low, *delta;
  BackwardScratch(const AttentionShape& a, void* scratch) {
    const int64_t t = whole(a.tokens, side), d = a.padded();
    kt = static_cast<float*>(scratch), vt = kt + t * d, k = vt + t * d, dk = k + t * d, dv = dk + t * d;
    q = dv + t * d, go = q + side * d, dq = go + side * d, s = dq + side * d, ds = s + side * side;
    low = ds + side * side, delta = low + side;
  }
};

// s: products of queries and keys -> P = 2^(score log2(e) - lse log2(e)); ds: dP -> dS, by the products. Masked
// elements become zero. low: -lse log2(e) of each row.
template <bool capped>
void block_probabilities(const AttentionShape& a, int64_t rows, bool diagonal, int64_t hidden, const float* low,
                         const float* delta, float* s, float* ds) {
  const float cap = capped ? a.cap : 1.0f;
  const V scale = splat(a.scale), inverse = splat(a.scale / cap), to2 = splat((capped ? cap : a.scale) * log2_e);
  // P of products x, and the derivative of a score by its product.
  const auto at = [=](V x, V lowered, V& slope) SIMD_INLINE {
    slope = scale;
    if constexpr (capped) {
      x = tanh(x * inverse);
      slope = scale - scale * x * x;
    }
    return exp2(fma(x, to2, lowered));
  };
  for (int64_t r = 0; r < rows; ++r) {
    const V lowered = splat(low[r]), mean = splat(delta[r]);
    float *const p = s + r * side, *const d = ds + r * side;
    const int64_t valid = diagonal ? r + 1 : side, full = valid / W * W;
    V slope;
    int64_t j = 0;
    for (; j < full; j += W) {
      const V x = at(load_all(p + j), lowered, slope);
      store_all(p + j, x);
      store_all(d + j, x * (load_all(d + j) - mean) * slope);
    }
    if (j < side) {
      const int tail = static_cast<int>(valid - full);
      const V x = at(load_some_or(p + j, tail, splat(0.0f)), lowered, slope);
      const V y = x * (load_some_or(d + j, tail, splat(0.0f)) - mean) * slope;
      for (int64_t i = j; i < side; i += W) store_all(p + i, splat(0.0f)), store_all(d + i, splat(0.0f));
      store_some(p + j, x, tail), store_some(d + j, y, tail);
    }
  }
  mask_hidden(rows, hidden, splat(0.0f), s), mask_hidden(rows, hidden, splat(0.0f), ds);
}

// One key head of one document, the t positions from `start` of sequence b, with all query heads that read it. With P
// the probabilities and go the gradient of o:
//   delta = rowsum(go * o);  dP = go V^T;  dS = P * (dP - delta) * scale;  dQ = dS K;  dK += dS^T Q;  dV += P^T go
// Blocks of queries in order, and for each the blocks of keys in order: that is the order in which dK and dV are
// summed.
inline void document_backward(const AttentionShape& a, int64_t b, int64_t start, int64_t t, int64_t kv_head,
                              const void* grad, const void* q, const void* k, const void* v, const void* o,
                              const float* lse, void* dq, void* dk, void* dv, void* scratch) {
  const BackwardScratch w(a, scratch);
  const Packing& pack = packings[a.stored];
  const int64_t d = a.width, padded = a.padded(), group = a.heads / a.kv_heads;
  const int64_t q_stride = a.heads * d, kv_stride = a.kv_heads * d;
  const int64_t at0 = b * a.tokens + start, kv_at = at0 * kv_stride + kv_head * d;
  pack.transposed(k, kv_at, kv_stride, t, d, w.kt);
  pack.transposed(v, kv_at, kv_stride, t, d, w.vt);
  pack.rows(k, kv_at, kv_stride, t, d, padded, 1.0f, w.k);
  for (int64_t i = 0; i < t * padded; i += W) store_all(w.dk + i, splat(0.0f)), store_all(w.dv + i, splat(0.0f));

  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (int64_t q0 = 0; q0 < t; q0 += side) {
      const int64_t rows = least(side, t - q0), at = (at0 + q0) * q_stride + head * d;
      pack.rows(q, at, q_stride, rows, d, padded, 1.0f, w.q);
      pack.rows(grad, at, q_stride, rows, d, padded, 1.0f, w.go);
      pack.rows(o, at, q_stride, rows, d, padded, 1.0f, w.dq);  // only for delta
      for (int64_t r = 0; r < rows; ++r) {
        V total = splat(0.0f);
        for (int64_t i = r * padded; i < r * padded + d; i += W)
          total = fma(load_all(w.dq + i), load_all(w.go + i), total);
        w.delta[r] = cpu::sum(total);
        w.low[r] = -lse[(b * a.heads + head) * a.tokens + start + q0 + r] * log2_e;
      }
      for (int64_t i = 0; i < rows * padded; i += W) store_all(w.dq + i, splat(0.0f));
      for (int64_t k0 = first_block(a, q0); k0 <= q0; k0 += side) {
        const bool diagonal = k0 == q0;
        const int64_t keys = least(side, t - k0);
        block_scores(rows, d, diagonal, w.q, padded, w.kt + k0 * d, w.s);
        block_scores(rows, d, diagonal, w.go, padded, w.vt + k0 * d, w.ds);
        (a.cap != 0.0f ? block_probabilities<true> : block_probabilities<false>)(a, rows, diagonal,
                                                                                 hidden_keys(a, q0, k0), w.low, w.delta,
                                                                                 w.s, w.ds);
        block_columns(rows, keys, padded, diagonal, w.s, w.go, w.dv + k0 * padded);
        block_columns(rows, keys, padded, diagonal, w.ds, w.q, w.dk + k0 * padded);
        block_rows(rows, keys, padded, diagonal, w.ds, w.k + k0 * padded, w.dq);
      }
      pack.unpack(w.dq, padded, rows, d, 1.0f, dq, at, q_stride);
    }
  pack.unpack(w.dk, padded, t, d, 1.0f, dk, kv_at, kv_stride);
  pack.unpack(w.dv, padded, t, d, 1.0f, dv, kv_at, kv_stride);
}

inline void attention_backward(const AttentionShape& a, int64_t b, int64_t kv_head, const int32_t* segments,
                               const void* grad, const void* q, const void* k, const void* v, const void* o,
                               const float* lse, void* dq, void* dk, void* dv, void* scratch) {
  each_document(segments, a.tokens, [&](int64_t start, int64_t tokens) {
    document_backward(a, b, start, tokens, kv_head, grad, q, k, v, o, lse, dq, dk, dv, scratch);
  });
}

}  // namespace
}  // namespace cpu::CPU_ISA
