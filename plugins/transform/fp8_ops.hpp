// SPDX-License-Identifier: Apache-2.0
// The ops of engine/ops_fp8.h: shapes, work and gradients. Devices have the kernels.
#pragma once

#include "engine/op.h"

namespace fp8 {

extern const eng_ops ops;

}  // namespace fp8
