// SPDX-License-Identifier: Apache-2.0
// selective_scan and its gradient for a register of channels (`width` of them).
//
// For each channel and each of its states, token by token (ops.hpp has the whole formula):
//   h = exp(step A) h + step u B,   y = (D u + sum over states of C h) silu(gate)
// The states of a register of channels lie in scratch memory (states, width), small enough for the first-level cache.
// Nothing that has one value per state is written for all tokens; only the states before each chunk are kept.
// Order of summation: states in order within a token, tokens in order within a sequence. The gradients of B and C are
// sums over channels: first the registers of a block in order, lane by lane, then the lanes of one register.
#pragma once

#include "../common/segments.hpp"
#include "loops_conv.hpp"

namespace mamba {
namespace {

// ln(1 + t) for t in 0 .. 1: 2 artanh(t / (2 + t)).
inline vec log1p_at(vec t) {
  const vec s = t / (t + splat(2.0f)), q = s * s;
  vec p = splat(2.0f / 13.0f);
  p = fma(p, q, splat(2.0f / 11.0f));
  p = fma(p, q, splat(2.0f / 9.0f));
  p = fma(p, q, splat(2.0f / 7.0f));
  p = fma(p, q, splat(2.0f / 5.0f));
  p = fma(p, q, splat(2.0f / 3.0f));
  return fma(p * q, s, s + s);
}
inline vec softplus_at(vec x) {
  return max(splat(0.0f), x) + log1p_at(exp(splat(0.0f) - abs(x)));
}

// 2^x for x <= 0 to about 1 ulp. Results below 2^-64 become 0: such a share of a state is far below the rounding of
// what is added to it, and its products would be denormal numbers, each of which takes hundreds of cycles. A NaN stays
// NaN.
inline vec decay_at(vec x) {
  const vec magic = splat(12582912.0f), least = splat(-64.0f), at = max(least, x);
  const vec n = (at + magic) - magic, f = at - n;  // f in -1/2 .. 1/2
  vec p = splat(1.535336188319500e-4f);
  p = fma(p, f, splat(1.339887440266574e-3f));
  p = fma(p, f, splat(9.618437357674640e-3f));
  p = fma(p, f, splat(5.550332471162809e-2f));
  p = fma(p, f, splat(2.402264791363012e-1f));
  p = fma(p, f, splat(6.931472028550421e-1f));
  p = fma(p, f, splat(1.0f));
  return if_positive(least - x, splat(0.0f), scale2(p, n));
}

constexpr float log2_e = 1.44269504f, ln_2 = 0.693147181f;

inline int64_t lanes_of(all_lanes) {
  return width;
}
inline int64_t lanes_of(some_lanes k) {
  return k.n;
}

// Offset of state n of channel e in a matrix (states, channels).
inline int64_t state_at(const Sizes& s, int64_t n, int64_t e) {
  return n * s.channels + e;
}
// The B of token t, one per state; its C follow.
inline const float* b_of(const Sizes& s, const float* bc, int64_t t) {
  return bc + t * 2 * s.states;
}

// rate (states, width): A log2(e) with A = -exp(a_log), so that exp(step A) = decay_at(step rate). a_log (channels,
// states) is turned so that a register holds one state of all its channels.
template <class Lanes>
inline void load_rates(const Sizes& s, const float* a_log, int64_t e, Lanes, int64_t lanes, float* rate) {
  for (int64_t n = 0; n < s.states; ++n) {
    float column[widest] = {};
    for (int64_t j = 0; j < lanes; ++j) column[j] = a_log[(e + j) * s.states + n];
    store_all(rate + n * width, exp(load_all(column)) * splat(-log2_e));
  }
}

template <class T>
void scan(const Sizes& s, const ScanIn<T>& in, T* y, float* states, float* running, int64_t first, int64_t last,
          float* scratch) {
  float *rate = scratch, *h = rate + s.states * width;  // (states, width)
  for_channels(first, last, [&](int64_t e, auto k) SIMD_INLINE {
    load_rates(s, in.a_log, e, k, lanes_of(k), rate);
    const vec d = load(in.d + e, k), bias = load(in.dt_bias + e, k);
    // The states before the first token.
    for (int64_t n = 0; n < s.states; ++n)
      store_all(h + n * width, running ? load(running + state_at(s, n, e), k) : splat(0.0f));
    for (int64_t t = 0; t < s.tokens; ++t) {
      if (begins_document(in.segments, t))
        for (int64_t n = 0; n < s.states; ++n) store_all(h + n * width, splat(0.0f));
      // Before the first token of a chunk: keep the states for the backward.
      if (!running && t % s.chunk == 0)
        for (int64_t n = 0; n < s.states; ++n)
          store(states + state_at(s, t / s.chunk * s.states + n, e), load_all(h + n * width), k);
      const float *b = b_of(s, in.bc, t), *c = b + s.states;
      const vec u = load(in.u + at(s, t, e), k), step = softplus_at(load(in.delta + at(s, t, e), k) + bias);
      const vec su = step * u;
      vec sum = d * u;
      for (int64_t n = 0; n < s.states; ++n) {
        const vec next = fma(decay_at(step * load_all(rate + n * width)), load_all(h + n * width), su * splat(b[n]));
        store_all(h + n * width, next);
        sum = fma(splat(c[n]), next, sum);
      }
      const vec z = load(in.gate + gate_at(s, t, e), k);
      store(y + at(s, t, e), sum * (z * logistic_at(z).value), k);
    }
    // The states after the last token, for the next call.
    for (int64_t n = 0; running && n < s.states; ++n) store(running + state_at(s, n, e), load_all(h + n * width), k);
  });
}

// The values that the backward of one chunk needs for a register of channels. All of it is in scratch memory.
struct Chunk {
  float *step, *u;  // of each token: (chunk, width)
  float* dy;        // gradient of y before the gate: (chunk, width)
  float* slope;     // of the softplus: (chunk, width)
  float* decay;     // exp(step A): (chunk, states, width)
  float* h;         // (chunk + 1, states, width): h[0] before the chunk, h[i + 1] after its token i
  float* dbc;       // (chunk, 2 states, width): gradients of B and C, summed over the registers of the block
};

// Computes the tokens from .. to - 1 again, as `scan` does, and keeps in `m` what the backward needs. They belong to
// one chunk and one document; `from` is the first one of the chunk or of the document. Writes dgate.
template <class T, class Lanes>
SIMD_INLINE inline void again(const Sizes& s, const ScanGradIn<T>& in, const ScanGradOut<T>& out, int64_t e, Lanes k,
                              const float* rate, int64_t from, int64_t to, const Chunk& m) {
  const ScanIn<T>& f = in.forward;
  const vec d = load(f.d + e, k), bias = load(f.dt_bias + e, k);
  const bool kept = from % s.chunk == 0;
  for (int64_t n = 0; n < s.states; ++n)
    store_all(m.h + n * width, kept ? load(in.states + state_at(s, from / s.chunk * s.states + n, e), k) : splat(0.0f));
  for (int64_t t = from; t < to; ++t) {
    const int64_t i = t - from;
    const float *b = b_of(s, f.bc, t), *c = b + s.states, *h = m.h + i * s.states * width;
    float *next = m.h + (i + 1) * s.states * width, *decay = m.decay + i * s.states * width;
    const vec u = load(f.u + at(s, t, e), k), raw = load(f.delta + at(s, t, e), k) + bias, step = softplus_at(raw);
    const vec su = step * u;
    vec sum = d * u;
    for (int64_t n = 0; n < s.states; ++n) {
      const vec a = decay_at(step * load_all(rate + n * width));
      const vec x = fma(a, load_all(h + n * width), su * splat(b[n]));
      store_all(decay + n * width, a), store_all(next + n * width, x);
      sum = fma(splat(c[n]), x, sum);
    }
    const activation gate = silu_at(load(f.gate + gate_at(s, t, e), k));
    const vec dy = load(in.dy + at(s, t, e), k);
    store(out.dgate + gate_at(s, t, e), dy * sum * gate.slope, k);
    store_all(m.step + i * width, step), store_all(m.u + i * width, u);
    store_all(m.dy + i * width, dy * gate.value), store_all(m.slope + i * width, logistic_at(raw).value);
  }
}

// Goes through these tokens from the last to the first. With g the gradient of h after token t:
//   g = carry + C dy;   dC += dy h;   dB += g step u;   dA += g step exp(step A) h_before;   carry = g exp(step A)
// carry, da (states, width): carry is the gradient of h that comes from later tokens, da the sum for A so far.
// dd, dbias (width): the sums for D and dt_bias so far.
template <class T, class Lanes>
SIMD_INLINE inline void backwards(const Sizes& s, const ScanGradIn<T>& in, const ScanGradOut<T>& out, int64_t e,
                                  Lanes k, const float* rate, int64_t from, int64_t to, const Chunk& m, float* carry,
                                  float* da, float* dd, float* dbias) {
  const vec d = load(in.forward.d + e, k);
  vec d_sum = load_all(dd), bias_sum = load_all(dbias);
  for (int64_t t = to; t-- > from;) {
    const int64_t i = t - from;
    const float *b = b_of(s, in.forward.bc, t), *c = b + s.states;
    const float *h = m.h + i * s.states * width, *after = h + s.states * width, *decay = m.decay + i * s.states * width;
    float *db = m.dbc + i * 2 * s.states * width, *dc = db + s.states * width;
    const vec step = load_all(m.step + i * width), u = load_all(m.u + i * width), dy = load_all(m.dy + i * width);
    const vec su = step * u;
    // Gradients of the step: through_b of step u (by way of B), through_a of the decay's exponent (by way of A).
    vec through_b = splat(0.0f), through_a = through_b;
    for (int64_t n = 0; n < s.states; ++n) {
      const int64_t j = n * width;
      const vec a = load_all(decay + j), g = fma(splat(c[n]), dy, load_all(carry + j));
      store_all(dc + j, fma(dy, load_all(after + j), load_all(dc + j)));
      store_all(db + j, fma(g, su, load_all(db + j)));
      through_b = fma(g, splat(b[n]), through_b);
      const vec ga = g * a, kept = ga * load_all(h + j);
      through_a = fma(kept, load_all(rate + j), through_a);
      store_all(da + j, fma(kept, step, load_all(da + j)));
      store_all(carry + j, ga);
    }
    // rate is A log2(e), so through_a times ln 2 is the sum with A itself.
    const vec raw = fma(u, through_b, through_a * splat(ln_2)) * load_all(m.slope + i * width);
    d_sum = fma(dy, u, d_sum), bias_sum = bias_sum + raw;
    store(out.du + at(s, t, e), fma(d, dy, step * through_b), k);
    store(out.ddelta + at(s, t, e), raw, k);
  }
  store_all(dd, d_sum), store_all(dbias, bias_sum);
}

// Chunks from the last to the first; within a chunk, register by register, each first forwards and then backwards. What
// a register carries from one chunk to the one before it lies in scratch memory, for all registers of the block.
template <class T>
void scan_grad(const Sizes& s, const ScanGradIn<T>& in, const ScanGradOut<T>& out, int64_t first, int64_t last,
               float* scratch) {
  const int64_t room = (last - first + width - 1) / width * width;  // channels of the block, in whole registers
  const int64_t states = s.states * width;
  float *rates = scratch, *carries = rates + s.states * room, *das = carries + s.states * room;  // (states, width) each
  float *dds = das + s.states * room, *biases = dds + room;                                      // (width) each
  Chunk m;
  m.step = biases + room, m.u = m.step + s.chunk * width, m.dy = m.u + s.chunk * width;
  m.slope = m.dy + s.chunk * width, m.decay = m.slope + s.chunk * width;
  m.h = m.decay + s.chunk * states, m.dbc = m.h + (s.chunk + 1) * states;
  for (float* p = carries; p < m.step; ++p) *p = 0.0f;
  for_channels(first, last, [&](int64_t e, auto k) SIMD_INLINE {
    load_rates(s, in.forward.a_log, e, k, lanes_of(k), rates + (e - first) * s.states);
  });
  for (int64_t from = (s.tokens - 1) / s.chunk * s.chunk; from >= 0; from -= s.chunk) {
    const int64_t to = from + s.chunk < s.tokens ? from + s.chunk : s.tokens;
    for (int64_t i = 0; i < (to - from) * 2 * states; ++i) m.dbc[i] = 0.0f;
    for_channels(first, last, [&](int64_t e, auto k) SIMD_INLINE {
      const int64_t of = e - first;
      const float* rate = rates + of * s.states;
      float* carry = carries + of * s.states;
      // The documents of the chunk, from the last to the first.
      for (int64_t end = to, start; end > from; end = start) {
        start = document_start(in.forward.segments, from, end - 1);
        Chunk part = m;
        part.dbc += (start - from) * 2 * states;
        again(s, in, out, e, k, rate, start, end, part);
        backwards(s, in, out, e, k, rate, start, end, part, carry, das + of * s.states, dds + of, biases + of);
        if (begins_document(in.forward.segments, start))  // the document before gets nothing of it
          for (int64_t n = 0; n < s.states; ++n) store_all(carry + n * width, splat(0.0f));
      }
    });
    // The gradients of B and C of the chunk's tokens: now the sum over the lanes.
    const int64_t columns = 2 * s.states;
    for (int64_t i = 0; i < (to - from) * columns; ++i) out.dbc[from * columns + i] = sum(load_all(m.dbc + i * width));
  }
  for_channels(first, last, [&](int64_t e, auto k) SIMD_INLINE {
    const int64_t of = e - first;
    for (int64_t n = 0; n < s.states; ++n) {  // da_log = da A, and A = rate ln 2
      const vec a = load_all(rates + of * s.states + n * width) * splat(ln_2);
      store(out.da_log + state_at(s, n, e), load_all(das + of * s.states + n * width) * a, k);
    }
    store(out.dd + e, load_all(dds + of), k);
    store(out.ddt_bias + e, load_all(biases + of), k);
  });
}

}  // namespace
}  // namespace mamba
