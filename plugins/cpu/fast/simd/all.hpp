// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gated.hpp"
#include "norm.hpp"
#include "optimizer.hpp"
#include "sequence.hpp"

#define SIMD_TABLE                                                                                              \
  {                                                                                                             \
    add, {gated<silu>, gated<gelu>, gated<gelu_tanh>, gated<relu>},                                             \
        {gated_grad<silu>, gated_grad<gelu>, gated_grad<gelu_tanh>, gated_grad<relu>}, rms_norm, rms_norm_grad, \
        fold_chunks, rope, attend, gemv, sum_squares, adamw, sgd                                                \
  }
