// SPDX-License-Identifier: Apache-2.0
// The first values of the trained lengths of rows, of transforms `lora` with `dora`.
#pragma once

#include <set>
#include <string>

namespace eng {

class Trainer;

// Fills those lengths that are not among `given`, the parameters that this rank has read from weights: with those of
// the rows of W + scale B A, so that the model begins as it was. W, A and B are those that compute reads: packed
// weights are unpacked, and each is rounded to the type of compute. All ranks call it together. Returns false if there
// are none.
bool begin_lengths(Trainer& trainer, const std::set<std::string>& given);

}  // namespace eng
