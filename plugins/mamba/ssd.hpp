// SPDX-License-Identifier: Apache-2.0
// The ops of Mamba-2, in addition to the convolution of ops.hpp. Devices need no kernels for them to run Mamba-1.
//
// B batch, T time, H heads, P channels of a head, N states of a channel, G groups of heads that share B and C. E = H P
// channels. "f" is the type of the activations and of the norm's weight: f32, f64, bf16 or f16. The states h, a_log, d
// and dt_bias, with their gradients, are f32, or f64 if f is. Documents of a sample: as in ops.hpp.
#pragma once

#include <cstddef>

#include "ops.hpp"

namespace mamba {

// The scan of state-space duality (Dao and Gu 2024). Of head j, which belongs to group j / (H / G):
//   s_t = softplus(dt_t + dt_bias), kept within low .. high;   h_t = exp(s_t A) h_(t-1) + s_t B_t x_t^T, (N, P)
//   y_t = D x_t + C_t h_t, with A = -exp(a_log) and h_0 = 0
// in: xbc (B, T, E + 2 G N) = [x | B | C], dt (B, T, H or more), whose last H columns are used, a_log, d, dt_bias (H),
// [segments (B, T) i32]; out: y (B, T, E). attrs: groups i, states i, low f, high f, which may be infinite.
#define MAMBA_OP_SSD "eng.mamba.ssd/1"
// in: dy, xbc, dt, a_log, d, dt_bias, [segments]; out: dxbc, ddt (as dt), zero before the last H columns, da_log, dd,
// ddt_bias. attrs as above. A step that was limited gets no gradient. The states are computed again.
#define MAMBA_OP_SSD_GRAD "eng.mamba.ssd_grad/1"
// The next n tokens of running sequences. in: xbc (B, n, E + 2 G N), dt, a_log, d, dt_bias, h (B, H, N, P); out: y (B,
// n, E), h, in place. attrs as above.
#define MAMBA_OP_SSD_STEP "eng.mamba.ssd_step/1"

// y = w norm(x silu(z)): each of `groups` equal parts of a row is divided by the root of its mean square + eps.
// in: x (B, T, E), z (B, T, E), w (E); out: y (B, T, E). attrs: groups i, eps f.
#define MAMBA_OP_GATED_NORM "eng.mamba.gated_norm/1"
// in: dy, x, z, w; out: dx (in place of dy), dz, dw (E); where f has 16 bits, dw may be f32 instead.
#define MAMBA_OP_GATED_NORM_GRAD "eng.mamba.gated_norm_grad/1"

// Initial values: out = ln(u) with u uniform in (low, high); an element gets the same random number as from
// eng.init_uniform. attrs: low f, high f, seed i, stream i, first i.
#define MAMBA_OP_INIT_LOG_UNIFORM "eng.mamba.init_log_uniform/1"

extern const eng_op ssd_ops[];
inline constexpr size_t ssd_op_count = 6;

}  // namespace mamba
