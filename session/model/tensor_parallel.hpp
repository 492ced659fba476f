// SPDX-License-Identifier: Apache-2.0
// [parallel] tensor: the ranks of a tensor group divide the linear maps of the layers among them.
#pragma once

#include "core/trace/model.hpp"
#include "core/trace/ranks.hpp"
#include "session/config/config.hpp"

namespace eng {

// Throws Error(Exit::usage) for sections that a divided model cannot be trained with yet.
void check_parallel(const Config& config);

// Divides the maps of every layer into pairs, as Shoeybi et al. 2019 (arXiv 1909.08053) do. Of the first maps (queries,
// keys, values, gate, up) this rank keeps some rows, and so computes some heads or channels; of those that read them
// (output, down), the columns for these. The ranks' results of the second ones are summed, as are the gradients of what
// the first ones read. Everything else is computed by all. Sets Parameter::cut of what is divided. The model has no
// backward yet. Throws Error(Exit::usage) naming the block and the op, or the parameter, that it cannot divide.
// `kernels`: the device has kernels for norms of which each rank has a part (eng.mamba.gated_norm_part/1).
void divide_layers(Model& model, const Ranks& ranks, bool kernels);

// "28 of 38 tensors are divided by 2 ranks, ..."; "" if none is.
std::string parallel_line(const Model& model, const Ranks& ranks);

}  // namespace eng
