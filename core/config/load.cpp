// SPDX-License-Identifier: Apache-2.0
// From what is written to what is meant: every section complete, every problem told.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "core/base/error.hpp"
#include "core/config/names.hpp"
#include "core/config/rules.hpp"
#include "core/config/schema.hpp"

namespace eng {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::error_code code;
  const std::string name = printable(path.string());
  if (!std::filesystem::exists(path, code))
    throw Error(Exit::usage, "error[E0116]: no such file: " + name,
                "`engine init PRESET` writes a configuration to start from");
  if (std::filesystem::is_directory(path, code))
    throw Error(Exit::usage, "error[E0116]: a directory, not a configuration: " + name);
  std::ifstream file(path, std::ios::binary);
  std::string text(max_config_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    throw Error(Exit::usage, "error[E0116]: cannot read " + name, "is it yours to read?");
  if (!file.eof())
    throw Error(Exit::usage, fmt::format("error[E0116]: {} is too large for a configuration", name),
                fmt::format("at most {} are read; is this the right file?", format_bytes(max_config_bytes)));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

class Resolver {
 public:
  Resolver(const Document& document, const SchemaSource& plugins, Problems& problems)
      : document_(document), plugins_(plugins), problems_(problems) {}

  Section resolve(const SectionSchema& schema);
  void unknown_sections();
  const std::set<std::string>& broken() const { return broken_; }
  std::map<std::string, std::string> missing;  // see Config::require

 private:
  const PluginSchema* plugin_of(const SectionSchema& schema);
  // The keys of a section as this document has it, for "belongs to".
  Schema schema_of(const SectionSchema& schema) const;
  void defaults(const SectionSchema& schema, const Schema& options, std::map<std::string, Setting>& settings);
  void preset(const SectionSchema& schema, const Schema& options, const PluginSchema& plugin,
              std::map<std::string, Setting>& settings);
  void take(const SectionSchema& schema, const Option& option, const Given& given, Setting& setting);
  void unknown_key(const SectionSchema& schema, const Schema& options, const std::string& key, const Given& given);
  void required(const SectionSchema& schema, const Schema& options, const std::map<std::string, Setting>& settings);
  std::vector<std::string> owners(const std::string& key, const std::string& except) const;
  void loose_key(const std::string& key, const Given& given);
  void add(const std::string& section, Problem problem) {
    broken_.insert(section);
    problems_.add(std::move(problem));
  }
  // Says something of its own: a resolved text has every section.
  bool present(const std::string& section) const {
    const auto part = document_.parts.find(section);
    return part != document_.parts.end() &&
           std::any_of(part->second.keys.begin(), part->second.keys.end(),
                       [&](const auto& entry) { return document_.defaults.count(section + "." + entry.first) == 0; });
  }
  Place header(const std::string& section) const {
    const auto part = document_.parts.find(section);
    return part == document_.parts.end() ? Place{} : part->second.header;
  }

  const Document& document_;
  const SchemaSource& plugins_;
  Problems& problems_;
  std::set<std::string> broken_;
};

std::string plugin_name(const Document& document, const SectionSchema& schema) {
  const Given* given = document.find(schema.name, "plugin");
  if (!given) return default_plugin(schema);
  const auto* name = std::get_if<std::string>(&given->value);
  return name ? *name : "";
}

const PluginSchema* Resolver::plugin_of(const SectionSchema& schema) {
  const std::string name = plugin_name(document_, schema);
  if (name.empty()) return nullptr;  // missing or of a wrong type: told elsewhere
  if (const PluginSchema* found = find_plugin(plugins_, schema.kind, name)) return found;
  const Given* given = document_.find(schema.name, "plugin");
  const auto names = plugin_names(plugins_, schema.kind);
  Problem problem{"E0110",
                  fmt::format("no {} plugin named `{}`", kind_word(schema.kind), printable(name)),
                  given ? given->place : header(schema.name),
                  given ? "" : "the default of [" + schema.name + "]",
                  "",
                  ""};
  const auto near = nearest_all(name, names);
  problem.help = near.empty() ? "" : "did you mean " + quoted_list(near) + "?   ";
  problem.help += names.empty() ? fmt::format("no {} plugin was found at all", kind_word(schema.kind))
                                : "there is " + quoted_list(names, " and ");
  if (plugins_.explain) problem.note = plugins_.explain(schema.kind, name);
  if (schema.name == "data" && !present("data"))
    missing["data"] = problem.message + (problem.note.empty() ? "" : "\n" + problem.note);
  else
    add(schema.name, std::move(problem));
  return nullptr;
}

Schema Resolver::schema_of(const SectionSchema& schema) const {
  if (schema.kind.empty()) return schema.options;
  const PluginSchema* plugin = find_plugin(plugins_, schema.kind, plugin_name(document_, schema));
  return plugin ? merged(schema.options, plugin->options) : schema.options;
}

void Resolver::defaults(const SectionSchema& schema, const Schema& options, std::map<std::string, Setting>& settings) {
  for (const Option& option : options) {
    Setting setting{option.fallback, "default", false};
    if (const auto wrong = fit(option, setting.value); !wrong.empty()) {
      add(schema.name, {"E0117",
                        fmt::format("the default of [{}] {} {}", schema.name, option.key, wrong),
                        {},
                        "",
                        "this is a fault of the plugin's description",
                        ""});
      setting.value = Value{};
    }
    settings[option.key] = std::move(setting);
  }
}

void Resolver::preset(const SectionSchema& schema, const Schema& options, const PluginSchema& plugin,
                      std::map<std::string, Setting>& settings) {
  const Given* given = document_.find(schema.name, "preset");
  const auto* name = given ? std::get_if<std::string>(&given->value) : nullptr;
  if (!name) return;
  const auto found = plugin.presets.find(*name);
  if (found == plugin.presets.end()) {
    std::vector<std::string> names;
    for (const auto& [known, values] : plugin.presets) names.push_back(known);
    const auto near = nearest_all(*name, names);
    std::string help = near.empty() ? "" : "did you mean " + quoted_list(near) + "?   ";
    help += names.empty() ? "it has none: give its keys" : "it has " + quoted_list(names, " and ");
    const std::string of = plugin_name(document_, schema);
    add(schema.name,
        {"E0112", fmt::format("`{}` has no preset `{}`", of, printable(*name)), given->place, "", help, ""});
    return;
  }
  for (const auto& [key, raw] : found->second) {
    const Option* option = find_option(options, key);
    Value value = raw;
    const std::string wrong = option ? fit(*option, value) : "is no key of the plugin";
    if (wrong.empty())
      settings[key] = Setting{std::move(value), "preset " + *name, true};
    else
      add(schema.name, {"E0117", fmt::format("preset `{}`: `{}` {}", *name, key, wrong), given->place, "",
                        "this is a fault of the plugin's description", ""});
  }
}

void Resolver::take(const SectionSchema& schema, const Option& option, const Given& given, Setting& setting) {
  Value value = given.value;
  std::string wrong;
  // On a command line nobody quotes 7b or 2026: an override of a text is its text.
  if (given.place.override_index >= 0 && option.type == Type::string && !std::holds_alternative<std::string>(value) &&
      value.index() < 5 && given.odd != "a table" && given.odd.compare(0, 6, "a list") != 0)
    value = given.text;
  if (!std::holds_alternative<std::string>(value) && !given.odd.empty()) {
    const char* article = option.type == Type::integer ? "an " : "a ";
    wrong = fmt::format("must be {}{}, not {}", article, type_name(option.type), given.odd);
  } else {
    wrong = fit(option, value);
  }
  if (wrong.empty()) {
    const bool held = document_.defaults.count(schema.name + "." + option.key) > 0;
    setting = Setting{std::move(value), held ? "default" : problems_.origin(given.place), !held};
    return;
  }
  const auto* text = std::get_if<std::string>(&value);
  const bool number = std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
  const bool choice = text && option.type == Type::string && !option.choices.empty();
  const bool range = number &&
                     (option.type == Type::integer || option.type == Type::number || option.type == Type::bytes) &&
                     !(option.type == Type::integer && std::holds_alternative<double>(value));
  std::string help;
  if (choice)
    if (const auto near = nearest(*text, option.choices); !near.empty()) help = "did you mean " + toml_text(near) + "?";
  if (text && option.type == Type::strings)
    help = fmt::format("{} = [{}]", option.key, toml_text(printable(*text, 80)));
  if (text && (option.type == Type::integer || option.type == Type::number) && !text->empty() &&
      text->find_first_not_of("+-.0123456789eE_") == std::string::npos)
    help = fmt::format("a number has no quotes: {} = {}", option.key, printable(*text, 80));
  if (text && option.type == Type::boolean && (*text == "true" || *text == "false"))
    help = "without the quotes: " + *text;
  if (text && option.type == Type::strings && given.place.override_index >= 0)
    help = fmt::format("the shell takes one pair of quotes: '{}.{}=[{}]'", schema.name, option.key,
                       toml_text(printable(*text, 80)));
  add(schema.name, {choice  ? "E0107"
                    : range ? "E0106"
                            : "E0104",
                    fmt::format("`{}` {}", option.key, printable(wrong, 600)), given.place, describe(option), help,
                    option.help.empty() ? "" : option.key + ": " + option.help});
}

// "[train]" and what else has `key`: core sections, sections with their plugins, sections of later versions.
std::vector<std::string> Resolver::owners(const std::string& key, const std::string& except) const {
  std::vector<std::string> found;
  for (const auto& schema : section_schemas())
    if (schema.name != except && find_option(schema_of(schema), key)) found.push_back("[" + schema.name + "]");
  return found;
}

std::string join(const std::vector<std::string>& parts, const char* last) {
  return fmt::format("{}{}{}", fmt::join(parts.begin(), parts.end() - 1, ", "), parts.size() > 1 ? last : "",
                     parts.back());
}

std::string wrapped(const std::vector<std::string>& words) {
  std::string out;
  std::size_t column = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i] + (i + 1 < words.size() ? "," : "");
    if (column > 0 && column + word.size() > 100) {
      out += "\n";
      column = 0;
    } else if (column > 0) {
      out += " ";
    }
    out += word;
    column += word.size() + 1;
  }
  return out;
}

