// SPDX-License-Identifier: Apache-2.0
// Norms and largest magnitudes of gradients, activations, updates and parameters, per block.
#pragma once

#include "../../common/kernel.hpp"
#include "engine/observer.h"
#include "engine/op.h"

namespace stats {

// Measures x, or x / scalars[ENG_S_LOSS_SCALE] with scalars: the sum of squares, and the largest magnitude; both NaN if
// one element is. Sums of 4,096 elements each in f64, in order, these added in order. in: x (any) f, [scalars]; out:
// (2) f32. EXACT.
#define STATS_OP_MEASURE "eng.stats.measure/1"

extern const eng_observer observer;
extern const eng_ops ops;
extern const eng_kernels cpu_kernels, reference_kernels;

}  // namespace stats
