// SPDX-License-Identifier: Apache-2.0
// selective_scan and its gradient for a register of channels. The states of a register of channels lie in scratch
// memory that stays in the first cache; what depends on states is never written for all tokens.
#pragma once

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

// 2^x for x <= 0 to about 1 ulp. Below 2^-64 it is 0: that much of a state is far below the rounding of what is added
// to it, and its products would be denormal, which take hundreds of cycles. A NaN stays one.
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

// rate[n] = A log2(e) of these channels, so that exp(s A) = decay_at(s rate).
template <class Lanes>
inline void load_rates(const Sizes& s, const float* a_log, int64_t e, Lanes, int64_t lanes, float* rate) {
  for (int64_t n = 0; n < s.N; ++n) {
    float column[widest] = {};
    for (int64_t j = 0; j < lanes; ++j) column[j] = a_log[(e + j) * s.N + n];
    store_all(rate + n * width, exp(load_all(column)) * splat(-log2_e));
  }
}

inline int64_t lanes_of(all_lanes) {
  return width;
}
inline int64_t lanes_of(some_lanes k) {
  return k.n;
}

void scan(const Sizes& s, const ScanIn& in, float* y, float* states, float* running, int64_t first, int64_t last,
          float* scratch) {
  float *rate = scratch, *h = rate + s.N * width;  // (N, width)
  for_channels(first, last, [&](int64_t e, auto k) SIMD_INLINE {
    load_rates(s, in.a_log, e, k, lanes_of(k), rate);
    const vec d = load(in.d + e, k), bias = load(in.dt_bias + e, k);
    for (int64_t n = 0; n < s.N; ++n) store_all(h + n * width, running ? load(running + n * s.E + e, k) : splat(0.0f));
    for (int64_t t = 0; t < s.T; ++t) {
      if (!running && t % s.S == 0)
        for (int64_t n = 0; n < s.N; ++n) store(states + (t / s.S * s.N + n) * s.E + e, load_all(h + n * width), k);
      const float *b = in.bc + t * 2 * s.N, *c = b + s.N;
      const vec u = load(in.u + t * s.E + e, k), step = softplus_at(load(in.delta + t * s.E + e, k) + bias);
      const vec su = step * u;
      vec sum = d * u;
      for (int64_t n = 0; n < s.N; ++n) {
        const vec next = fma(decay_at(step * load_all(rate + n * width)), load_all(h + n * width), su * splat(b[n]));
        store_all(h + n * width, next);
        sum = fma(splat(c[n]), next, sum);
      }
      const vec z = load(in.gate + t * s.G + s.G - s.E + e, k);
      store(y + t * s.E + e, sum * (z * logistic_at(z).value), k);
    }
    for (int64_t n = 0; running && n < s.N; ++n) store(running + n * s.E + e, load_all(h + n * width), k);
  });
}

// What the backward of one chunk needs for a register of channels, all in scratch: per token the step, u, gradient of
// y before the gate, slope of the softplus; per token and state the decay and h after the token.
struct Chunk {
  float *step, *u, *dy, *slope;  // (S, width)
  float *decay, *h;              // (S, N, width), (S + 1, N, width): h[0] is that before the chunk
  float* dbc;                    // (S, 2N, width), sums over the registers of the block, lane by lane
};

// Fills the chunk of tokens from .. to - 1 and writes dgate.
template <class Lanes>
SIMD_INLINE inline void again(const Sizes& s, const ScanGradIn& in, const ScanGradOut& out, int64_t e, Lanes k,
                              const float* rate, int64_t from, int64_t to, const Chunk& m) {
  const ScanIn& f = in.forward;
  const vec d = load(f.d + e, k), bias = load(f.dt_bias + e, k);
  for (int64_t n = 0; n < s.N; ++n) store_all(m.h + n * width, load(in.states + (from / s.S * s.N + n) * s.E + e, k));
  for (int64_t t = from; t < to; ++t) {
    const int64_t i = t - from;
    const float *b = f.bc + t * 2 * s.N, *c = b + s.N, *h = m.h + i * s.N * width;
    float *next = m.h + (i + 1) * s.N * width, *decay = m.decay + i * s.N * width;
    const vec u = load(f.u + t * s.E + e, k), raw = load(f.delta + t * s.E + e, k) + bias, step = softplus_at(raw);
    const vec su = step * u;
    vec sum = d * u;
    for (int64_t n = 0; n < s.N; ++n) {
      const vec a = decay_at(step * load_all(rate + n * width));
      const vec x = fma(a, load_all(h + n * width), su * splat(b[n]));
      store_all(decay + n * width, a), store_all(next + n * width, x);
      sum = fma(splat(c[n]), x, sum);
    }
    const activation gate = silu_at(load(f.gate + t * s.G + s.G - s.E + e, k));
    const vec dy = load(in.dy + t * s.E + e, k);
    store(out.dgate + t * s.G + s.G - s.E + e, dy * sum * gate.slope, k);
    store_all(m.step + i * width, step), store_all(m.u + i * width, u);
    store_all(m.dy + i * width, dy * gate.value), store_all(m.slope + i * width, logistic_at(raw).value);
  }
}