void Resolver::unknown_key(const SectionSchema& schema, const Schema& options, const std::string& key,
                           const Given& given) {
  const std::string shown = printable(key, 80), here = "[" + schema.name + "]";
  Problem problem{"E0103", fmt::format("unknown key `{}`", shown), given.key, "not a key of " + here, "", ""};
  const std::string plugin = schema.kind.empty() ? "" : plugin_name(document_, schema);
  if (!plugin.empty()) problem.label += fmt::format(" with plugin \"{}\"", printable(plugin));
  std::vector<std::string> keys = keys_of(options);
  std::sort(keys.begin(), keys.end());
  const auto near = nearest_all(key, keys);
  const auto elsewhere = owners(key, schema.name);
  const Foreign* other = foreign_key(key);
  if (key == "plugin") {
    problem.message = fmt::format("{} names no plugin", here);
    problem.help = "it is a section of the engine itself: remove the line";
  } else if (!elsewhere.empty()) {
    problem.code = "E0105";
    problem.message = fmt::format("`{}` belongs to {}, not {}", shown, join(elsewhere, " or "), here);
    problem.help = "move the line there";
    if (!near.empty()) problem.help += fmt::format(", or did you mean {}?", quoted_list(near));
  } else if (other) {
    const std::string target = other->here, section = target.substr(0, target.find('.'));
    problem.code = "E0111";
    problem.message = fmt::format("`{}` is {} name; here it is `{}`", shown, other->whose, target);
    problem.help = section == schema.name
                       ? fmt::format("write {}", target.substr(target.find('.') + 1))
                       : fmt::format("write {} in [{}]", target.substr(target.find('.') + 1), section);
    if (later_section(section))
      problem.help = fmt::format("[{}] is not supported by this version: remove the line", section);
  } else if (const auto owner = later_owner(key); !owner.empty() && near.empty()) {
    problem.code = "E0115";
    problem.message = fmt::format("`{}` belongs to [{}], which is not supported by this version", shown, owner);
    problem.help = "remove the line";
  } else {
    std::vector<std::string> with;
    for (const auto& name : plugin_names(plugins_, schema.kind)) {
      const PluginSchema* candidate = schema.kind.empty() ? nullptr : find_plugin(plugins_, schema.kind, name);
      if (candidate && name != plugin && find_option(candidate->options, key)) with.push_back(name);
    }
    if (!with.empty()) {
      problem.code = "E0105";
      problem.message = fmt::format("`{}` belongs to plugin {}, not `{}`", shown, quoted_list(with), plugin);
      problem.help = fmt::format("remove the line, or use plugin = \"{}\"", with.front());
    } else if (!near.empty()) {
      problem.help = "did you mean " + quoted_list(near) + "?";
    }
  }
  if (!problem.help.empty()) problem.help += "\n";
  problem.help += fmt::format("{} has: {}", here, wrapped(keys));
  add(schema.name, std::move(problem));
}

