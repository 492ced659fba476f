// SPDX-License-Identifier: Apache-2.0
// The gradient of the scan of Mamba-2 for some heads of a group and one document. First forwards, for the states H
// before each chunk; then the chunks from the last to the first. With G the gradient of the states after a chunk, W_tr
// = dy_t (s_r x_r), M and c_t as in loops_ssd.hpp, and a head's
//   d(s_r x_r) = sum over t >= r of M_tr dy_t + exp(c_end - c_r) B_r G
//   dC_t = exp(c_t) dy_t H^T + sum over r <= t of dS_tr B_r,   dS_tr = exp(c_t - c_r) W_tr, summed over the heads
//   dB_r = exp(c_end - c_r) s_r x_r G^T + sum over t >= r of dS_tr C_t
//   G before the chunk = exp(c_end) G + sum over t of exp(c_t) C_t^T dy_t
// The exponent s_t A of one token is part of every decay from before it to it or behind it: its gradient is the sum
// over r < t <= q of M_qr W_qr, over q >= t of what the states before the chunk gave y_q, over r < t of what x_r gave
// the states after the chunk, and of what the states before the chunk gave those after it.
#pragma once

#include "loops_ssd.hpp"

namespace mamba {
namespace {

// Scratch memory of one call. In comments (N, Q) has a column for each token of the chunk.
struct SsdGradRoom {
  Steps m;
  float *b, *c, *bt, *ct;                      // (Q, N) and (N, Q)
  float *dbt, *dct, *part;                     // (N, Q): the share of the states in dB and dC; one head's
  float *scores, *dscores, *mixed, *w;         // (Q, Q): C B^T, dS, M, W
  float *x, *sx, *dy, *sum, *edy;              // (Q, P): x, s x, dy, d(s x), exp(c_t) dy
  float *dyt, *sxt;                            // (P, Q)
  float *rows, *columns, *entering, *leaving;  // (Q): sums of M W; y dy by the states before; x by those after
  float *states, *after;                       // (chunks, heads, N, P); G: (heads, N, P)
  SsdGradRoom(const SsdSizes& s, int64_t heads, float* p_at) {
    const int64_t n = whole(s.states), p = whole(s.width), chunks = (s.tokens + Q - 1) / Q;
    float* at = m.take(p_at);
    const auto take = [&](int64_t size, auto&... all) { ((all = at, at += size), ...); };
    take(Q, rows, columns, entering, leaving);
    take(Q * n, b, c, bt, ct, dbt, dct, part);
    take(Q * Q, scores, dscores, mixed, w);
    take(Q * p, x, sx, dy, sum, edy, dyt, sxt);
    take(heads * n * p, after);
    take(chunks * heads * n * p, states);
  }
};

// The states before each chunk.
template <class T>
void keep_states(const SsdSizes& s, const SsdIn<T>& in, int64_t first, int64_t last, SsdGradRoom& m) {
  const int64_t n = whole(s.states), p = whole(s.width), state = n * p, all = (last - first) * state;
  clear(m.states, all);
  for (int64_t from = 0; from + Q < s.tokens; from += Q) {
    const T* rows = in.xbc + from * s.row;
    read_rows(rows + b_column(s, first), s.row, Q, s.states, m.b);
    for (int64_t j = first; j < last; ++j) {
      float *before = m.states + from / Q * all + (j - first) * state, *behind = before + all;
      find_steps(s, in, from, Q, j, m.m);
      read_rows(rows + j * s.width, s.row, Q, s.width, m.x);
      for (int64_t t = 0; t < Q; ++t) m.entering[t] = m.m.step[t] * m.m.to_end[t];
      scale_rows(m.x, m.entering, Q, p, m.sx);
      each_register(s.states * p,
                    [&](int64_t i) SIMD_INLINE { store_all(behind + i, load_all(before + i) * splat(m.m.over)); });
      product(s.states, p, Q, {m.b, 1, n}, m.sx, p, behind, p, true);
    }
  }
}

// M, dS, and of M W below the diagonal the sums of rows and columns.
inline void mix(int64_t tokens, SsdGradRoom& m) {
  clear(m.columns, Q);
  for (int64_t t = 0; t < tokens; ++t) {
    vec sums = splat(0.0f);
    each_register(end_of(t), [&](int64_t r) SIMD_INLINE {
      const vec decay = decay_between(m.m, t, r), score = load_all(m.scores + t * Q + r) * decay;
      const vec w = load_all(m.w + t * Q + r);
      store_all(m.mixed + t * Q + r, score);
      store_all(m.dscores + t * Q + r, fma(decay, w, load_all(m.dscores + t * Q + r)));
      const vec before = splat(static_cast<float>(t) - 0.5f) - load_all(m.m.index + r);
      const vec both = if_positive(before, score * w, splat(0.0f));
      sums = sums + both;
      store_all(m.columns + r, load_all(m.columns + r) + both);
    });
    m.rows[t] = sum(sums);
  }
}

// total += part, both (N, Q); sums (Q) of their columns times those of `with`.
inline void add_part(int64_t states, const float* part, const float* with, float* total, float* sums) {
  clear(sums, Q);
  for (int64_t i = 0; i < states * Q; i += Q)
    each_register(Q, [&](int64_t t) SIMD_INLINE {
      const vec x = load_all(part + i + t);
      store_all(total + i + t, load_all(total + i + t) + x);
      store_all(sums + t, fma(load_all(with + i + t), x, load_all(sums + t)));
    });
}

inline float dot(const float* a, const float* b, int64_t n) {
  vec sums = splat(0.0f);
  each_register(n, [&](int64_t i) SIMD_INLINE { sums = fma(load_all(a + i), load_all(b + i), sums); });
  return sum(sums);
}

// A head's gradients of x, dt, a_log, D and dt_bias; m.sum is d(s x). `through`: exp(c_end) times the product of the
// states before the chunk with the gradient of those after it.
template <class T>
void write_head(const SsdSizes& s, const SsdIn<T>& in, const SsdGradOut<T>& out, int64_t from, int64_t tokens,
                int64_t head, float through, SsdGradRoom& m) {
  const int64_t p = whole(s.width);
  const Steps& steps = m.m;
  const vec d = splat(in.d[head]);
  for (int64_t t = 0; t < tokens; ++t) {
    const vec step = splat(steps.step[t]);
    T* dx = out.dxbc + (from + t) * s.row + head * s.width;
    for_lanes(s.width, [&](int64_t i, auto k) SIMD_INLINE {
      store(dx + i, fma(d, load(m.dy + t * p + i, k), step * load(m.sum + t * p + i, k)), k);
    });
  }
  // The slope of each token's step, 0 where it is limited.
  float* slope = m.edy;
  each_register(Q, [&](int64_t t) SIMD_INLINE {
    const vec raw = load_all(steps.raw + t), plain = softplus_at(raw);
    const vec slopes = if_positive(splat(s.low) - plain, splat(0.0f), logistic_at(raw).value);
    store_all(slope + t, if_positive(plain - splat(s.high), splat(0.0f), slopes));
  });
  double arriving = static_cast<double>(through), behind = 0, a_sum = 0, d_sum = 0, bias_sum = 0;
  for (int64_t t = 0; t < tokens; ++t) arriving += static_cast<double>(m.leaving[t]);
  for (int64_t t = tokens; t-- > 0;) {
    behind += static_cast<double>(m.rows[t]) - static_cast<double>(m.columns[t]) + static_cast<double>(m.entering[t]);
    arriving -= static_cast<double>(m.leaving[t]);
    const double exponent = behind + arriving;
    const double of_step =
        static_cast<double>(steps.rate) * exponent + static_cast<double>(dot(m.x + t * p, m.sum + t * p, p));
    a_sum += static_cast<double>(steps.step[t]) * exponent;
    d_sum += static_cast<double>(dot(m.x + t * p, m.dy + t * p, p));
    float one[widest] = {static_cast<float>(of_step * static_cast<double>(slope[t]))};
    bias_sum += static_cast<double>(one[0]);
    store(out.ddt + (from + t) * s.dt_row + (s.dt_row - s.heads) + head, load_all(one), some_lanes{1});
  }
  out.da_log[head] += static_cast<float>(a_sum * static_cast<double>(steps.rate));
  out.dd[head] += static_cast<float>(d_sum), out.ddt_bias[head] += static_cast<float>(bias_sum);
}

template <class T>
void ssd_grad_head(const SsdSizes& s, const SsdIn<T>& in, const T* dy, const SsdGradOut<T>& out, int64_t from,
                   int64_t tokens, int64_t head, const float* before, float* after, SsdGradRoom& m) {
  const int64_t n = whole(s.states), p = whole(s.width);
  const bool enters = from > 0, leaves = from + tokens < s.tokens;  // the states before and after count
  find_steps(s, in, from, tokens, head, m.m);
  read_rows(in.xbc + from * s.row + head * s.width, s.row, tokens, s.width, m.x);
  read_rows(dy + (from * s.heads + head) * s.width, s.heads * s.width, tokens, s.width, m.dy);
  scale_rows(m.x, m.m.step, tokens, p, m.sx);
  transpose(m.sx, tokens, s.width, m.sxt);
  each_stripe(tokens, [&](int64_t r, int64_t count) {
    product(count, r + stripe, s.width, {m.dy + r * p, p, 1}, m.sxt, Q, m.w + r * Q, Q, false);
  });
  mix(tokens, m);
  if (leaves) {
    product(tokens, p, s.states, {m.b, n, 1}, after, p, m.sum, p, false);
    scale_rows(m.sum, m.m.to_end, tokens, p, m.sum);
    for (int64_t i = 0; i < s.width * Q; i += Q)
      each_register(Q, [&](int64_t t) SIMD_INLINE {
        store_all(m.sxt + i + t, load_all(m.sxt + i + t) * load_all(m.m.to_end + t));
      });
    product(s.states, Q, s.width, {after, p, 1}, m.sxt, Q, m.part, Q, false);
    add_part(s.states, m.part, m.bt, m.dbt, m.leaving);
  } else {
    clear(m.sum, tokens * p), clear(m.leaving, Q);
  }
  each_stripe(tokens, [&](int64_t r, int64_t count) {
    product(count, p, tokens - r, {m.mixed + r * Q + r, 1, Q}, m.dy + r * p, p, m.sum + r * p, p, true);
  });
  float through = 0.0f;
  if (enters) {
    scale_rows(m.dy, m.m.from_start, tokens, p, m.edy);
    transpose(m.edy, tokens, s.width, m.dyt);
    product(s.states, Q, s.width, {before, p, 1}, m.dyt, Q, m.part, Q, false);
    add_part(s.states, m.part, m.ct, m.dct, m.entering);
    if (leaves) through = m.m.over * dot(before, after, s.states * p), scale(after, m.m.over, s.states * p);
    product(s.states, p, tokens, {m.c, 1, n}, m.edy, p, after, p, leaves);
  } else {
    clear(m.entering, Q);
  }
  write_head(s, in, out, from, tokens, head, through, m);
}

template <class T>
void ssd_grad(const SsdSizes& s, const SsdIn<T>& in, const T* dy, const SsdGradOut<T>& out, int64_t first, int64_t last,
              float* scratch) {
  const int64_t n = whole(s.states), state = n * whole(s.width), all = (last - first) * state;
  SsdGradRoom m(s, last - first, scratch);
  keep_states(s, in, first, last, m);
  for (int64_t from = (s.tokens - 1) / Q * Q; from >= 0; from -= Q) {
    const int64_t tokens = s.tokens - from < Q ? s.tokens - from : Q;
    const T* rows = in.xbc + from * s.row;
    read_rows(rows + b_column(s, first), s.row, tokens, s.states, m.b);
    read_rows(rows + c_column(s, first), s.row, tokens, s.states, m.c);
    transpose(m.b, tokens, s.states, m.bt), transpose(m.c, tokens, s.states, m.ct);
    each_stripe(tokens, [&](int64_t r, int64_t count) {
      product(count, r + stripe, s.states, {m.c + r * n, n, 1}, m.bt, Q, m.scores + r * Q, Q, false);
    });
    clear(m.dscores, tokens * Q), clear(m.dbt, s.states * Q), clear(m.dct, s.states * Q);
    for (int64_t j = first; j < last; ++j)
      ssd_grad_head(s, in, dy, out, from, tokens, j, m.states + from / Q * all + (j - first) * state,
                    m.after + (j - first) * state, m);
    // The shares of this chunk's tokens in dB and dC, then those of the states.
    const auto write = [&](const float* shares, int64_t column) {
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t i = 0; i < s.states; ++i)
          out.dbc[(from + t) * 2 * s.states + column + i] = m.part[t * n + i] + shares[i * Q + t];
    };
    each_stripe(tokens, [&](int64_t r, int64_t count) {
      product(count, n, tokens - r, {m.dscores + r * Q + r, 1, Q}, m.c + r * n, n, m.part + r * n, n, false);
    });
    write(m.dbt, 0);
    each_stripe(tokens, [&](int64_t r, int64_t count) {
      product(count, n, r + count, {m.dscores + r * Q, Q, 1}, m.b, n, m.part + r * n, n, false);
    });
    write(m.dct, s.states);
  }
}

}  // namespace
}  // namespace mamba
