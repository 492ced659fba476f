// SPDX-License-Identifier: Apache-2.0
// [parallel] sequence: between the divided maps of a layer, the ranks of a tensor group divide the positions.
#pragma once

#include "core/trace/model.hpp"
#include "core/trace/ranks.hpp"

namespace eng {

// Leaves this rank 1/tensor of the positions of what all ranks of its tensor group would compute alike: residuals,
// norms, dropout, and what one block passes to the next, as Korthikanti et al. 2022 (arXiv 2205.05198) do. The sum
// behind a divided map then gives each rank its positions, in the same order of adding; a gather in front of the next
// map brings all positions back. The model is divided already, over maps and over sequences, and has no backward yet.
// Throws Error(Exit::usage) if the ranks do not divide the positions, or the elements of a parameter that they share
// so.
void divide_positions(Model& model, const Ranks& ranks);

}  // namespace eng
