// SPDX-License-Identifier: Apache-2.0
// The trainer that a file is for, recognised by the names in it.
#pragma once

#include "session/convert/entries.hpp"
#include "session/convert/words.hpp"

namespace eng::converter {

extern const Words of_huggingface, of_deepspeed;

// "axolotl", "llamafactory", ...; `otherwise` if no name tells.
std::string trainer_of(const Entries& entries, const std::string& otherwise);
// True if an object of this name only groups the keys of a script: "training".
bool is_group(const std::string& name);
// A key without the groups around it.
std::string without_group(std::string name);

}  // namespace eng::converter