// The tokens of the chunk backwards. carry: gradient of h after the token from the tokens behind it; da: the sum of
// that of A, both (N, width).
template <class Lanes>
SIMD_INLINE inline void backwards(const Sizes& s, const ScanGradIn& in, const ScanGradOut& out, int64_t e, Lanes k,
                                  const float* rate, int64_t from, int64_t to, const Chunk& m, float* carry, float* da,
                                  float* dd, float* dbias) {
  const vec d = load(in.forward.d + e, k);
  vec d_sum = load_all(dd), bias_sum = load_all(dbias);
  for (int64_t t = to; t-- > from;) {
    const int64_t i = t - from;
    const float *b = in.forward.bc + t * 2 * s.N, *c = b + s.N;
    const float *h = m.h + i * s.N * width, *after = h + s.N * width, *decay = m.decay + i * s.N * width;
    float *db = m.dbc + i * 2 * s.N * width, *dc = db + s.N * width;
    const vec step = load_all(m.step + i * width), u = load_all(m.u + i * width), dy = load_all(m.dy + i * width);
    const vec su = step * u;
    vec through_b = splat(0.0f), through_a = through_b;
    for (int64_t n = 0; n < s.N; ++n) {
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
    const vec raw = fma(u, through_b, through_a * splat(ln_2)) * load_all(m.slope + i * width);
    d_sum = fma(dy, u, d_sum), bias_sum = bias_sum + raw;
    store(out.du + t * s.E + e, fma(d, dy, step * through_b), k);
    store(out.ddelta + t * s.E + e, raw, k);
  }
  store_all(dd, d_sum), store_all(dbias, bias_sum);
}

void scan_grad(const Sizes& s, const ScanGradIn& in, const ScanGradOut& out, int64_t first, int64_t last,
               float* scratch) {
  const int64_t room = (last - first + width - 1) / width * width, states = s.N * width;
  float *rates = scratch, *carries = rates + s.N * room, *das = carries + s.N * room;  // per register (N, width)
  float *dds = das + s.N * room, *biases = dds + room;                                 // per register (width)
  Chunk m;
  m.step = biases + room, m.u = m.step + s.S * width, m.dy = m.u + s.S * width, m.slope = m.dy + s.S * width;
  m.decay = m.slope + s.S * width, m.h = m.decay + s.S * states, m.dbc = m.h + (s.S + 1) * states;
  for (float* p = carries; p < m.step; ++p) *p = 0.0f;
  for_channels(first, last, [&](int64_t e, auto k) SIMD_INLINE {
    load_rates(s, in.forward.a_log, e, k, lanes_of(k), rates + (e - first) * s.N);
  });
  for (int64_t from = (s.T - 1) / s.S * s.S; from >= 0; from -= s.S) {
    const int64_t to = from + s.S < s.T ? from + s.S : s.T;
    for (int64_t i = 0; i < (to - from) * 2 * states; ++i) m.dbc[i] = 0.0f;
    for_channels(first, last, [&](int64_t e, auto k) SIMD_INLINE {
      const int64_t at = e - first;
      const float* rate = rates + at * s.N;
      again(s, in, out, e, k, rate, from, to, m);
      backwards(s, in, out, e, k, rate, from, to, m, carries + at * s.N, das + at * s.N, dds + at, biases + at);
    });
    for (int64_t i = 0; i < (to - from) * 2 * s.N; ++i) out.dbc[from * 2 * s.N + i] = sum(load_all(m.dbc + i * width));
  }
  for_channels(first, last, [&](int64_t e, auto k) SIMD_INLINE {
    const int64_t at = e - first;
    for (int64_t n = 0; n < s.N; ++n) {  // dA_log = dA A
      const vec a = load_all(rates + at * s.N + n * width) * splat(ln_2);
      store(out.da_log + n * s.E + e, load_all(das + at * s.N + n * width) * a, k);
    }
    store(out.dd + e, load_all(dds + at), k);
    store(out.ddt_bias + e, load_all(biases + at), k);
  });
}

}  // namespace
}  // namespace mamba
