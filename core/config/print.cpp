// SPDX-License-Identifier: Apache-2.0
// The configuration and its schema as text.
#include <fmt/format.h>

#include <algorithm>

#include "core/config/names.hpp"
#include "core/config/problems.hpp"
#include "core/config/schema.hpp"

namespace eng {
namespace {

std::string key_text(const std::string& key) {
  const auto bare = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !key.empty() && std::all_of(key.begin(), key.end(), bare) ? key : toml_text(key);
}

// One comment per line of text.
std::string comment(const std::string& text) {
  std::string out = "# ";
  for (char c : printable(text, 2000)) out += c;
  return out + "\n";
}

void tell_option(const Option& option, std::string& out) {
  Value fallback = option.fallback;
  fit(option, fallback);
  const bool none = std::holds_alternative<std::monostate>(fallback);
  const std::string value = none ? (option.required ? "REQUIRED" : "(none)") : toml_text(fallback);
  out += fmt::format("# {:<34} # {}\n", fmt::format("{} = {}", key_text(option.key), value),
                     printable(describe(option) + (option.help.empty() ? "" : ": " + option.help), 2000));
}

void tell_plugin(const SectionSchema& section, const std::string& name, const PluginSchema& plugin, std::string& out) {
  out += fmt::format("#\n# with plugin = {}{}\n", toml_text(name), plugin.options.empty() ? ": no more keys" : "");
  for (const Option& option : plugin.options)
    if (!find_option(section.options, option.key)) tell_option(option, out);
  for (const auto& [preset, values] : plugin.presets) {
    std::vector<std::string> parts;
    for (const auto& [key, value] : values) parts.push_back(fmt::format("{} = {}", key_text(key), toml_text(value)));
    out += comment(fmt::format("preset {}: {}", toml_text(preset), fmt::join(parts, ", ")));
  }
}

}  // namespace

std::string Config::resolved() const {
  std::string out = "# Every key, and where its value comes from. Keys in [resolved] hold a default.\n";
  std::vector<std::string> defaults;
  for (const Section& section : sections_) {
    out += fmt::format("\n[{}]\n", section.name());
    // The plugin first: it decides which keys follow.
    std::vector<std::pair<std::string, Setting>> rows(section.settings().begin(), section.settings().end());
    std::stable_partition(rows.begin(), rows.end(), [](const auto& row) { return row.first == "plugin"; });
    for (const auto& [key, setting] : rows) {
      const std::string name = key_text(key), value = toml_text(setting.value);
      if (std::holds_alternative<std::monostate>(setting.value)) {
        out += fmt::format("# {:<46} # no value\n", name);
        continue;
      }
      if (!setting.given) defaults.push_back(section.name() + "." + key);
      out += fmt::format("{:<48} # from: {}\n", name + " = " + value, printable(setting.origin));
    }
  }
  out += "\n[resolved]\ndefaults = [";
  for (const auto& key : defaults) out += "\n  " + toml_text(key) + ",";
  return out + "\n]\n";
}

std::string schema_text(const SchemaSource& plugins, const std::vector<std::string>& only) {
  const auto wanted = [&](const std::string& name) {
    return only.empty() || std::find(only.begin(), only.end(), name) != only.end();
  };
  std::string out;
  for (const SectionSchema& section : section_schemas()) {
    const auto names = section.kind.empty() ? std::vector<std::string>{} : plugin_names(plugins, section.kind);
    const bool whole = wanted(section.name);
    const bool some = std::any_of(names.begin(), names.end(), wanted);
    if (!whole && !some) continue;
    out += fmt::format("{}[{}]  # {}\n", out.empty() ? "" : "\n", section.name, section.help);
    for (const Option& option : section.options) tell_option(option, out);
    for (const std::string& name : names)
      if (const PluginSchema* plugin = whole || wanted(name) ? find_plugin(plugins, section.kind, name) : nullptr)
        tell_plugin(section, name, *plugin, out);
  }
  return out;
}

std::string template_text(const std::string& plugin, const std::string& preset) {
  return fmt::format(R"([model]
plugin = {}
preset = {}                # any value of it can be overridden here

[data]
paths = ["data/*.txt"]         # files or patterns, relative to this file

[train]
steps = 1000
micro_batch = 8
accumulate = 1                 # or global_batch, which derives it
sequence_length = 256
grad_clip = 1.0
seed = 1

[optimizer]
plugin = "adamw"
learning_rate = 3e-4

[schedule]
kind = "cosine"                # constant, linear or cosine
warmup_steps = 50
min_learning_rate = 3e-5

[checkpoint]
every = 200                    # the last step is always saved
keep = 3
)",
                     toml_text(plugin), toml_text(preset));
}

}  // namespace eng
