// SPDX-License-Identifier: Apache-2.0
// A section's keys: the core's and the plugin's.
#pragma once

#include "core/config/config.hpp"

namespace eng {

const SectionSchema* find_schema(const std::string& section);
const Option* find_option(const Schema& schema, const std::string& key);
std::vector<std::string> keys_of(const Schema& schema);
// The core's keys and the plugin's; a plugin may give a core key (such as learning_rate) another default.
Schema merged(const Schema& core, const Schema& plugin);
// The default of `plugin`, or "".
std::string default_plugin(const SectionSchema& schema);
// "eng.optimizer/1" -> "optimizer".
std::string kind_word(const std::string& kind);
const PluginSchema* find_plugin(const SchemaSource& plugins, const std::string& kind, const std::string& name);
std::vector<std::string> plugin_names(const SchemaSource& plugins, const std::string& kind);

}  // namespace eng