void Resolver::required(const SectionSchema& schema, const Schema& options,
                        const std::map<std::string, Setting>& settings) {
  const bool from = settings.count("from") && settings.at("from").given;  // the directory holds the model's keys
  std::string list;
  for (const Option& option : options) {
    if (!option.required || document_.find(schema.name, option.key)) continue;
    if (!std::holds_alternative<std::monostate>(settings.at(option.key).value)) continue;
    if (from && option.key != "plugin") continue;
    const std::string wanted = describe(option) + (option.help.empty() ? "" : ": " + option.help);
    if (schema.name == "data" && !present("data")) {
      list += fmt::format("\n  {} = ...   # {}", option.key, wanted);
      continue;
    }
    Problem problem{"E0108", fmt::format("[{}] needs `{}`", schema.name, option.key), header(schema.name), "", wanted,
                    ""};
    if (document_.parts.count(schema.name) == 0)
      problem.message = fmt::format("section [{}] is missing: it needs `{}`", schema.name, option.key);
    if (option.key == "plugin")
      if (const auto names = plugin_names(plugins_, schema.kind); !names.empty())
        problem.help = fmt::format("plugin = \"...\": there is {}", quoted_list(names, " and "));
    add(schema.name, std::move(problem));
  }
  if (!list.empty()) missing[schema.name] = fmt::format("section [{}] is missing; it needs{}", schema.name, list);
}

