// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dropout.hpp"
#include "fp8.hpp"
#include "gated.hpp"
#include "layer_norm.hpp"
#include "norm.hpp"
#include "optimizer.hpp"
#include "sequence.hpp"
#include "sums.hpp"

namespace cpu {
namespace {

template <class T>
constexpr typed_loops<T> loops_of = {
    .add = add<T, T>,
    .add_wide = add<T, float>,
    .gated = {gated<silu, T>, gated<gelu, T>, gated<gelu_tanh, T>, gated<relu, T>},
    .gated_grad = {gated_grad<silu, T>, gated_grad<gelu, T>, gated_grad<gelu_tanh, T>, gated_grad<relu, T>},
    .activation = {activation<silu, T>, activation<gelu, T>, activation<gelu_tanh, T>, activation<relu, T>},
    .activation_grad = {activation_grad<silu, T>, activation_grad<gelu, T>, activation_grad<gelu_tanh, T>,
                        activation_grad<relu, T>},
    .scale = scale<T>,
    .dropout = dropout<T>,
    .layer_norm = layer_norm<T>,
    .layer_norm_grad = layer_norm_grad<T>,
    .rms_norm = rms_norm<T, T>,
    .rms_norm_wide = rms_norm<T, float>,
    .rms_norm_grad = rms_norm_grad<T, T>,
    .rms_norm_grad_wide = rms_norm_grad<T, float>,
    .fold_chunks = fold_chunks<T>,
    .sum_rows = sum_rows<T, T>,
    .sum_rows_wide = sum_rows<T, float>,
    .rope = rope<T>,
    .attend = attend<T>,
    .gemv = gemv<T>,
    .sum_squares = sum_squares<T>,
    .largest_finite = largest_finite<T>,
    .to_fp8 = to_fp8<T>,
    .adamw = adamw<T>,
    .sgd = sgd<T>,
};

template <class G>
constexpr rounded_loops<G> rounded_loops_of = {.adamw = adamw_rounded<G>, .sgd = sgd_rounded<G>};

constexpr simd_table all_loops = {loops_of<float>, loops_of<bf16>, loops_of<f16>, rounded_loops_of<float>,
                                  rounded_loops_of<bf16>};

}  // namespace
}  // namespace cpu
