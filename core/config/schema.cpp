// SPDX-License-Identifier: Apache-2.0
// What there is, and what people call it.
#include "core/config/schema_text.hpp"
#include "core/config/source.hpp"
#include "core/config/toml.hpp"

namespace eng {
namespace {

std::vector<SectionSchema> read_sections() {
  std::vector<SectionSchema> out;
  const toml::table all = parse_toml(schema_toml);
  for (const auto& [name, section] : entries(&all, "schema.toml")) {
    Schema options = read_options(section, "[" + name + "]");
    out.push_back({name, find_option(options, "plugin") ? "eng." + name + "/1" : "", std::move(options)});
  }
  return out;
}

}  // namespace

const std::vector<SectionSchema>& section_schemas() {
  static const std::vector<SectionSchema> all = read_sections();
  return all;
}

Schema merged(const SectionSchema& section, const PluginSchema* plugin) {
  Schema all = section.options;
  for (const Option& option : plugin ? plugin->options : Schema{}) {
    auto* own = const_cast<Option*>(find_option(all, option.key));
    if (!own)
      all.push_back(option);
    else if (own->type == option.type && own->key != "plugin" && option.fallback.index() != 0)
      own->fallback = option.fallback;
  }
  return all;
}

std::optional<Foreign> foreign_key(const std::string& name) {
  static const toml::table all = parse_toml(foreign_toml);
  const toml::array* found = all[name].as_array();
  if (!found) return std::nullopt;
  return Foreign{found->get(0)->value_or(std::string()), found->get(1)->value_or(std::string())};
}

}  // namespace eng
