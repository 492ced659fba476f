// SPDX-License-Identifier: Apache-2.0
// The gated norm of Mamba-2 (ssd.hpp) where a group of channels is divided, as ranks do: number `at` of `groups` groups
// has `columns` channels, of which the inputs have E. "f" and "wide" are those of ssd.hpp.
#pragma once

#include <cstddef>

#include "ops.hpp"

namespace mamba {

// The part of these channels in the sums of squares of all groups, those of the others 0. Over all parts, they add up
// to the sums of the norm.
// in: x (B, T, E), z (B, T, E); out: sums (B, T, groups) wide: (x silu(z))^2. attrs: groups i, at i.
#define MAMBA_OP_GATED_SQUARES "eng.mamba.gated_squares/1"
// in: x, z, dsums, [dx_acc], [dz_acc]; out: dx, dz, in the memory of the accumulators. attrs as above.
#define MAMBA_OP_GATED_SQUARES_GRAD "eng.mamba.gated_squares_grad/1"
// y = w x silu(z) / sqrt(sums[at] / columns + eps).
// in: x, z, w (E), sums (B, T, groups) wide; out: y (B, T, E). attrs: at i, columns i, eps f.
#define MAMBA_OP_GATED_NORM_PART "eng.mamba.gated_norm_part/1"
// in: dy, x, z, w, sums; out: dx (in place of dy), dz, dw (E), dsums, 0 but for `at`; where f has 16 bits, dw may be
// f32 instead. attrs as above.
#define MAMBA_OP_GATED_NORM_PART_GRAD "eng.mamba.gated_norm_part_grad/1"

extern const eng_op norm_part_ops[];
inline constexpr size_t norm_part_op_count = 4;

}  // namespace mamba
