// SPDX-License-Identifier: Apache-2.0
// Changes of a configuration that are proposed: as values, as words of a command line, as TOML.
#pragma once

#include "core/registry/registry.hpp"
#include "session/config/config.hpp"

namespace eng {

// Another value for a key; without a value, the key is taken away.
struct Edit {
  std::string section, key;
  Value value;
};
using Edits = std::vector<Edit>;

// The configuration with these edits, for this number of ranks. A section that gets another plugin has the keys of that
// plugin: given values stay where it has the key too.
Config edited(const Config& config, const Registry& registry, const Edits& edits, uint32_t ranks);
// "train.micro_batch=4 --unset recompute.every".
std::string words_of(const Edits& edits);
// Sections with these keys; a key that is taken away is a comment.
std::string toml_of(const Edits& edits);

// Edits for micro-batches of `micro` sequences, of which a rank has `rows` in a step. With [train] global_batch,
// accumulate is derived, so it is not among them.
Edits batch_edits(const Config& config, int64_t micro, int64_t rows);
// Edits for another key of [recompute] than the given ones.
Edits recompute_edits(const Config& config, const std::string& key, Value value);

}  // namespace eng
