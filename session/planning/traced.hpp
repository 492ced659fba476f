// SPDX-License-Identifier: Apache-2.0
// The model of a configuration as a run has it.
#pragma once

#include "core/plan/request.hpp"
#include "session/cards/target.hpp"
#include "session/model/loss.hpp"
#include "session/model/reference.hpp"
#include "session/model/transforms.hpp"

namespace eng {

// The optimizer sees the parameters of a block as one row, and rows have at most 2^40 elements. Throws
// Error(Exit::usage) for a block that has more.
void check_blocks(const Model& model, const Section& section);

// The model of section [model], transformed, with its reference, its head padded to a multiple of `head_rows`, and
// divided over `ranks`; `positions`: so are the positions between its divided maps ([parallel] sequence). If a sequence
// is longer than the model allows, the error names the key, unless the plugin has.
Model trace(const Section& section, const eng_model& table, int64_t rows, int64_t length, const Precision& precision,
            const std::vector<std::string>& freeze, bool runs, const Offered& offered,
            const std::vector<Transform>& transforms, const Loss& loss, const std::optional<Reference>& reference,
            const Target& target, int64_t head_rows, const Ranks& ranks, bool positions,
            std::vector<std::string>& notes);

}  // namespace eng
