// SPDX-License-Identifier: Apache-2.0
#include "session/config/config_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace eng {
namespace {

void tell_option(const Option& option, std::string& out) {
  Value fallback = option.fallback;
  fit(option, fallback);
  const std::string none = option.required ? "REQUIRED" : "(none)";
  const std::string value = fallback.index() == 0 ? none : toml_text(fallback);
  out += fmt::format("# {:<34} # {}\n", fmt::format("{} = {}", option.key, value),
                     printable(describe(option) + (option.help.empty() ? "" : ": " + option.help), 2000));
}

// [[observers]], [[transforms]]: what each entry has.
void tell_entries(const std::string& section, const SchemaSource& plugins, std::string& out) {
  out += fmt::format("#\n# each [[{}]] has\n", section);
  for (const Option& option : *entry_keys(section)) tell_option(option, out);
  for (const std::string& name : plugins.names(entry_kind(section)))
    if (const PluginSchema* plugin = plugins.find(entry_kind(section), name)) {
      out += fmt::format("#\n# and with plugin = {}{}\n", toml_text(name),
                         plugin->options.empty() ? ": no more keys" : "");
      for (const Option& option : plugin->options) tell_option(option, out);
    }
}

// [[data.sources]]: the engine's keys of each; those of the plugins follow, as keys of [data].
void tell_sources(std::string& out) {
  out += "#\n# each [[data.sources]] has these, and the keys of its plugin\n";
  for (const Option& option : *entry_keys("data.sources")) tell_option(option, out);
}

// [offload]: the options of each tier.
void tell_tiers(const SchemaSource& plugins, std::string& out) {
  for (const std::string& name : plugins.names("eng.tier/1"))
    if (const PluginSchema* tier = plugins.find("eng.tier/1", name); tier && !tier->options.empty()) {
      out += fmt::format("#\n# and with a state on {}\n", toml_text(name));
      for (const Option& option : tier->options) tell_option(option, out);
    }
}

void tell_plugin(const SectionSchema& section, const std::string& name, const PluginSchema& plugin, std::string& out) {
  const bool alone = !find_option(section.options, section.names)->choices.empty();
  out += fmt::format("#\n# with {} = {}{}{}\n", section.names, toml_text(name),
                     plugin.options.empty() ? ": no more keys" : "", alone ? ", without those above" : "");
  for (const Option& option : plugin.options)
    if (alone ? option.key != section.names : !find_option(section.options, option.key)) tell_option(option, out);
  for (const auto& [preset, values] : plugin.presets) {
    std::vector<std::string> parts;
    for (const auto& [key, value] : values) parts.push_back(fmt::format("{} = {}", key, toml_text(value)));
    const std::string line = fmt::format("preset {}: {}", toml_text(preset), fmt::join(parts, ", "));
    out += "# " + printable(line, 2000) + "\n";
  }
}

}  // namespace

std::string resolved_text(const Config& config) {
  std::string out = "# Every key, and where its value comes from. Keys in [resolved] hold a default.\n", defaults;
  for (const Section& section : config.sections()) {
    out += fmt::format("\n[{}]\n", section.name());
    for (const auto& [key, setting] : section.settings()) {
      if (setting.value.index() == 0) {
        out += fmt::format("# {:<46} # no value\n", key);
        continue;
      }
      const std::string line = fmt::format("{} = {}", key, toml_text(setting.value));
      out += fmt::format("{:<48} # from: {}\n", line, printable(setting.origin));
      if (!setting.given) defaults += "\n  " + toml_text(section.name() + "." + key) + ",";
    }
  }
  return out + "\n[resolved]\ndefaults = [" + defaults + "\n]\n";
}

std::string schema_text(const SchemaSource& plugins, const std::vector<std::string>& only) {
  const auto wanted = [&](const std::string& name) {
    return only.empty() || std::find(only.begin(), only.end(), name) != only.end();
  };
  std::string out;
  for (const SectionSchema& section : section_schemas()) {
    const auto names = section.kind.empty() ? std::vector<std::string>{} : plugins.names(section.kind);
    const bool whole = wanted(section.name);
    if (!whole && std::none_of(names.begin(), names.end(), wanted)) continue;
    out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section.name);
    for (const Option& option : section.options) tell_option(option, out);
    if (entry_keys(section.name)) tell_entries(section.name, plugins, out);
    if (section.name == "data") tell_sources(out);
    if (section.name == "offload") tell_tiers(plugins, out);
    for (const std::string& name : names)
      if (const PluginSchema* plugin = whole || wanted(name) ? plugins.find(section.kind, name) : nullptr)
        tell_plugin(section, name, *plugin, out);
  }
  return out;
}

}  // namespace eng
