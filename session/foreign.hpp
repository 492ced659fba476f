// SPDX-License-Identifier: Apache-2.0
// Names of other trainers, and their equivalents here.
#pragma once

#include <string>
#include <vector>

#include "session/config/config.hpp"

namespace eng {

// For SchemaSource::foreign. Translates a key with its value, given the section in which it was written ("" outside
// any), or a section's name.
std::optional<Foreign> foreign_name(const std::string& section, const std::string& name, const Value& value);

// Every name that foreign_name knows, as foreign.toml writes it.
std::vector<std::string> foreign_names();
// Our value of a key of ours, such as "precision.plugin", for another trainer's word: "bf16" for "bfloat16". "" if none
// is known.
std::string foreign_value(const std::string& key, const std::string& word);

// What to use instead of a flag of another trainer's command; "" for an unknown flag. `word` is the flag as typed, such
// as "--num_gpus=2", and `next` the word after it.
std::string foreign_flag(const std::string& word, const std::string& next);

}  // namespace eng
