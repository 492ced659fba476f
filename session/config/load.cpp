// SPDX-License-Identifier: Apache-2.0
// From the written text to resolved values: every section is complete, every problem is reported.

#include <algorithm>
#include <cmath>

#include "session/config/mixture.hpp"
#include "session/config/spelling.hpp"
#include "session/config/words.hpp"

namespace eng {
namespace {

struct Resolver {
  const std::string& file;
  const Document& document;
  const SchemaSource& plugins;
  Problems& problems;
  Problems& no_data;             // see Config::require
  std::set<std::string> broken;  // sections with problems
  ModelSource from;              // what [model] from says
  bool unread = false;           // it could not be read: keys that it would have supplied are not reported as missing

  void add(const std::string& section, Problem problem) {
    broken.insert(section);
    problems.push_back(std::move(problem));
  }

  // For a section that may be absent: [data] is not always needed. A resolved text has it, but may give nothing in it.
  void add_missing(const std::string& section, Problem problem) {
    const auto* part = document.find(section);
    const auto by_somebody = [](const auto& entry) { return !entry.second.held; };
    const bool present = part && std::any_of(part->keys.begin(), part->keys.end(), by_somebody);
    if (section == "data" && !present) return no_data.push_back(std::move(problem));
    if (part && problem.at.line == 0 && problem.at.override_text.empty()) problem.at = part->header;
    add(section, std::move(problem));
  }

  // "config.toml:12", "command line".
  std::string origin(const TextRange& at) const {
    return at.override_text.empty() ? fmt::format("{}:{}", file, at.line) : "command line";
  }

  std::string plugin_name(const SectionSchema& schema) const {
    const Option* option = find_option(schema.options, schema.names);
    Value value = option ? option->fallback : Value();
    if (schema.name == "model" && from.settings.count("plugin")) value = from.settings.at("plugin").value;
    if (const Given* given = document.find(schema.name, schema.names)) value = given->value;
    return value.index() == 4 ? std::get<std::string>(value) : "";
  }

  std::string model_name() const {
    const auto& all = section_schemas();
    return plugin_name(*std::find_if(all.begin(), all.end(), [](const auto& s) { return s.name == "model"; }));
  }

  const PluginSchema* plugin_of(const SectionSchema& schema) const {
    const std::string name = plugin_name(schema);
    return schema.kind.empty() || schema.built_in(name) ? nullptr : plugins.find(schema.kind, name);
  }

  // Not needed until a run uses it.
  bool is_late(const SectionSchema& schema) const {
    const Option* option = find_option(schema.options, schema.names);
    return option && option->late && Value(plugin_name(schema)) == option->fallback;
  }

  // The plugin here that another trainer's word means, for a help line; "" if nothing is known.
  std::string meant(const SectionSchema& schema, const std::string& word, const Names& possible) const {
    const std::string ours = plugins.foreign_value(schema.name + "." + schema.names, word);
    return std::count(possible.begin(), possible.end(), ours) ? fmt::format("did you mean `{}`?\n", ours) : "";
  }

  void no_plugin(const SectionSchema& schema) {
    const std::string name = plugin_name(schema);
    if (name.empty()) return;  // missing or of a wrong type: reported elsewhere
    const Given* given = document.find(schema.name, "plugin");
    const Names names = plugins.names(schema.kind);
    const std::string mean = meant(schema, name, names);
    add_missing(schema.name, {"E0110", fmt::format("no {} plugin named `{}`", schema.name, printable(name)),
                              given ? given->place : TextRange{},
                              mean + choice_of(names, fmt::format("no {} plugin was found", schema.name)),
                              given ? "" : "the default of [" + schema.name + "]", plugins.explain(schema.kind, name),
                              mean.empty() ? name : "", names});
  }

  // A default, or a preset's value.
  void take_own(const std::string& section, const Option& option, Value value, const std::string& origin,
                Setting& setting) {
    const Misfit wrong = fit(option, value);
    setting = Setting{std::move(value), origin, origin != "default"};
    const std::string text = fmt::format("{} of [{}]: `{}` {}", origin, section, option.key, wrong.text);
    if (wrong.code) add(section, {"E0117", text, {}, "the plugin's description is wrong"});
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
    const Given& given = *document.find(schema.name, "preset");
    const bool old = overridden(schema) && given.key.override_text.empty();
    add(schema.name,
        {"E0112", fmt::format("`{}` has no preset `{}`", plugin_name(schema), printable(*name)), given.place,
         choice_of(names, "it has no presets: give its keys") +
             (old ? fmt::format("\nto start without it: --unset {}.preset", schema.name) : ""),
         "", "", *name, names});
  }

