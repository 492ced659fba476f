// SPDX-License-Identifier: Apache-2.0
// [[data.sources]]: their keys are the engine's and those of their plugins; [data] has what they share.
#include "session/config/mixture.hpp"

#include <algorithm>

#include "session/config/source.hpp"

namespace eng {
namespace {

constexpr const char* source_kind = "eng.data/1";

const std::string* string_in(const Table& entry, const char* key) {
  const auto found = entry.values.find(key);
  return found == entry.values.end() ? nullptr : std::get_if<std::string>(&found->second);
}

std::string numbered(const Table& entry, std::size_t k, const std::string& plugin) {
  const std::string* name = string_in(entry, "name");
  return name ? *name : fmt::format("{}-{}", plugin, k + 1);
}

bool is_source_name(const std::string& name) {
  constexpr const char* possible = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  return !name.empty() && name.size() <= 64 && name.find_first_not_of(possible) == std::string::npos;
}

struct MixtureChecks {
  const Tables& entries;
  const TextRange& place;
  const Document& document;
  const SchemaSource& plugins;
  std::string plugin;  // of entries without one
  Problems out = {};

  void refuse(const char* code, const std::string& text, const std::string& help, const TextRange& at) {
    out.push_back({code, text, at, help});
  }
  std::string plugin_of(const Table& entry) const {
    const std::string* own = string_in(entry, "plugin");
    return own ? *own : plugin;
  }
  bool any(const char* key) const {
    return std::any_of(entries.begin(), entries.end(), [&](const Table& e) { return e.values.count(key) > 0; });
  }

  void names() {
    std::vector<std::string> seen;
    for (std::size_t k = 0; k < entries.size(); ++k) {
      const std::string name = numbered(entries[k], k, plugin_of(entries[k]));
      if (!is_source_name(name))
        refuse("E0106", fmt::format("[[data.sources]] {}: `name` is {}", k + 1, printable(toml_text(name))),
               "a name is 1 to 64 letters, digits, '_', '.' and '-'", place);
      if (std::count(seen.begin(), seen.end(), name))
        refuse("E0113", fmt::format("[[data.sources]] {}: another source is called `{}`", k + 1, name),
               "give one of them another `name`", place);
      seen.push_back(name);
      if (entries[k].values.count("tokenizer"))
        refuse("E0105", fmt::format("[[data.sources]] {}: `tokenizer` is a key of [data]: the model has one", k + 1),
               "write it into [data], for all sources", place);
    }
  }

  void shares() {
    const Given* temperature = document.find("data", "temperature");
    const bool weights = any("weight"), epochs = any("epochs");
    if (weights && epochs)
      refuse("E0113", "[[data.sources]] have `weight` and `epochs`", "give all of them the one or the other", place);
    if (temperature && !temperature->held && (weights || epochs))
      refuse("E0113",
             fmt::format("`temperature` and {} of [[data.sources]] are both given", weights ? "`weight`" : "`epochs`"),
             "remove one of them: temperature derives the weights from the sizes", temperature->key);
    for (const char* key : {"weight", "epochs"}) {
      const auto positive = [&](const Table& entry) {
        const auto found = entry.values.find(key);
        return found == entry.values.end() || std::get<double>(found->second) > 0;
      };
      if (any(key) && std::none_of(entries.begin(), entries.end(), positive))
        refuse("E0106", fmt::format("`{}` is 0 for all of [[data.sources]]", key),
               "give at least one of them more: nothing would be trained on", place);
    }
  }

  // Keys of [data] that no source takes, because each has its own.
  void idle() {
    for (const auto& [key, given] : document.find("data")->keys) {
      if (given.held || (is_engine_key("data", key) && key != "plugin")) continue;
      bool known = false, used = false;
      for (const Table& entry : entries) {
        const PluginSchema* schema = plugins.find(source_kind, plugin_of(entry));
        if (key != "plugin" && !(schema && find_option(schema->options, key))) continue;
        known = true, used = used || !entry.values.count(key);
      }
      if (known && !used)
        refuse("E0113", fmt::format("`{}` of [data] has no effect: each of [[data.sources]] has its own", key),
               "remove it; for one source instead of the mixture: --unset data.sources", given.key);
    }
  }
};

}  // namespace

bool is_mixture(const Section& data) {
  const auto found = data.settings().find("sources");
  const auto* entries = found == data.settings().end() ? nullptr : std::get_if<Tables>(&found->second.value);
  return entries && !entries->empty();
}

std::string source_plugin(const Table& entry, const Section& data) {
  const std::string* own = string_in(entry, "plugin");
  return own ? *own : data.string("plugin");
}

std::string source_name(const Table& entry, std::size_t k, const Section& data) {
  return numbered(entry, k, source_plugin(entry, data));
}

Tables sources_in(const Document& document) {
  const auto* entries = document.value<Tables>("data", "sources");
  return entries ? *entries : Tables();
}

Schema data_keys(const SectionSchema& section, const PluginSchema* plugin, const Tables& entries,
                 const std::string& named, const SchemaSource& plugins) {
  if (entries.empty()) {
    SectionSchema without = section;
    std::erase_if(without.options, [](const Option& o) { return o.key == "sources" || o.key == "temperature"; });
    return merged(without, plugin);
  }
  Schema all = section.options;
  for (const Table& entry : entries) {
    const std::string* own = string_in(entry, "plugin");
    const PluginSchema* of = plugins.find(section.kind, own ? *own : named);
    for (Option option : of ? of->options : Schema{}) {
      option.required = false;  // the sources give it
      if (!find_option(all, option.key)) all.push_back(std::move(option));
    }
  }
  return all;
}

Problems mixture_problems(Tables& entries, const TextRange& place, const Document& document,
                          const SchemaSource& plugins) {
  const auto* named = document.value<std::string>("data", "plugin");
  const std::string plugin = named ? *named : "text";
  Problems out = entry_problems("data.sources", entries, place, plugins, document.find("data"));
  if (!out.empty()) return out;
  if (entries.size() > most_sources)
    return {{"E0106", fmt::format("there are {} [[data.sources]]; the limit is {}", entries.size(), most_sources),
             place, "one source can have several `paths`"}};
  MixtureChecks checks{entries, place, document, plugins, plugin};
  checks.names();
  checks.shares();
  checks.idle();
  return checks.out;
}

}  // namespace eng