Section Resolver::resolve(const SectionSchema& schema) {
  const PluginSchema* plugin = schema.kind.empty() ? nullptr : plugin_of(schema);
  const Schema options = plugin ? merged(schema.options, plugin->options) : schema.options;
  std::map<std::string, Setting> settings;
  defaults(schema, options, settings);
  if (plugin && find_option(options, "preset")) preset(schema, options, *plugin, settings);
  if (const auto part = document_.parts.find(schema.name); part != document_.parts.end()) {
    for (const auto& [key, given] : part->second.keys) {
      const Option* option = find_option(options, key);
      if (option)
        take(schema, *option, given, settings[key]);
      else if ((schema.kind.empty() || plugin) && !document_.defaults.count(schema.name + "." + key))
        unknown_key(schema, options, key, given);
    }
  }
  required(schema, options, settings);
  return Section(schema.name, std::move(settings));
}

void Resolver::loose_key(const std::string& key, const Given& given) {
  const std::string shown = printable(key, 80);
  Problem problem{"E0103", fmt::format("`{}` is outside any section", shown), given.key, "", "", ""};
  const auto found = owners(key, "");
  std::vector<std::string> sections;
  for (const auto& schema : section_schemas()) sections.push_back(schema.name);
  if (const auto near = nearest_all(key, sections); !near.empty())
    problem.help = fmt::format("a section is written [{}]", near.front());
  else if (!found.empty())
    problem.help = "it belongs to " + join(found, " or ");
  else if (const Foreign* other = foreign_key(key))
    problem.help = fmt::format("it is {} name; here it is `{}`", other->whose, other->here);
  else
    problem.help = "every key belongs to a section: " + fmt::format("{}", fmt::join(sections, ", "));
  problems_.add(std::move(problem));
}

