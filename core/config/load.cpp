// SPDX-License-Identifier: Apache-2.0
// From what is written to what is meant: every section complete, every problem told.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/config/source.hpp"

namespace eng {
namespace {

using Names = std::vector<std::string>;

std::string quoted(const Names& names) {
  return fmt::format("`{}`", fmt::join(names, "`, `"));
}

std::string choice_of(const Names& names, const std::string& none) {
  return names.empty() ? none : "there is " + quoted(names);
}

std::string accepts(const Option& option) {
  return describe(option) + (option.help.empty() ? "" : ": " + option.help);
}

struct Resolver {
  const std::string& file;
  const Document& document;
  const SchemaSource& plugins;
  Problems& problems;
  Problems& no_data;             // see Config::require
  std::set<std::string> broken;  // sections with problems
  ModelSource from;              // what [model] from says
  bool unread = false;           // it could not be read: what it would have said is not missed

  void add(const std::string& section, Problem problem) {
    broken.insert(section);
    problems.push_back(std::move(problem));
  }

  // Of a section that may be absent: [data] is not always needed. A resolved text has it, but nothing in it is given.
  void add_missing(const std::string& section, Problem problem) {
    const auto* part = document.find(section);
    const auto by_somebody = [](const auto& entry) { return !entry.second.held; };
    const bool present = part && std::any_of(part->keys.begin(), part->keys.end(), by_somebody);
    if (section == "data" && !present) return no_data.push_back(std::move(problem));
    if (part && problem.at.line == 0 && problem.at.override_text.empty()) problem.at = part->header;
    add(section, std::move(problem));
  }

  // "config.toml:12", "command line".
  std::string origin(const Place& at) const {
    return at.override_text.empty() ? fmt::format("{}:{}", file, at.line) : "command line";
  }

  std::string plugin_name(const SectionSchema& schema) const {
    const Option* option = find_option(schema.options, "plugin");
    Value value = option ? option->fallback : Value();
    if (schema.name == "model" && from.settings.count("plugin")) value = from.settings.at("plugin").value;
    if (const Given* given = document.find(schema.name, "plugin")) value = given->value;
    return value.index() == 4 ? std::get<std::string>(value) : "";
  }

  const PluginSchema* plugin_of(const SectionSchema& schema) const {
    return schema.kind.empty() ? nullptr : plugins.find(schema.kind, plugin_name(schema));
  }

  // Not wanted before a run needs it.
  bool is_late(const SectionSchema& schema) const {
    const Option* option = find_option(schema.options, "plugin");
    return option && option->late && Value(plugin_name(schema)) == option->fallback;
  }

  void no_plugin(const SectionSchema& schema) {
    const std::string name = plugin_name(schema);
    if (name.empty()) return;  // missing or of a wrong type: told elsewhere
    const Given* given = document.find(schema.name, "plugin");
    const Names names = plugins.names(schema.kind);
    add_missing(
        schema.name,
        {"E0110", fmt::format("no {} plugin named `{}`", schema.name, printable(name)), given ? given->place : Place{},
         choice_of(names, fmt::format("no {} plugin was found at all", schema.name)),
         given ? "" : "the default of [" + schema.name + "]", plugins.explain(schema.kind, name), name, names});
  }

  // A default, or a preset's value.
  void take_own(const std::string& section, const Option& option, Value value, const std::string& origin,
                Setting& setting) {
    const Misfit wrong = fit(option, value);
    setting = Setting{std::move(value), origin, origin != "default"};
    const std::string text = fmt::format("{} of [{}]: `{}` {}", origin, section, option.key, wrong.text);
    if (wrong.code) add(section, {"E0117", text, {}, "this is a fault of the plugin's description"});
  }

  void take_preset(const SectionSchema& schema, const Schema& options, const PluginSchema& plugin,
                   std::map<std::string, Setting>& settings) {
    const auto* name = document.value<std::string>(schema.name, "preset");
    if (!name) return;
    if (plugin.presets.count(*name)) {
      for (const auto& [key, value] : plugin.presets.at(*name))
        if (const Option* option = find_option(options, key))
          take_own(schema.name, *option, value, "preset " + *name, settings[key]);
      return;
    }
    Names names;
    for (const auto& preset : plugin.presets) names.push_back(preset.first);
    add(schema.name, {"E0112", fmt::format("`{}` has no preset `{}`", plugin_name(schema), printable(*name)),
                      document.find(schema.name, "preset")->place, choice_of(names, "it has none: give its keys"), "",
                      "", *name, names});
  }

