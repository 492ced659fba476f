// SPDX-License-Identifier: Apache-2.0
// The TOML text of section .eng_plugin (engine/plugin.h) as a Description.
#pragma once

#include <string>

#include "core/registry/registry.hpp"

namespace eng {

// Fills `out` and returns "", or returns why the text is refused. Whatever the text is, nothing is thrown.
std::string parse_description(const std::string& text, Description& out);

// "float", "strings", ...: a type as the description spells it.
const char* schema_type(Type type);

}  // namespace eng
