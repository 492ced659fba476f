// SPDX-License-Identifier: Apache-2.0
// [parallel] context: the ranks of a context group divide the positions of each sequence among them.
#pragma once

#include "core/trace/model.hpp"
#include "core/trace/ranks.hpp"
#include "session/config/config.hpp"

namespace eng {

// Throws Error(Exit::usage) for sections that sequences cannot be divided with, and if more is read of the model than
// its loss: logits, activations, or what a job reads.
void check_context(const Config& config, bool reads_more);

// Leaves this rank its positions of every value that has positions, as Jacobs et al. 2023 (arXiv 2309.14509) do. Where
// an op looks at other positions, the ranks exchange them: each computes all positions of some heads or channels, and
// gives them back. The fields of the batch stay whole. Parameters are whole on all ranks, and a rank's gradients are
// those of its positions, heads and channels: the sums over data ranks make them whole. The model has no backward yet.
// Throws Error(Exit::usage) naming the block and the op that it cannot divide.
void divide_sequences(Model& model, const Ranks& ranks);

// "2 ranks have 64 of 128 positions each, ..."; "" if sequences are not divided.
std::string context_line(const Model& model, const Ranks& ranks);

}  // namespace eng