  void take_given(const SectionSchema& schema, const Option& option, const Given& given, Setting& setting) {
    Value value = given.value;
    // On a command line nobody quotes 7b or 2026: an override of a text is its text.
    if (!given.text.empty() && option.type == Type::string && value.index() < 4 && given.odd.empty())
      value = given.text;
    const Misfit wrong = given.odd.empty() ? fit(option, value) : Misfit{"E0104", "cannot be " + given.odd};
    setting = Setting{std::move(value), given.held ? "default" : origin(given.place), !given.held};
    if (!wrong.code) return;
    const auto* text = std::get_if<std::string>(&setting.value);
    add(schema.name, {wrong.code, fmt::format("`{}` {}", option.key, printable(wrong.text, 600)), given.place,
                      option.help, describe(option), "", text ? *text : "", option.choices});
  }

  // [model] from. A resolved text holds all that it said.
  void read_from(const std::filesystem::path& base) {
    const auto* path = document.value<std::string>("model", "from");
    if (!path || document.resolved) return;
    const auto* plugin = document.value<std::string>("model", "plugin");
    if (const Given* preset = document.find("model", "preset"))
      add("model",
          {"E0113", "`preset` and `from` are both given", preset->key, "remove one: both say what the model is"});
    try {
      from = plugins.model_of(base / *path, plugin ? *plugin : "");
    } catch (const Error& e) {
      unread = true;
      add("model", {"E0118", e.what(), document.find("model", "from")->place, e.help()});
    }
  }

  // What the weights' own description says, and whether [model] agrees.
  void take_from(const Option& option, const Setting& said, Setting& setting) {
    const Given* given = document.find("model", option.key);
    if (!given) {
      setting = said;
    } else if (setting.value != said.value && !option.adjustable && option.key != "plugin") {
      add("model", {"E0119",
                    fmt::format("`{}` contradicts the weights: {} says {}", option.key, from.file.string(),
                                printable(toml_text(said.value))),
                    given->place, "remove the line: `from` brings the value"});
    }
  }

  // Every section that has `key`, such as "[train]".
  Names owners(const std::string& key) const {
    Names found;
    for (const auto& schema : section_schemas())
      if (find_option(merged(schema, plugin_of(schema)), key)) found.push_back("[" + schema.name + "]");
    return found;
  }

  void unknown_key(const SectionSchema& schema, const Schema& options, const std::string& key, const Given& given) {
    if (const std::string table = key.substr(0, key.find('.')); table != key && find_option(options, table))
      return add(schema.name, {"E0104", fmt::format("`{}` cannot be a table", table), given.key});
    const std::string shown = printable(key, 80), here = "[" + schema.name + "]", plugin = plugin_name(schema);
    Names keys, with;  // of this section; plugins that have `key`
    for (const Option& option : options) keys.push_back(option.key);
    std::sort(keys.begin(), keys.end());
    for (const auto& name : plugins.names(schema.kind))
      if (const auto* other = plugins.find(schema.kind, name); other && find_option(other->options, key))
        with.push_back(name);
    const Names elsewhere = owners(key);
    const std::string word = key.substr(key.rfind('.') + 1);  // of optimizer.params.lr: lr
    auto foreign = foreign_key(schema.name + "." + word);
    if (!foreign) foreign = foreign_key(word);
    const std::string help = fmt::format("{} has: {}", here, fmt::join(keys, ", "));
    const char* code = !elsewhere.empty() ? "E0105" : foreign ? "E0111" : !with.empty() ? "E0105" : "E0103";
    Problem problem{code, "", given.key, help, "not a key of " + here, "", key, keys};
    if (!plugin.empty()) problem.label += fmt::format(" with plugin \"{}\"", printable(plugin));
    if (!elsewhere.empty())
      problem.message = fmt::format("`{}` belongs to {}, not {}", shown, fmt::join(elsewhere, " or "), here);
    else if (foreign)
      problem.message = fmt::format("`{}` is {} name; here it is `{}`", shown, foreign->whose, foreign->here);
    else if (!with.empty())
      problem.message = fmt::format("`{}` belongs to plugin {}, not `{}`", shown, quoted(with), plugin);
    else
      problem.message = fmt::format("unknown key `{}`", shown);
    add(schema.name, std::move(problem));
  }

  void missing_key(const SectionSchema& schema, const Option& option) {
    if (unread && schema.name == "model") return;
    const char* missing = document.find(schema.name) ? "[{}] needs `{}`" : "section [{}] is missing: it needs `{}`";
    const std::string message = fmt::format(fmt::runtime(missing), schema.name, option.key);
    const bool plugin = option.key == "plugin";
    add_missing(
        schema.name,
        {"E0108", message, {}, plugin ? choice_of(plugins.names(schema.kind), accepts(option)) : accepts(option)});
  }

