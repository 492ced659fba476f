// SPDX-License-Identifier: Apache-2.0
// The ops of Mamba, defined through the interface that is open to every plugin (engine/op.h).
//
// B batch, T time, E channels, N states of a channel, R rank of the time step, K taps of the convolution. "f" is the
// type of the activations and of the convolution's weights: f32, f64, bf16 or f16. The states h, a_log, d and dt_bias,
// with their gradients, are f32, or f64 if f is. Sums are accumulated at least in f32, then rounded once.
#pragma once

#include <cstdint>

#include "engine/build.h"
#include "engine/op.h"

namespace mamba {

// A sample may hold several documents, which `segments` (B, T) i32 tells apart as engine/ops.h describes. Each document
// then gets what it would get alone: where the text below speaks of the first token, of what comes before it or of what
// comes after the last one, that of each document is meant. No gradient crosses a border. Running sequences have none.

// y = silu(bias + sum over k of w[e, k] x[t - K + 1 + k, e]); before the first token x is zero.
// in: x (B, T, E or more), whose first E columns are used, w (E, 1, K), [bias (E)], [segments (B, T) i32]; out: y (B,
// T, E). K is 2 to 4.
#define MAMBA_OP_CONV "eng.mamba.causal_conv1d/1"
// in: dy, x, w, [bias], [dx_acc, as x], [segments]; out: dx (as x), zero after the first E columns, in the memory of
// dx_acc; dw (E, 1, K), and with a bias dbias (E); where f has 16 bits, both may be f32 instead.
#define MAMBA_OP_CONV_GRAD "eng.mamba.causal_conv1d_grad/1"

// The selective scan (Gu and Dao 2023), together with the element-wise steps around it:
//   s_t = softplus(delta_t + dt_bias);  h_t = exp(s_t A) h_(t-1) + s_t u_t B_t, A = -exp(a_log), h_0 = 0
//   y_t = (D u_t + sum over n of C_t h_t) silu(gate_t)
// in: u (B, T, E), delta (B, T, E), a_log (E, N), bc (B, T, 2N) = [B | C], d (E), dt_bias (E), gate (B, T, E or
// more), whose last E columns are used, [dt (B, T, R), w (E, R)], [segments (B, T) i32]; out: y (B, T, E), states (B,
// chunks, N, E): h before the first token of each chunk of mamba::chunk tokens, zero if that is the first token of a
// document. If dt and w are given, delta is not kept for the backward, which computes it again as dt w^T.
#define MAMBA_OP_SCAN "eng.mamba.selective_scan/1"
// in: dy, u, delta, a_log, bc, d, dt_bias, gate, states, [segments]; out: du (in place of dy), ddelta (in place of
// delta), da_log, dbc, dd, ddt_bias, dgate (as gate), zero before the last E columns.
#define MAMBA_OP_SCAN_GRAD "eng.mamba.selective_scan_grad/1"

// The next n tokens of running sequences. last (B, K - 1, E): the x of the tokens before them, in order; h (B, N, E):
// the states. Both are replaced, in place, by their values after the n tokens. in: x (B, n, G), w, last, [bias]; out: y
// (B, n, E), last.
#define MAMBA_OP_CONV_STEP "eng.mamba.causal_conv1d_step/1"
// in: u (B, n, E), delta, a_log, bc, d, dt_bias, gate, h; out: y (B, n, E), h.
#define MAMBA_OP_SCAN_STEP "eng.mamba.selective_scan_step/1"

// in: x (..., P + Q); out: a (..., P), b (..., Q). attr: at i = P. join is the inverse.
#define MAMBA_OP_SPLIT "eng.mamba.split/1"
#define MAMBA_OP_JOIN "eng.mamba.join/1"

// Initial values; element e belongs to channel e / N and state e % N.
// out = ln(e % states + 1). attrs: states i, first i.
#define MAMBA_OP_INIT_A_LOG "eng.mamba.init_a_log/1"
// out = the number whose softplus is max(floor, exp(u)) with u uniform in (low, high). An element gets the same random
// number as from eng.init_uniform. attrs: low f, high f, floor f, seed i, stream i, first i.
#define MAMBA_OP_INIT_DT_BIAS "eng.mamba.init_dt_bias/1"

// Tokens between two kept states. A larger chunk keeps fewer states, N / chunk floats per token and channel, but the
// backward of a chunk needs more scratch memory.
inline constexpr int64_t chunk = 64;
inline int64_t chunks(int64_t length) {
  return (length + chunk - 1) / chunk;
}

extern const eng_ops all_ops;

}  // namespace mamba
