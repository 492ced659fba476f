// SPDX-License-Identifier: Apache-2.0
// [offload]: its keys are the engine's and those of every tier. A run has only the options of the tiers that it uses.
#include <fmt/format.h>

#include <algorithm>

#include "session/config/mixture.hpp"
#include "session/config/words.hpp"

namespace eng {
namespace {

constexpr const char* tier_kind = "eng.tier/1";
constexpr const char* states[] = {"optimizer", "master", "gradients", "parameters", "activations"};

// The first state that lies on a tier; nullptr if there is none.
const char* state_on(const std::map<std::string, Setting>& offload, const std::string& tier) {
  for (const char* state : states)
    if (const auto found = offload.find(state); found != offload.end() && found->second.value == Value(tier))
      return state;
  return nullptr;
}

}  // namespace

Schema keys_of(const SectionSchema& section, const PluginSchema* plugin, const SchemaSource& plugins) {
  if (section.name == "data") return data_keys(section, plugin, {}, "", plugins);
  Schema all = merged(section, plugin);
  if (section.name != "offload") return all;
  for (const std::string& tier : plugins.names(tier_kind))
    if (const PluginSchema* of = plugins.find(tier_kind, tier))
      for (Option option : of->options) {
        option.required = false;  // only where the tier is used
        if (!find_option(all, option.key)) all.push_back(std::move(option));
      }
  return all;
}

bool is_engine_key(const std::string& section, const std::string& key) {
  const auto& all = section_schemas();
  return std::any_of(all.begin(), all.end(),
                     [&](const SectionSchema& s) { return s.name == section && find_option(s.options, key); });
}

void complete_offload(Section& offload, const SchemaSource& plugins) {
  std::map<std::string, Setting> settings = offload.settings();
  for (const std::string& tier : plugins.names(tier_kind))
    if (const PluginSchema* of = state_on(settings, tier) ? plugins.find(tier_kind, tier) : nullptr)
      for (const Option& option : of->options)
        settings.try_emplace(option.key, Setting{option.fallback, "default", false});
  offload = Section(offload.name(), std::move(settings));
}

Problems keep_tier_options(std::map<std::string, Setting>& offload, const Document& document,
                           const SchemaSource& plugins) {
  Problems out;
  const auto place = [&](const std::string& key) {
    const Given* given = document.find("offload", key);
    return given ? given->key : TextRange{};
  };
  for (const std::string& tier : plugins.names(tier_kind)) {
    const PluginSchema* of = plugins.find(tier_kind, tier);
    const char* state = state_on(offload, tier);
    for (const Option& option : of ? of->options : Schema{}) {
      const auto setting = offload.find(option.key);
      if (setting == offload.end()) continue;
      if (state && option.required && setting->second.value.index() == 0 && !document.find("offload", option.key))
        out.push_back(
            {"E0108", fmt::format("`{}` = \"{}\" needs `{}`", state, tier, option.key), place(state), accepts(option)});
      if (state) continue;
      // A key without a default says what there is, such as a folder on a disk: `engine plan --fit` can propose the
      // tier.
      if (setting->second.given && option.fallback.index() != 0)
        out.push_back({"E0113", fmt::format("`{}` is given, but no state is on \"{}\"", option.key, tier),
                       place(option.key),
                       fmt::format("set for example offload.optimizer = \"{}\", or remove the key", tier)});
      if (!setting->second.given) offload.erase(setting);
    }
  }
  return out;
}

std::string absent_tier(const std::string& key, const Document& document, const SchemaSource& plugins) {
  for (const char* state : states)
    if (const auto* tier = document.value<std::string>("offload", state);
        tier && !plugins.find(tier_kind, *tier) && key.starts_with(*tier + "_"))
      return *tier;
  return "";
}

}  // namespace eng
