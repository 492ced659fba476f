// SPDX-License-Identifier: Apache-2.0
// The sections of a configuration, and access to them.
#include "session/config/config.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "session/config/schema_text.hpp"
#include "session/config/source.hpp"
#include "session/config/toml.hpp"

namespace eng {
namespace {

std::vector<SectionSchema> read_sections() {
  std::vector<SectionSchema> out;
  const toml::table all = parse_toml(schema_toml);
  for (const auto& [name, section] : entries(&all, "schema.toml")) {
    Schema options = read_options(section, "[" + name + "]");
    const bool schedule = name == "schedule", named = schedule || find_option(options, "plugin");
    out.push_back({name, named ? "eng." + name + "/1" : "", std::move(options), schedule ? "kind" : "plugin"});
  }
  return out;
}

}  // namespace

std::string Foreign::not_yet() const {
  return fmt::format("here it would be `{}`, which does not exist yet", write);
}

const Schema& group_options() {
  static const Schema all = [] {
    Option match{"match", Type::strings}, scale{"learning_rate_scale", Type::number};
    match.help = "patterns of parameter names", scale.help = "factor of the learning rate";
    scale.min = 0;
    return Schema{match, scale};
  }();
  return all;
}

Config Config::load(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                    const SchemaSource& plugins, std::filesystem::path base_dir) {
  std::ifstream file(path, std::ios::binary);
  std::string text(max_config_bytes + 1, '\0');  // more is refused by read_document
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    throw Error(Exit::usage, fmt::format("error[E0116]: {}: {}", printable(path.string()), std::strerror(errno)),
                "`engine init PRESET` writes a configuration to start from");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (base_dir.empty()) {
    base_dir = std::filesystem::absolute(path).parent_path();
    const std::string folder = base_dir.string() + "/";
    // /dev/stdin and a shell's <(...) have no folder of their own; /dev/shm is a folder.
    if (folder == "/dev/" || folder == "/dev/fd/") base_dir = std::filesystem::current_path();
  }
  return parse(text, path.string(), base_dir, overrides, plugins);
}

Config Config::parse(const std::string& text, const std::string& name, const std::filesystem::path& base_dir,
                     const std::vector<std::string>& overrides, const SchemaSource& plugins) {
  Problems problems;
  Document document = read_document(text, overrides, problems);
  return make(std::move(document), std::move(problems), text, name, base_dir, plugins);
}

Config Config::resolve(const Document& read, const std::string& text, const std::string& name,
                       const std::filesystem::path& base_dir, const std::vector<std::string>& overrides,
                       const SchemaSource& plugins) {
  Problems problems;
  Document document = read;
  take_overrides(overrides, document, problems);
  return make(std::move(document), std::move(problems), text, name, base_dir, plugins);
}

const Section& Config::section(const std::string& name) const {
  for (const Section& section : sections_)
    if (section.name() == name) return section;
  throw Error(Exit::bug, "no section [" + name + "]");
}

Section& Config::section(const std::string& name) {
  return const_cast<Section&>(static_cast<const Config&>(*this).section(name));
}

void Config::require(const std::string& name) const {
  if (name == "data" && !no_data_.empty()) throw ConfigError(name_, source_, no_data_);
}

const std::vector<SectionSchema>& section_schemas() {
  static const std::vector<SectionSchema> all = read_sections();
  return all;
}

bool SectionSchema::built_in(const std::string& name) const {
  const Option* option = find_option(options, names);
  return option && std::find(option->choices.begin(), option->choices.end(), name) != option->choices.end();
}

Schema merged(const SectionSchema& section, const PluginSchema* plugin) {
  const Option* named = find_option(section.options, section.names);
  if (plugin && named && !named->choices.empty()) {
    Schema only = {*named};
    only[0].choices.clear();
    for (const Option& option : plugin->options)
      if (option.key != named->key) only.push_back(option);
    return only;
  }
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

void add_named(Schema& options, const SchemaSource& plugins,
               const std::function<std::string(const std::string& key)>& value) {
  Schema more;
  for (Option& option : options) {
    if (option.names.empty()) continue;
    for (const std::string& name : plugins.names(option.names))
      if (!std::count(option.choices.begin(), option.choices.end(), name)) option.choices.push_back(name);
    if (const PluginSchema* named = plugins.find(option.names, value(option.key)))
      more.insert(more.end(), named->options.begin(), named->options.end());
  }
  for (const Option& option : more)
    if (!find_option(options, option.key)) options.push_back(option);
}

}  // namespace eng
