// SPDX-License-Identifier: Apache-2.0
// The configuration and its schema as text.
#pragma once

#include <string>
#include <vector>

#include "session/config/config.hpp"

namespace eng {

// TOML with "# from: ..." after every key. It parses to the same configuration: [resolved] lists the keys with a
// default value, so that they keep this value and still count as "not given".
std::string resolved_text(const Config& config);
// Every section, key, type, range, default and help as a TOML file of comments, with the options and presets of
// every plugin known to `plugins`. `only`: names of sections or plugins; empty for all.
std::string schema_text(const SchemaSource& plugins, const std::vector<std::string>& only = {});

}  // namespace eng
