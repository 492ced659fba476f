// SPDX-License-Identifier: Apache-2.0
#include "core/config/schema.hpp"

#include <algorithm>

namespace eng {

const SectionSchema* find_schema(const std::string& section) {
  for (const auto& schema : section_schemas())
    if (schema.name == section) return &schema;
  return nullptr;
}

const Option* find_option(const Schema& schema, const std::string& key) {
  const auto found =
      std::find_if(schema.begin(), schema.end(), [&](const Option& option) { return option.key == key; });
  return found == schema.end() ? nullptr : &*found;
}

std::vector<std::string> keys_of(const Schema& schema) {
  std::vector<std::string> keys;
  for (const auto& option : schema) keys.push_back(option.key);
  return keys;
}

Schema merged(const Schema& core, const Schema& plugin) {
  Schema all = core;
  for (const Option& option : plugin) {
    const auto own = std::find_if(all.begin(), all.end(), [&](const Option& other) { return other.key == option.key; });
    if (own == all.end())
      all.push_back(option);
    else if (own->type == option.type && own->key != "plugin" &&
             !std::holds_alternative<std::monostate>(option.fallback))
      own->fallback = option.fallback;
  }
  return all;
}

std::string default_plugin(const SectionSchema& schema) {
  const Option* plugin = find_option(schema.options, "plugin");
  const auto* name = plugin ? std::get_if<std::string>(&plugin->fallback) : nullptr;
  return name ? *name : "";
}

std::string kind_word(const std::string& kind) {
  const auto dot = kind.find('.');
  const auto from = dot == std::string::npos ? 0 : dot + 1;
  return kind.substr(from, kind.find('/') - from);
}

const PluginSchema* find_plugin(const SchemaSource& plugins, const std::string& kind, const std::string& name) {
  return plugins.find ? plugins.find(kind, name) : nullptr;
}

std::vector<std::string> plugin_names(const SchemaSource& plugins, const std::string& kind) {
  return plugins.names ? plugins.names(kind) : std::vector<std::string>{};
}

}  // namespace eng
