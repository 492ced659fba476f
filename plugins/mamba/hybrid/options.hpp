// SPDX-License-Identifier: Apache-2.0
// Reading options that several families of hybrids share.
#pragma once

#include <string>

#include "families.hpp"

namespace hybrid {

// The mixer by the options mamba_*, which bamba, falcon_h1 and granitemoehybrid have. `c` has its sizes. `inner`: its
// channels; 0: mamba_expand x hidden_size. Throws model::Failure that names the key and what to change.
mamba::Mixer read_mixer(const model::Reader& in, const decoder::Config& c, int64_t inner = 0);
// Throws unless the groups of heads are equal; `heads`, `groups`: the keys of the numbers.
void check_groups(const mamba::Mixer& m, const char* heads, const char* groups);
// The parts of each layer by the list `key` of their names. `more`: of a layer, besides its mixer or its attention.
std::vector<uint32_t> read_types(const model::Reader& in, const char* key, int64_t layers, uint32_t more);

}  // namespace hybrid