  void take_given(const SectionSchema& schema, const Option& option, const Given& given, Setting& setting) {
    Value value = given.value;
    // Users do not quote 7b or 2026 on a command line: an override of a string key is taken as text.
    if (!given.text.empty() && option.type == Type::string && value.index() < 4 && given.odd.empty())
      value = given.text;
    const Misfit wrong = given.odd.empty() ? fit(option, value) : Misfit{"E0104", "cannot be " + given.odd};
    auto* tables = wrong.code ? nullptr : std::get_if<Tables>(&value);
    if (tables && schema.name == "data")
      for (Problem& problem : mixture_problems(*tables, given.place, document, plugins))
        add(schema.name, std::move(problem));
    else if (tables && entry_keys(schema.name))
      for (Problem& problem : entry_problems(schema.name, *tables, given.place, plugins))
        add(schema.name, std::move(problem));
    else if (tables)
      check_groups(schema, option, given, *tables);
    setting = Setting{std::move(value), given.held ? "default" : origin(given.place), !given.held};
    if (!wrong.code) return;
    const auto* text = std::get_if<std::string>(&setting.value);
    const bool names_plugin = text && option.key == schema.names;
    const std::string mean = names_plugin ? meant(schema, *text, option.choices) : "";
    const bool plugin = names_plugin && mean.empty() && nearest(*text, option.choices).empty();
    add(schema.name, {wrong.code, fmt::format("`{}` {}", option.key, printable(wrong.text, 600)), given.place,
                      mean + option.help, describe(option), plugin ? plugins.explain(schema.kind, *text) : "",
                      text && mean.empty() ? *text : "", option.choices});
  }

  // [[optimizer.groups]].
  void check_groups(const SectionSchema& schema, const Option& option, const Given& given, Tables& groups) {
    Schema keys = group_options();
    const PluginSchema* plugin = plugin_of(schema);
    for (const Option& own : plugin ? plugin->options : Schema{})
      if (own.per_group) keys.push_back(own);
    Names known;
    for (const Option& key : keys) known.push_back(key.key);
    for (std::size_t k = 0; k < groups.size(); ++k) {
      const std::string where = fmt::format("group {} of `{}`", k + 1, option.key);
      for (auto& [key, value] : groups[k].values) {
        const Option* found = find_option(keys, key);
        if (!found && !plugin) continue;  // the plugin is missing, which is reported separately
        const bool elsewhere = plugin && find_option(plugin->options, key);
        const Misfit wrong =
            found ? fit(*found, value) : Misfit{"E0103", elsewhere ? "cannot differ between groups" : "is unknown"};
        if (!wrong.code) continue;
        add(schema.name,
            {wrong.code, fmt::format("{}: `{}` {}", where, printable(key, 80), printable(wrong.text, 600)), given.place,
             fmt::format("a group has: {}", fmt::join(known, ", ")), "", "", found || elsewhere ? "" : key, known});
      }
      const auto match = groups[k].values.find("match");
      if (match == groups[k].values.end() || match->second == Value(Names{}))
        add(schema.name, {"E0108", where + " needs `match`", given.place,
                          "for example match = [\"*.bias\"]: patterns of parameter names"});
    }
  }

  // [model] from. A resolved text has all its values already.
  void read_from(const std::filesystem::path& base) {
    const auto* path = document.value<std::string>("model", "from");
    if (!path || document.resolved) return;
    const auto* plugin = document.value<std::string>("model", "plugin");
    if (const Given* preset = document.find("model", "preset"))
      add("model", {"E0113", "`preset` and `from` are both given", preset->key, "remove one: both define the model"});
    try {
      from = plugins.model_of(base / *path, plugin ? *plugin : "");
    } catch (const Error& e) {
      unread = true;
      add("model", {"E0118", e.what(), document.find("model", "from")->place, e.help()});
    }
  }