  Section resolve(const SectionSchema& schema) {
    const PluginSchema* plugin = plugin_of(schema);
    const bool alone = schema.kind.empty() || (!plugin && is_late(schema));  // all its keys are the core's
    if (!plugin && !alone) no_plugin(schema);
    const Schema options = merged(schema, plugin);
    std::map<std::string, Setting> settings;
    for (const Option& option : options)
      take_own(schema.name, option, option.fallback, "default", settings[option.key]);
    if (plugin) take_preset(schema, options, *plugin, settings);
    const auto* part = document.find(schema.name);
    for (const auto& [key, given] : part ? part->keys : std::map<std::string, Given>{}) {
      if (const Option* option = find_option(options, key))
        take_given(schema, *option, given, settings[key]);
      else if ((alone || plugin) && !given.held)
        unknown_key(schema, options, key, given);
    }
    if (schema.name == "model")
      for (const auto& [key, said] : from.settings)
        if (const Option* option = find_option(options, key)) take_from(*option, said, settings[key]);
    for (const Option& option : options)
      if (option.required && settings[option.key].value.index() == 0 && !document.find(schema.name, option.key))
        missing_key(schema, option);
    return Section(schema.name, std::move(settings));
  }

  void unknown_section(const std::string& name, const Document::Part& part) {
    Names names;
    for (const auto& schema : section_schemas()) names.push_back(schema.name);
    if (std::count(names.begin(), names.end(), name)) return;
    const Place at = part.header.line || part.keys.empty() ? part.header : part.keys.begin()->second.key;
    if (name == "offload")
      return problems.push_back(
          {"E0115", fmt::format("section [{}] is not supported by this version", name), at, "remove it"});
    if (const auto foreign = foreign_key(name))
      return problems.push_back({"E0111",
                                 fmt::format("[{}] is {} name; here it is `{}`", name, foreign->whose, foreign->here),
                                 at, fmt::format("sections are: {}", fmt::join(names, ", ")), "", "", name, names});
    problems.push_back({"E0102", fmt::format("unknown section [{}]", printable(name, 80)), at,
                        fmt::format("sections are: {}", fmt::join(names, ", ")), "", "", name, names});
  }

  void outside(const std::string& key, const Given& given) {
    const Names found = owners(key);
    if (const auto foreign = foreign_key(key); foreign && found.empty())
      return problems.push_back({"E0111",
                                 fmt::format("`{}` is {} name; here it is `{}`", key, foreign->whose, foreign->here),
                                 given.key, "a key stands in its section, such as [train]"});
    problems.push_back(
        {"E0103", fmt::format("`{}` is outside any section", printable(key, 80)), given.key,
         found.empty() ? "a section is written [train]" : fmt::format("it belongs to {}", found.front())});
  }
};

}  // namespace

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
    if (folder.starts_with("/dev/")) base_dir = std::filesystem::current_path();  // /dev/stdin lies in no folder
  }
  return parse(text, path.string(), base_dir, overrides, plugins);
}

Config Config::parse(const std::string& text, const std::string& name, const std::filesystem::path& base_dir,
                     const std::vector<std::string>& overrides, const SchemaSource& plugins) {
  const std::string file = printable(name);
  Problems problems;
  const Document document = read_document(text, overrides, problems);
  // What follows from a file that cannot be read is noise.
  if (document.parts.empty() && !problems.empty()) throw ConfigError(file, text, problems);
  Config config;
  config.base_dir_ = base_dir;
  config.source_ = text;
  config.name_ = file;
  std::vector<std::filesystem::path> folders;
  if (const auto* list = document.value<Names>("plugins", "path"))
    for (const std::string& folder : *list) folders.push_back(base_dir / folder);
  plugins.look_in(folders);
  Resolver resolver{file, document, plugins, problems, config.no_data_, {}, {}};
  resolver.read_from(base_dir);
  config.notes_ = resolver.from.notes;
  for (const auto& schema : section_schemas()) config.sections_.push_back(resolver.resolve(schema));
  for (const auto& [section, part] : document.parts)
    if (!section.empty()) resolver.unknown_section(section, part);
  if (const auto* loose = document.find(""))
    for (const auto& [key, stray] : loose->keys) resolver.outside(key, stray);
  apply_rules(document, resolver.broken, config, problems, config.notes_);
  if (!problems.empty()) throw ConfigError(file, text, problems);
  return config;
}

}  // namespace eng
