// SPDX-License-Identifier: Apache-2.0
// [parallel] tensor: the ranks of a tensor group divide the rows of the embedding and of the head.
#pragma once

#include "core/trace/model.hpp"
#include "core/trace/ranks.hpp"

namespace eng {

// This rank keeps 1/N of the rows of each table that only eng.embedding/1 and eng.(capped_)cross_entropy/1 read, in
// blocks with templates of their own: what it looks up is summed over the group, and the loss is made of the scores of
// all ranks (engine/ops_parallel.h). A tied one is divided once, for both. Sets Parameter::cut. What is not divided is
// computed by all, and `notes` gets the reason. `kernels`: the device has kernels for the parts. `head_rows`: a whole
// head is padded to a multiple of so many rows (heads.hpp), parts are not; `notes` tells where that costs time. The
// model has no backward yet.
void divide_vocabulary(Model& model, const Ranks& ranks, bool kernels, int64_t head_rows,
                       std::vector<std::string>& notes);

}  // namespace eng
