// SPDX-License-Identifier: Apache-2.0
// Names that other trainers use, and what they are here.
#pragma once

#include <string>
#include <vector>

#include "session/config/config.hpp"

namespace eng {

// For SchemaSource::foreign: of a key with its value, in the section that it was written in ("" outside of any), or of
// a section's name.
std::optional<Foreign> foreign_name(const std::string& section, const std::string& name, const Value& value);

// What to do instead of a flag that another trainer's command has; "" if nothing is known of it. `word` is the flag as
// typed, such as "--num_gpus=2", and `next` the word after it.
std::string foreign_flag(const std::string& word, const std::string& next);

}  // namespace eng
