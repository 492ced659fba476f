// SPDX-License-Identifier: Apache-2.0
// The configuration and its schema as text.
#pragma once

#include <string>
#include <vector>

#include "session/config/config.hpp"

namespace eng {

// TOML with "# from: ..." behind every key; parses to the same configuration: the keys that hold a default
// are listed in [resolved], so that they stay what they are, and stay "not given".
std::string resolved_text(const Config& config);
// Every section, key, type, range, default and help as a TOML file of comments, with the options and presets of
// every plugin known to `plugins`. `only`: names of sections or plugins; empty for all.
std::string schema_text(const SchemaSource& plugins, const std::vector<std::string>& only = {});

}  // namespace eng