void Resolver::unknown_sections() {
  std::vector<std::string> sections;
  for (const auto& schema : section_schemas()) sections.push_back(schema.name);
  for (const auto& [name, part] : document_.parts) {
    if (find_schema(name)) continue;
    const std::string shown = printable(name, 80);
    Problem problem{"E0102", fmt::format("unknown section [{}]", shown), part.header, "", "", ""};
    // A section made by overrides alone has no header.
    if (problem.at.line == 0 && !part.keys.empty()) problem.at = part.keys.begin()->second.key;
    const std::string alias = foreign_section(name);
    if (later_section(name) || later_section(alias)) {
      problem.code = "E0115";
      problem.message = fmt::format("section [{}] is not supported by this version", shown);
      problem.help = "remove it";
    } else if (!alias.empty()) {
      problem.help = fmt::format("here it is [{}]", alias);
    } else {
      const auto near = nearest_all(name, sections);
      problem.help = near.empty() ? "" : fmt::format("did you mean [{}]?   ", near.front());
      problem.help += fmt::format("sections are: {}", fmt::join(sections, ", "));
    }
    problems_.add(std::move(problem));
  }
  for (const auto& [key, given] : document_.loose) loose_key(key, given);
}

}  // namespace

Config Config::load(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                    const SchemaSource& plugins) {
  return parse(read_file(path), path.string(), std::filesystem::absolute(path).parent_path(), overrides, plugins);
}

Config Config::parse(const std::string& text, const std::string& name, const std::filesystem::path& base_dir,
                     const std::vector<std::string>& overrides, const SchemaSource& plugins) {
  const std::string shown = printable(name);
  Problems problems(shown, text, overrides);
  const Document document = read_document(text, overrides, problems);
  // What follows from a file that cannot be read is noise.
  if (document.parts.empty() && document.loose.empty()) problems.raise();
  Config config;
  config.base_dir_ = base_dir;
  config.source_ = text;
  Resolver resolver(document, plugins, problems);
  for (const auto& schema : section_schemas()) config.sections_.push_back(resolver.resolve(schema));
  resolver.unknown_sections();
  apply_rules({document, problems, config.notes_,
               [&](const char* wanted) -> Section& { return config.section(wanted); }, resolver.broken()});
  problems.raise();
  config.missing_ = std::move(resolver.missing);
  return config;
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
  const auto found = missing_.find(name);
  if (found != missing_.end()) throw Error(Exit::usage, "error[E0108]: " + found->second);
}

std::vector<std::string> plugin_paths(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  try {
    const std::string text = read_file(path), name = path.string();
    Problems problems(name, text, overrides);
    const Document document = read_document(text, overrides, problems);
    const Given* given = document.find("plugins", "path");
    const auto* list = given ? std::get_if<std::vector<std::string>>(&given->value) : nullptr;
    return list ? *list : std::vector<std::string>{};
  } catch (const Error&) {
    return {};
  }
}

}  // namespace eng