  // A value from the description of the weights; [model] must agree with it.
  void take_from(const Option& option, const Setting& said, Setting& setting) {
    const Given* given = document.find("model", option.key);
    if (!given) {
      setting = said;
    } else if (setting.value != said.value && !option.adjustable && option.key != "plugin") {
      add("model", {"E0119",
                    fmt::format("`{}` contradicts the weights: {} says {}", option.key, from.file.string(),
                                printable(toml_text(said.value))),
                    given->place, "remove the line: `from` supplies the value"});
    }
  }

  // Every section that has `key`, such as "[train]".
  Names owners(const std::string& key) const {
    Names found;
    for (const auto& schema : section_schemas())
      if (find_option(keys_of(schema, plugin_of(schema), plugins), key)) found.push_back("[" + schema.name + "]");
    return found;
  }

  // True if the file is for another plugin than the override of this section's.
  bool overridden(const SectionSchema& schema) const {
    const Given* named = document.find(schema.name, schema.names);
    return named && !named->place.override_text.empty();
  }

  // The file's keys that only plugins other than the one of an override have. One problem tells how to do without all.
  std::set<std::string> left_over(const SectionSchema& schema, const Schema& options) {
    std::set<std::string> out;
    if (!overridden(schema)) return out;
    std::string shown, unset;
    const Given* first = nullptr;
    Names with;
    for (const auto& [key, given] : document.find(schema.name)->keys) {
      if (!given.key.override_text.empty() || given.held || find_option(options, key) || !owners(key).empty()) continue;
      const Names of = with_key(plugins, schema.kind, key);
      if (of.empty()) continue;
      if (out.empty()) with = of;
      out.insert(key);
      if (!first || given.key.line < first->key.line) first = &given;
      shown += fmt::format("{}`{}`", shown.empty() ? "" : ", ", printable(key, 80));
      unset += fmt::format(" --unset {}.{}", schema.name, printable(key, 80));
    }
    if (out.empty()) return out;
    const bool one = out.size() == 1;
    const std::string plugin = printable(plugin_name(schema));
    add(schema.name,
        {"E0105", fmt::format("{} belong{} to plugin {}, not `{}`", shown, one ? "s" : "", quoted(with), plugin),
         first->key,
         fmt::format("to {} without {}:{}\n{}", document.resolved ? "resume" : "start", one ? "it" : "them", unset,
                     keys_line(schema.name, options)),
         fmt::format("not a key of [{}] with plugin \"{}\"", schema.name, plugin)});
    return out;
  }

  void unknown_key(const SectionSchema& schema, const Schema& options, const std::string& key, const Given& given) {
    if (const std::string table = key.substr(0, key.find('.')); table != key && find_option(options, table))
      return add(schema.name, {"E0104", fmt::format("`{}` cannot be a table", table), given.key});
    const std::string shown = printable(key, 80), here = "[" + schema.name + "]", plugin = plugin_name(schema);
    Names keys;
    for (const Option& option : options) keys.push_back(option.key);
    for (const char* own : {"sources", "temperature"})  // of mixtures
      if (schema.name == "data" && key != own && !find_option(options, own)) keys.emplace_back(own);
    const Names with = with_key(plugins, schema.kind, key);
    const Names elsewhere = owners(key);
    Problem problem{"E0105", "", given.key, keys_line(schema.name, options), "not a key of " + here, "", key, keys};
    if (!plugin.empty()) problem.label += fmt::format(" with plugin \"{}\"", printable(plugin));
    const auto foreign = plugins.foreign(schema.name, key, given.value);
    const std::string word = key.substr(key.rfind('.') + 1);  // of optimizer.params.eps: eps
    if (!elsewhere.empty()) {
      problem.message = fmt::format("`{}` belongs to {}, not {}", shown, fmt::join(elsewhere, " or "), here);
    } else if (const Option* own = find_option(options, word); own && word != key) {
      const std::string write = typed(schema.name, *own, given.value);
      problem.message = fmt::format("`{}` is a key of {} itself, not of a table in it: `{}`", word, here, write);
      problem.help.clear();
    } else if (foreign) {
      problem = tell_foreign(*foreign, "`" + shown + "`", given.value, std::move(problem));
    } else if (!with.empty()) {
      problem.message = fmt::format("`{}` belongs to plugin {}, not `{}`", shown, quoted(with), plugin);
    } else {
      problem.code = "E0103";
      problem.message = fmt::format("unknown key `{}`", shown);
      if (schema.name == "data" && is_engine_key("data", key))
        problem.message = fmt::format("`{}` is for [[data.sources]], of which there are none", shown);
      if (const std::string tier = absent_tier(key, document, plugins); schema.name == "offload" && !tier.empty())
        problem.note = plugins.explain("eng.tier/1", tier);
      for (const Option& option : options)
        if (const Names of = with_key(plugins, option.names, key); !option.names.empty() && !of.empty())
          problem.message =
              fmt::format("`{}` belongs to {} {}: set {} = \"{}\"", shown, option.key, quoted(of), option.key, of[0]);
    }
    // The resolved text of a run is not to be edited.
    if (document.resolved && given.key.line > 0)
      problem.help = fmt::format("to resume without it: --unset {}.{}\n{}", schema.name, shown, problem.help);
    add(schema.name, std::move(problem));
  }

