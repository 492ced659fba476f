// SPDX-License-Identifier: Apache-2.0
// Pieces of what is said about keys.
#pragma once

#include "session/config/config.hpp"

namespace eng {

using Names = std::vector<std::string>;

// "`a`, `b`"
std::string quoted(const Names& names);
// "available: `a`, `b`"; `none` if there are none.
std::string choice_of(const Names& names, const std::string& none);
// The type of a key, and what it is for.
std::string accepts(const Option& option);
// "[train] has: accumulate, eval_every, ..."
std::string keys_line(const std::string& section, const Schema& options);
// A key with a value, as a user types it; without the value if it does not fit.
std::string typed(const std::string& section, const Option& option, const Value& value);
// The plugins of a kind whose options have the key.
Names with_key(const SchemaSource& plugins, const std::string& kind, const std::string& key);

}  // namespace eng
