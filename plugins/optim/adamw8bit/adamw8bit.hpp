// SPDX-License-Identifier: Apache-2.0
// AdamW with moments of 8 bits (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization",
// https://arxiv.org/abs/2110.02861). A block of 256 elements has one f32 scale for each moment, the largest magnitude
// in the block. An element has one byte, which stands for a number from -1 to 1, or from 0 to 1: codes.hpp.
#pragma once

#include "../../common/kernel.hpp"
#include "engine/op.h"
#include "engine/optimizer.h"

namespace adamw8bit {

// Per block of 256 elements: m = value(m_codes) * m_scales and v = value(v_codes) * v_scales, the arithmetic of
// eng.adamw/1 with them, then new scales and codes from the new m and v. Each operation is rounded to f32 once.
//   scale = the largest |m|, or |v|, of the block; 0 if all are 0; NaN (0x7fc00000) if one is NaN or infinite
//   code  = that of the value that is nearest to |m| / scale, of two the larger one, with the sign of m; -1 has no
//           code and becomes the value above it; 0 where the scale is 0 or NaN. v: the same, but where v is above 0 the
//           value is above 0 too: with v = 0 the step would be m / eps.
// Nothing changes if scalars[OK] is 0.
// in: p, grad (n) f32, m_codes (n) u8, m_scales (n/256) f32, v_codes (n) u8, v_scales (n/256) f32, scalars; n is a
// multiple of 256; out: p, m_codes, m_scales, v_codes, v_scales, in place; [weight (n)].
// attrs: beta1 f, beta2 f, eps f, weight_decay f, [weight i, as in eng.adamw/1]. EXACT.
#define ADAMW8BIT_OP_UPDATE "eng.adamw8bit.update/1"

constexpr int64_t block = 256;

extern const eng_optimizer optimizer;
extern const eng_ops ops;
extern const eng_kernels reference_kernels;
const eng_kernels* cpu_kernels();  // with the best instruction set of this processor
// The kernels of `cpu` for one instruction set ("portable", "avx2"); nullptr if this processor lacks it.
const eng_kernels* isa_kernels(const char* name);

}  // namespace adamw8bit
