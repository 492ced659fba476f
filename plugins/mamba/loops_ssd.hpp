// SPDX-License-Identifier: Apache-2.0
// The scan of Mamba-2 and its gradient, by chunks of 64 tokens of one document. With c_t the sum of s A over the tokens
// of the chunk up to t, and H the states before the chunk, a head's
//   y_t = D x_t + exp(c_t) C_t H + sum over r <= t of M_tr s_r x_r,   M_tr = exp(c_t - c_r) (C_t B_r)
// are products of small matrices. C B^T is the same for all heads of a group, which are computed side by side.
//
// Matrices have rows of whole registers, padded with zeros. Order of summation: in a product, over its inner dimension
// in order; chunks in order, from the first to the last (forward) or the reverse; heads in order. The sums c_t are made
// in f64 and kept as two floats, so that their differences are as precise as one float.
#pragma once

#include "loops_scan.hpp"

namespace mamba {
namespace {

constexpr int64_t Q = ssd_chunk, stripe = widest;  // rows of a triangle that are computed together

// c (rows, n) = a b, added to what is there if `add`. Element (i, k) of a is a[i * row + k * column].
struct Left {
  const float* at;
  int64_t row, column;
};
template <int rows, int registers>
inline void tile(int64_t inner, Left a, const float* b, int64_t ldb, float* c, int64_t ldc, bool add) {
  vec sums[rows][registers];
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < registers; ++j) sums[i][j] = add ? load_all(c + i * ldc + j * width) : splat(0.0f);
  for (int64_t k = 0; k < inner; ++k) {
    vec right[registers];
    for (int j = 0; j < registers; ++j) right[j] = load_all(b + k * ldb + j * width);
    for (int i = 0; i < rows; ++i) {
      const vec left = splat(a.at[i * a.row + k * a.column]);
      for (int j = 0; j < registers; ++j) sums[i][j] = fma(left, right[j], sums[i][j]);
    }
  }
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < registers; ++j) store_all(c + i * ldc + j * width, sums[i][j]);
}
// n is a multiple of `widest`.
template <int rows>
inline void tiles(int64_t n, int64_t inner, Left a, const float* b, int64_t ldb, float* c, int64_t ldc, bool add) {
  constexpr int most = width == 8 ? 2 : 4;  // 4 rows of them fit the registers
  int64_t j = 0;
  for (; j + most * width <= n; j += most * width) tile<rows, most>(inner, a, b + j, ldb, c + j, ldc, add);
  if constexpr (widest % (most * width) != 0)
    for (; j < n; j += width) tile<rows, 1>(inner, a, b + j, ldb, c + j, ldc, add);
}
inline void product(int64_t rows, int64_t n, int64_t inner, Left a, const float* b, int64_t ldb, float* c, int64_t ldc,
                    bool add) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) tiles<4>(n, inner, {a.at + i * a.row, a.row, a.column}, b, ldb, c + i * ldc, ldc, add);
  for (; i < rows; ++i) tiles<1>(n, inner, {a.at + i * a.row, a.row, a.column}, b, ldb, c + i * ldc, ldc, add);
}
// Calls f(first, rows) for the stripes of `rows` rows.
template <class F>
SIMD_INLINE inline void each_stripe(int64_t rows, F f) {
  for (int64_t r = 0; r < rows; r += stripe) f(r, rows - r < stripe ? rows - r : stripe);
}

