// SPDX-License-Identifier: Apache-2.0
// The entries of [[observers]], [[transforms]] and [[data.sources]]: their keys are the engine's and those of their
// plugin.
#include <fmt/format.h>

#include "session/config/source.hpp"

namespace eng {
namespace {

Schema observer_keys() {
  Option plugin{"plugin"}, name{"name"}, every{"every", Type::integer, int64_t{1}},
      progress{"progress", Type::strings, std::vector<std::string>()};
  plugin.help = "the observer's plugin", plugin.required = true;
  name.help = "what the names of its numbers begin with; the plugin if absent";
  every.help = "steps between the lines of metrics.jsonl that have its numbers; it computes them in every step";
  every.min = 1, every.max = 1e9;
  progress.help = "patterns of names, without the observer's, of numbers that the progress line shows";
  return {plugin, name, every, progress};
}

Schema transform_keys() {
  Option plugin{"plugin"}, name{"name"}, targets{"targets", Type::strings, std::vector<std::string>()};
  plugin.help = "the transform's plugin", plugin.required = true;
  name.help = "its name in messages and plans; the plugin if absent";
  targets.help =
      "patterns of names of parameters, with or without their last part: it works on the calls that read these";
  return {plugin, name, targets};
}

Schema source_keys() {
  Option plugin{"plugin"}, name{"name"}, weight{"weight", Type::number}, epochs{"epochs", Type::number};
  plugin.help = "the data plugin; that of [data] if absent";
  name.help = "its name in messages and metrics; the plugin and a number if absent";
  weight.help = "its share of the samples is this, divided by the sum over the sources; 1 if absent";
  weight.min = 0, weight.max = 1e9;
  epochs.help = "instead of weight: how often an epoch of the mixture reads it; 1 if absent";
  epochs.min = 0, epochs.max = 1e6;
  return {plugin, name, weight, epochs};
}

const std::string source_entries = "data.sources";

}  // namespace

const Schema* entry_keys(const std::string& section) {
  static const Schema observers = observer_keys(), transforms = transform_keys(), of_sources = source_keys();
  if (section == source_entries) return &of_sources;
  return section == "observers" ? &observers : section == "transforms" ? &transforms : nullptr;
}

std::string entry_kind(const std::string& section) {
  return section == source_entries ? "eng.data/1" : "eng." + section.substr(0, section.size() - 1) + "/1";
}

Section entry_section(const std::string& section, const Table& given, const PluginSchema& plugin) {
  std::map<std::string, Setting> settings;
  for (const Schema* schema : {entry_keys(section), &plugin.options})
    for (const Option& option : *schema) {
      Value value = option.fallback;
      fit(option, value);
      settings[option.key] = {std::move(value), "default", false};
    }
  for (const auto& [key, value] : given.values) settings[key] = {value, "[[" + section + "]]", true};
  return Section(section, std::move(settings));
}

Problems entry_problems(const std::string& section, Tables& entries, const TextRange& place,
                        const SchemaSource& plugins, const Document::Part* shared) {
  const std::string kind = entry_kind(section);
  const std::string what = section == source_entries ? "data" : section.substr(0, section.size() - 1);
  const std::vector<std::string> all = plugins.names(kind);
  const std::string choice = all.empty() ? fmt::format("no {} plugin was found", what)
                                         : fmt::format("available: `{}`", fmt::join(all, "`, `"));
  const std::string usual = "text";
  Problems out;
  for (std::size_t k = 0; k < entries.size(); ++k) {
    auto& values = entries[k].values;
    const auto refuse = [&](const char* code, const std::string& text, const std::string& help,
                            const std::string& word = "", const std::vector<std::string>& words = {}) {
      out.push_back({code, fmt::format("[[{}]] {}: {}", section, k + 1, text), place, help, "", "", word, words});
    };
    const auto string_at = [&](const std::string& key) -> const std::string* {
      if (const auto own = values.find(key); own != values.end()) return std::get_if<std::string>(&own->second);
      const auto found = shared ? shared->keys.find(key) : std::map<std::string, Given>::const_iterator();
      return shared && found != shared->keys.end() ? std::get_if<std::string>(&found->second.value) : nullptr;
    };
    const auto* name = string_at("plugin");
    if (!name && shared && !values.count("plugin")) name = &usual;
    const PluginSchema* plugin = name ? plugins.find(kind, *name) : nullptr;
    if (!name) refuse("E0108", "it needs `plugin`", choice);
    if (name && !plugin) {
      refuse("E0110", fmt::format("no {} plugin named `{}`", what, printable(*name)), choice, *name, all);
      out.back().note = plugins.explain(kind, *name);
    }
    if (!plugin) continue;
    Schema keys = *entry_keys(section);
    keys.insert(keys.end(), plugin->options.begin(), plugin->options.end());
    if (shared)
      add_named(keys, plugins,
                [&](const std::string& key) { return string_at(key) ? *string_at(key) : std::string(); });
    std::vector<std::string> known;
    for (const Option& key : keys) known.push_back(key.key);
    for (auto& [key, value] : values) {
      const Option* found = find_option(keys, key);
      const Misfit wrong = found ? fit(*found, value) : Misfit{"E0103", "is unknown"};
      if (wrong.code)
        refuse(wrong.code, fmt::format("`{}` {}", printable(key, 80), printable(wrong.text, 600)),
               found ? found->help : fmt::format("it has: {}", fmt::join(known, ", ")), found ? "" : key, known);
    }
    for (const Option& key : keys)
      if (key.required && !values.count(key.key) && !(shared && shared->keys.count(key.key)))
        refuse("E0108", fmt::format("it needs `{}`", key.key), key.help);
  }
  return out;
}

}  // namespace eng
