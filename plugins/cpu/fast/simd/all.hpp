// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dropout.hpp"
#include "gated.hpp"
#include "layer_norm.hpp"
#include "norm.hpp"
#include "optimizer.hpp"
#include "sequence.hpp"

#define SIMD_TABLE                                                                                                   \
  {                                                                                                                  \
    add, {gated<silu>, gated<gelu>, gated<gelu_tanh>, gated<relu>},                                                  \
        {gated_grad<silu>, gated_grad<gelu>, gated_grad<gelu_tanh>, gated_grad<relu>},                               \
        {activation<silu>, activation<gelu>, activation<gelu_tanh>, activation<relu>},                               \
        {activation_grad<silu>, activation_grad<gelu>, activation_grad<gelu_tanh>, activation_grad<relu>}, scale,    \
        dropout, layer_norm, layer_norm_grad, rms_norm, rms_norm_grad, fold_chunks, rope, attend, gemv, sum_squares, \
        adamw, sgd                                                                                                   \
  }