// Calls f(i) for i = 0, width, ... below n, a multiple of `width`.
template <class F>
SIMD_INLINE inline void each_register(int64_t n, F f) {
  for (int64_t i = 0; i < n; i += width) f(i);
}
// to (rows, whole(n)) = `rows` rows of n elements of a matrix.
template <class T>
inline void read_rows(const T* from, int64_t ld, int64_t rows, int64_t n, float* to) {
  const int64_t all = whole(n);
  for (int64_t t = 0; t < rows; ++t, from += ld, to += all) {
    for_lanes(n, [&](int64_t i, auto k) SIMD_INLINE { store(to + i, load(from + i, k), k); });
    for (int64_t i = n; i < all; ++i) to[i] = 0.0f;
  }
}
// to (n, Q) = the transpose of from (rows, whole(n)), zero after `rows`.
inline void transpose(const float* from, int64_t rows, int64_t n, float* to) {
  const int64_t ld = whole(n);
  for (int64_t i = 0; i < n; ++i, to += Q) {
    for (int64_t t = 0; t < rows; ++t) to[t] = from[t * ld + i];
    for (int64_t t = rows; t < Q; ++t) to[t] = 0.0f;
  }
}
// Row t of `to` (rows, n) is that of `from`, times factors[t].
inline void scale_rows(const float* from, const float* factors, int64_t rows, int64_t n, float* to) {
  for (int64_t t = 0; t < rows; ++t) {
    const vec factor = splat(factors[t]);
    each_register(n, [&](int64_t i) SIMD_INLINE { store_all(to + t * n + i, load_all(from + t * n + i) * factor); });
  }
}
inline void scale(float* x, float factor, int64_t n) {
  each_register(n, [&](int64_t i) SIMD_INLINE { store_all(x + i, load_all(x + i) * splat(factor)); });
}
inline void clear(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = 0.0f;
}

// Numbers that follow from the time steps of a chunk: (Q) each, one for each token.
struct Steps {
  float *raw, *step;  // before and after the softplus and its limits
  float *high, *low;  // c_t, as the sum of two floats
  float* from_start;  // exp(c_t)
  float* to_end;      // exp(c_end - c_t)
  float* index;       // t, of all of the Q
  float rate, over;   // A; exp(c_end)
  float* take(float* p) {
    float** const all[] = {&raw, &step, &high, &low, &from_start, &to_end, &index};
    for (float** one : all) *one = p, p += Q;
    for (int64_t t = 0; t < Q; ++t) index[t] = static_cast<float>(t);
    return p;
  }
};

template <class T>
inline void find_steps(const SsdSizes& s, const SsdIn<T>& in, int64_t first, int64_t tokens, int64_t head, Steps& m) {
  const T* dt = in.dt + first * s.dt_row + (s.dt_row - s.heads) + head;
  for (int64_t t = 0; t < tokens; ++t) {
    float one[widest] = {};
    store_all(one, load(dt + t * s.dt_row, some_lanes{1}));
    m.raw[t] = one[0] + in.dt_bias[head];
  }
  for (int64_t t = tokens; t < Q; ++t) m.raw[t] = 0.0f;
  each_register(Q, [&](int64_t t) SIMD_INLINE {
    store_all(m.step + t, min(splat(s.high), max(splat(s.low), softplus_at(load_all(m.raw + t)))));
  });
  float rate[widest];
  store_all(rate, exp(splat(in.a_log[head])));
  m.rate = -rate[0];
  double sum = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    sum += static_cast<double>(m.step[t]) * static_cast<double>(m.rate);
    m.high[t] = static_cast<float>(sum), m.low[t] = static_cast<float>(sum - static_cast<double>(m.high[t]));
  }
  const vec high = splat(m.high[tokens - 1]), low = splat(m.low[tokens - 1]), log = splat(log2_e);
  for (int64_t t = tokens; t < Q; ++t) m.step[t] = 0.0f, m.high[t] = m.high[tokens - 1], m.low[t] = m.low[tokens - 1];
  each_register(Q, [&](int64_t t) SIMD_INLINE {
    const vec h = load_all(m.high + t), l = load_all(m.low + t);
    store_all(m.from_start + t, decay_at((h + l) * log));
    store_all(m.to_end + t, decay_at(((high - h) + (low - l)) * log));
  });
  m.over = m.from_start[tokens - 1];
}

// exp(c_t - c_r) for the r of a register from `r` on; 0 for r > t.
SIMD_INLINE inline vec decay_between(const Steps& m, int64_t t, int64_t r) {
  const vec difference = (splat(m.high[t]) - load_all(m.high + r)) + (splat(m.low[t]) - load_all(m.low + r));
  const vec decay = decay_at(min(splat(0.0f), difference) * splat(log2_e));
  return if_positive(splat(static_cast<float>(t) + 0.5f) - load_all(m.index + r), decay, splat(0.0f));
}
// The columns of row t of a triangle, up to the end of its stripe.
inline int64_t end_of(int64_t t) {
  return whole(t + 1);
}

