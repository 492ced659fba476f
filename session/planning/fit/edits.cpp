// SPDX-License-Identifier: Apache-2.0
#include "session/planning/fit/edits.hpp"

#include <algorithm>

#include "session/config/schemas.hpp"
#include "session/ranks/ranks.hpp"

namespace eng {
namespace {

Section with_plugin(const Section& section, const std::string& plugin, const Registry& registry) {
  for (const SectionSchema& schema : section_schemas()) {
    if (schema.name != section.name()) continue;
    const Provided* provided = registry.find(schema.kind, plugin);
    std::map<std::string, Setting> settings;
    for (const Option& option : merged(schema, provided ? &provided->schema : nullptr)) {
      const auto before = section.settings().find(option.key);
      settings[option.key] = before != section.settings().end() && before->second.given
                                 ? before->second
                                 : Setting{option.fallback, "default", false};
    }
    settings["plugin"] = {plugin, "edit", true};
    return {section.name(), std::move(settings)};
  }
  return section;
}

}  // namespace

Config edited(const Config& config, const Registry& registry, const Edits& edits, uint32_t ranks) {
  Config out = config;
  for (const Edit& e : edits) {
    Section& section = out.section(e.section);
    const auto* word = std::get_if<std::string>(&e.value);
    if (e.key == "plugin" && word)
      section = with_plugin(section, *word, registry);
    else
      section.set(e.key, e.value, e.value.index() ? "edit" : "default");
  }
  derive_offload(out.section("offload"));
  complete_offload(out.section("offload"), schemas_of(registry));
  share_batch(out, ranks);
  return out;
}

std::string words_of(const Edits& edits) {
  std::string out;
  for (const Edit& e : edits) {
    const auto* word = std::get_if<std::string>(&e.value);
    out += out.empty() ? "" : " ";
    out += e.value.index() ? fmt::format("{}.{}={}", e.section, e.key, word ? *word : toml_text(e.value))
                           : fmt::format("--unset {}.{}", e.section, e.key);
  }
  return out;
}

std::string toml_of(const Edits& edits) {
  std::vector<std::string> sections;
  for (const Edit& e : edits)
    if (std::find(sections.begin(), sections.end(), e.section) == sections.end()) sections.push_back(e.section);
  std::string out;
  for (const std::string& section : sections) {
    out += fmt::format("[{}]\n", section);
    for (const Edit& e : edits)
      if (e.section == section)
        out += e.value.index() ? fmt::format("{} = {}\n", e.key, toml_text(e.value))
                               : fmt::format("# without {}\n", e.key);
  }
  return out;
}

Edits batch_edits(const Config& config, int64_t micro, int64_t rows) {
  const Section& train = config.section("train");
  Edits out;
  if (micro != train.integer("micro_batch")) out.push_back({"train", "micro_batch", micro});
  if (!train.given("global_batch") && rows / micro != train.integer("accumulate"))
    out.push_back({"train", "accumulate", rows / micro});
  return out;
}

Edits recompute_edits(const Config& config, const std::string& key, Value value) {
  Edits out;
  for (const auto& [other, setting] : config.section("recompute").settings())
    if (setting.given && other != key) out.push_back({"recompute", other, {}});
  // The default of `policy` need not be said.
  if (key != "policy" || value != Value(std::string("none")) || config.section("recompute").given("policy"))
    out.push_back({"recompute", key, std::move(value)});
  return out;
}

}  // namespace eng