  // "[zero_optimization] is DeepSpeed's name; here it is `[zero]`".
  Problem tell_foreign(const Foreign& foreign, const std::string& shown, const Value& value, Problem problem) const {
    problem.code = "E0111";
    problem.help = foreign.why;
    problem.message = fmt::format("{} is {} name; ", shown, foreign.whose);
    const auto dot = std::min(foreign.here.find('.'), foreign.here.size());
    const std::string section = foreign.here.substr(0, dot);
    std::string write = foreign.write;
    for (const SectionSchema& schema : section_schemas()) {
      if (schema.name != section) continue;
      const Names names = plugins.names(schema.kind);
      if (!foreign.plugin.empty() && std::count(names.begin(), names.end(), foreign.plugin) == 0) {
        problem.help = choice_of(names, fmt::format("no {} plugin was found", section));
        problem.message += foreign.not_yet();
        return problem;
      }
      const Schema options = keys_of(schema, plugin_of(schema), plugins);
      const Option* option = find_option(options, foreign.here.substr(std::min(dot + 1, foreign.here.size())));
      if (!option) continue;
      if (foreign.same) write = typed(section, *option, value);
      const auto* part = std::get_if<double>(&value);
      const auto* steps = document.value<int64_t>("train", "steps");
      if (foreign.part_of_steps && part && *part >= 0 && *part <= 1 && steps && *steps <= 1'000'000'000)
        write = typed(section, *option, static_cast<int64_t>(std::llround(*part * static_cast<double>(*steps))));
    }
    problem.message += foreign.here.empty() ? "it has no equivalent here"
                                            : fmt::format("here it is `{}`", write.empty() ? foreign.here : write);
    return problem;
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
    const Tables sources = schema.name == "data" ? sources_in(document) : Tables();
    const PluginSchema* plugin = sources.empty() ? plugin_of(schema) : nullptr;
    const Option* named = find_option(schema.options, schema.names);
    // All its keys are the engine's. Of a word that is neither built in nor a plugin, its choices tell.
    const bool none = named && !named->required && plugin_name(schema).empty();  // [job] in a run
    const bool alone =
        schema.kind.empty() || !sources.empty() || (!plugin && (none || is_late(schema) || !named->choices.empty()));
    if (!plugin && !alone) no_plugin(schema);
    Schema options = sources.empty() ? keys_of(schema, plugin, plugins)
                                     : data_keys(schema, plugin, sources, plugin_name(schema), plugins);
    if (!plugin && named && !named->choices.empty())
      for (const std::string& name : plugins.names(schema.kind)) {
        auto& choices = const_cast<Option*>(find_option(options, schema.names))->choices;
        if (!schema.built_in(name)) choices.push_back(name);
      }
    add_named(options, plugins, [&](const std::string& key) {
      const auto* text = document.value<std::string>(schema.name, key);
      return text && sources.empty() ? *text : std::string();  // a source has the options of its format
    });
    std::map<std::string, Setting> settings;
    for (const Option& option : options)
      take_own(schema.name, option, option.fallback, "default", settings[option.key]);
    if (plugin) take_preset(schema, options, *plugin, settings);
    const auto* part = document.find(schema.name);
    const std::set<std::string> told = plugin ? left_over(schema, options) : std::set<std::string>();
    for (const auto& [key, given] : part ? part->keys : std::map<std::string, Given>{}) {
      if (const Option* option = find_option(options, key))
        take_given(schema, *option, given, settings[key]);
      else if ((alone || plugin) && !given.held && !told.count(key))
        unknown_key(schema, options, key, given);
    }
    if (schema.name == "model")
      for (const auto& [key, said] : from.settings)
        if (const Option* option = find_option(options, key)) take_from(*option, said, settings[key]);
    for (const Option& option : options)
      if (option.required && settings[option.key].value.index() == 0 && !document.find(schema.name, option.key))
        missing_key(schema, option);
    if (schema.name == "offload")
      for (Problem& problem : keep_tier_options(settings, document, plugins)) add(schema.name, std::move(problem));
    return Section(schema.name, std::move(settings));
  }

  void unknown_section(const std::string& name, const Document::Part& part) {
    Names names;
    for (const auto& schema : section_schemas()) names.push_back(schema.name);
    if (std::count(names.begin(), names.end(), name)) return;
    names.push_back("adapter");
    const TextRange at = part.header.line || part.keys.empty() ? part.header : part.keys.begin()->second.key;
    const std::string sections = fmt::format("sections are: {}", fmt::join(names, ", "));
    if (const auto foreign = plugins.foreign("", name, {})) {
      problems.push_back(tell_foreign(*foreign, "[" + name + "]", {}, {"", "", at, "", "", "", name, names}));
      if (problems.back().help.empty()) problems.back().help = sections;
      if (foreign->here.starts_with('['))
        for (const auto& [key, given] : part.keys)
          foreign_section_key(name, foreign->here.substr(1, foreign->here.size() - 2), key, given);
      return;
    }
    problems.push_back(
        {"E0102", fmt::format("unknown section [{}]", printable(name, 80)), at, sections, "", "", name, names});
  }

  // A key of another trainer's section `theirs`, which is `ours` here.
  void foreign_section_key(const std::string& theirs, const std::string& ours, const std::string& key,
                           const Given& given) {
    const std::string shown = fmt::format("`{}.{}`", theirs, printable(key, 80));
    Problem problem{"E0103", fmt::format("unknown key {}", shown), given.key};
    const SectionSchema* schema = nullptr;
    for (const SectionSchema& one : section_schemas())
      if (one.name == ours) schema = &one;
    const Schema options = keys_of(*schema, plugin_of(*schema), plugins);
    if (const auto foreign = plugins.foreign(theirs, key, given.value))
      problem = tell_foreign(*foreign, shown, given.value, std::move(problem));
    else if (const Option* own = find_option(options, key.substr(key.rfind('.') + 1)))
      problem = {"E0111", fmt::format("{}: here it is `{}`", shown, typed(ours, *own, given.value)), given.key};
    problems.push_back(std::move(problem));
  }

  void outside(const std::string& key, const Given& given) {
    const Names found = owners(key);
    if (const auto foreign = plugins.foreign("", key, given.value); foreign && found.empty()) {
      problems.push_back(tell_foreign(*foreign, "`" + printable(key, 80) + "`", given.value, {"", "", given.key}));
      if (problems.back().help.empty()) problems.back().help = "put the key into its section, such as [train]";
      return;
    }
    problems.push_back({"E0103", fmt::format("`{}` is outside any section", printable(key, 80)), given.key,
                        found.empty() ? "write the header of its section, such as [train], above it"
                                      : fmt::format("it belongs to {}", found.front())});
  }
};

}  // namespace

Config Config::make(Document document, Problems problems, const std::string& text, const std::string& name,
                    const std::filesystem::path& base_dir, const SchemaSource& plugins) {
  const std::string file = printable(name);
  // Further problems of a file that cannot be read would be noise.
  if (document.parts.empty() && !problems.empty()) throw ConfigError(file, text, problems);
  Config config;
  config.base_dir_ = base_dir;
  config.source_ = text;
  config.name_ = printable(name, name.size());
  std::vector<std::filesystem::path> folders;
  if (const auto* list = document.value<Names>("plugins", "path"))
    for (const std::string& folder : *list) folders.push_back(base_dir / folder);
  plugins.look_in(folders);
  Resolver resolver{file, document, plugins, problems, config.no_data_, {}, {}};
  resolver.read_from(base_dir);
  move_old_keys(document, resolver.model_name(), plugins, problems);
  keep_old_values(document, plugins);
  move_adapter(document, problems);
  config.notes_ = document.notes;
  config.notes_.insert(config.notes_.end(), resolver.from.notes.begin(), resolver.from.notes.end());
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