// The group of the call: columns of B and of C in a row of xbc.
inline int64_t b_column(const SsdSizes& s, int64_t head) {
  return s.heads * s.width + head / (s.heads / s.groups) * s.states;
}
inline int64_t c_column(const SsdSizes& s, int64_t head) {
  return b_column(s, head) + s.groups * s.states;
}

template <class T>
void ssd(const SsdSizes& s, const SsdIn<T>& in, T* y, float* running, int64_t first, int64_t last, float* scratch) {
  const int64_t n = whole(s.states), p = whole(s.width), state = n * p;
  Steps m;
  float *b = m.take(scratch), *c = b + Q * n, *bt = c + Q * n;   // (Q, N), (Q, N), (N, Q)
  float *scores = bt + n * Q, *mixed = scores + Q * Q;           // C B^T and M: (Q, Q)
  float *x = mixed + Q * Q, *sx = x + Q * p, *sum = sx + Q * p;  // x, s x and y: (Q, P)
  float* states = sum + Q * p;                                   // (heads, N, P)
  clear(states, (last - first) * state);
  for (int64_t j = first; running && j < last; ++j)
    read_rows(running + j * s.states * s.width, s.width, s.states, s.width, states + (j - first) * state);
  for (int64_t from = 0; from < s.tokens; from += Q) {
    const int64_t tokens = s.tokens - from < Q ? s.tokens - from : Q;
    const T* rows = in.xbc + from * s.row;
    read_rows(rows + b_column(s, first), s.row, tokens, s.states, b);
    read_rows(rows + c_column(s, first), s.row, tokens, s.states, c);
    transpose(b, tokens, s.states, bt);
    each_stripe(tokens, [&](int64_t r, int64_t count) {
      product(count, r + stripe, s.states, {c + r * n, n, 1}, bt, Q, scores + r * Q, Q, false);
    });
    for (int64_t j = first; j < last; ++j) {
      float* h = states + (j - first) * state;
      find_steps(s, in, from, tokens, j, m);
      read_rows(rows + j * s.width, s.row, tokens, s.width, x);
      scale_rows(x, m.step, tokens, p, sx);
      if (from > 0 || running) {
        product(tokens, p, s.states, {c, n, 1}, h, p, sum, p, false);
        scale_rows(sum, m.from_start, tokens, p, sum);
      } else {
        clear(sum, tokens * p);
      }
      for (int64_t t = 0; t < tokens; ++t)
        each_register(end_of(t), [&](int64_t r) SIMD_INLINE {
          store_all(mixed + t * Q + r, load_all(scores + t * Q + r) * decay_between(m, t, r));
        });
      each_stripe(tokens, [&](int64_t r, int64_t count) {
        product(count, p, r + count, {mixed + r * Q, Q, 1}, sx, p, sum + r * p, p, true);
      });
      const vec d = splat(in.d[j]);
      for (int64_t t = 0; t < tokens; ++t)
        for_lanes(s.width, [&](int64_t i, auto k) SIMD_INLINE {
          store(y + ((from + t) * s.heads + j) * s.width + i, fma(d, load(x + t * p + i, k), load(sum + t * p + i, k)),
                k);
        });
      if (!running && from + tokens == s.tokens) continue;
      scale_rows(sx, m.to_end, tokens, p, sx);
      scale(h, m.over, s.states * p);
      product(s.states, p, tokens, {b, 1, n}, sx, p, h, p, true);
    }
  }
  for (int64_t j = first; running && j < last; ++j)
    for (int64_t i = 0; i < s.states; ++i)
      for (int64_t k = 0; k < s.width; ++k)
        running[(j * s.states + i) * s.width + k] = states[(j - first) * state + i * p + k];
}

}  // namespace
}  // namespace mamba
