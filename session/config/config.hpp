// SPDX-License-Identifier: Apache-2.0
// The resolved configuration: every key of every section, typed, with its origin.
#pragma once

#include <filesystem>
#include <functional>

#include "core/config/plugin_schema.hpp"
#include "core/config/section.hpp"
#include "session/config/problems.hpp"
#include "session/config/values.hpp"

namespace eng {

// Another trainer's name for a key or section of ours.
struct Foreign {
  std::string whose;           // "DeepSpeed's"
  std::string here = {};       // "train.steps" or "[zero]"; "" if there is no equivalent
  std::string write = {};      // what to type, if the value is known too: "zero.plugin = \"zero3\""
  std::string plugin = {};     // of `here`, the plugin that `write` names
  bool same = false;           // the value means the same here
  bool part_of_steps = false;  // their value is a fraction of train.steps, ours a number of steps
  std::string why = {};        // what else to know
  std::vector<std::pair<std::string, Value>> values = {};  // `write` as keys and values, if the value is known

  // For a plugin that is not there: "here it would be `zero.plugin = "zero3"`, which does not exist yet".
  std::string not_yet() const;
};

// The description of the model that [model] from = "DIR" gives.
struct ModelSource {
  std::filesystem::path file;               // the file with this information; empty if none
  std::map<std::string, Setting> settings;  // of [model]: `plugin` and the plugin's options
  std::vector<std::string> notes;           // unknown keys
};

// Facts about plugins (without loading them) and about weights that the configuration needs.
struct SchemaSource {
  using Text = const std::string&;
  // nullptr if there is none.
  std::function<const PluginSchema*(Text kind, Text name)> find = [](Text, Text) { return nullptr; };
  std::function<std::vector<std::string>(Text kind)> names = [](Text) { return std::vector<std::string>(); };
  // The folders searched, and why each candidate was refused: printed when `find` fails.
  std::function<std::string(Text kind, Text name)> explain = [](Text, Text) { return std::string(); };
  // Called first, with [plugins] path made absolute; may replace the other members.
  std::function<void(const std::vector<std::filesystem::path>& folders)> look_in = [](const auto&) {};
  // [model] from: reads what the directory says of its model. `plugin` is that of [model], "" if none is named. Throws
  // Error(Exit::usage) that lists everything that is not supported.
  std::function<ModelSource(const std::filesystem::path& directory, Text plugin)> model_of =
      [](const auto&, Text) -> ModelSource { throw Error(Exit::usage, "`from` is not read here"); };
  // A name of another trainer. `section` is the section that contains it; "" for a section's own name and outside any.
  std::function<std::optional<Foreign>(Text section, Text name, const Value& value)> foreign =
      [](Text, Text, const Value&) -> std::optional<Foreign> { return std::nullopt; };
  // Our value of the key "section.key" for another trainer's word; "" if none is known.
  std::function<std::string(Text key, Text word)> foreign_value = [](Text, Text) { return std::string(); };
};

struct Document;  // session/config/source.hpp

class Config {
 public:
  // Reads and validates `path` and `overrides`: "train.steps=10" sets a key, "-train.steps" removes the file's value.
  // Throws ConfigError with every problem at once.
  // Relative paths refer to `base_dir`, by default the file's folder.
  static Config load(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                     const SchemaSource& plugins, std::filesystem::path base_dir = {});
  // Like `load`, for text in memory; `name` stands for the file in messages.
  static Config parse(const std::string& text, const std::string& name, const std::filesystem::path& base_dir,
                      const std::vector<std::string>& overrides, const SchemaSource& plugins);

  // Like `parse`, for a text that was read without overrides: read_document (session/config/source.hpp).
  static Config resolve(const Document& read, const std::string& text, const std::string& name,
                        const std::filesystem::path& base_dir, const std::vector<std::string>& overrides,
                        const SchemaSource& plugins);

  const Section& section(const std::string& name) const;  // every section exists; absent ones have defaults
  Section& section(const std::string& name);
  const std::vector<Section>& sections() const { return sections_; }
  const std::filesystem::path& base_dir() const { return base_dir_; }  // relative data paths refer to it
  const std::string& name() const { return name_; }                    // of the file
  const std::string& source() const { return source_; }                // the text as given
  const std::vector<std::string>& notes() const { return notes_; }
  // For planning, a file without [data] is enough. Throws ConfigError if `section` is absent but needed: its default
  // plugin was not found, or a key without a default is missing.
  void require(const std::string& section) const;
  bool has_data() const { return no_data_.empty(); }  // `require` accepts [data]

 private:
  static Config make(Document document, std::vector<Problem> problems, const std::string& text, const std::string& name,
                     const std::filesystem::path& base_dir, const SchemaSource& plugins);
  std::vector<Section> sections_;
  std::filesystem::path base_dir_;
  std::string source_;
  std::vector<std::string> notes_;
  std::string name_;
  std::vector<Problem> no_data_;  // why `require` refuses it
};

// The engine's own sections.
struct SectionSchema {
  std::string name;
  std::string kind;  // of its plugin; "" if it has none
  Schema options;
  std::string names = "plugin";  // the key that names the plugin

  // True if the engine itself provides this: a value that `names` lists as a choice.
  bool built_in(const std::string& name) const;
};
const std::vector<SectionSchema>& section_schemas();
// The keys of each of [[optimizer.groups]], in addition to the plugin's keys that are marked per_group.
const Schema& group_options();
// The keys of each entry of [[observers]], [[transforms]] or [[data.sources]] beside its plugin's; nullptr for others.
const Schema* entry_keys(const std::string& section);
// The kind of their plugins: "eng.observer/1".
std::string entry_kind(const std::string& section);
// An entry with every key of the engine and of its plugin.
Section entry_section(const std::string& section, const Table& given, const PluginSchema& plugin);
// True if a directory can have this name: UTF-8 without '/' and control characters, neither "." nor "..".
bool is_run_name(const std::string& name);
// Gives the keys of [offload] that are not given the values that follow from the others.
void derive_offload(Section& offload);
// The engine's keys and those of `plugin`, if any. The plugin may give an engine's key (such as learning_rate) another
// default. A plugin in the place of something built in has its own keys beside the one that names it, and no others.
Schema merged(const SectionSchema& section, const PluginSchema* plugin);
// Lets keys with `names` (engine/plugin.h) have the names of that kind, and adds the options of the one that is named,
// where the section has no such key. `value` gives the value of a key, or "".
void add_named(Schema& options, const SchemaSource& plugins,
               const std::function<std::string(const std::string& key)>& value);
// Like `merged`; in [offload] also the options of every tier, none of them required.
Schema keys_of(const SectionSchema& section, const PluginSchema* plugin, const SchemaSource& plugins);
// True if it is a key of the engine's own in that section.
bool is_engine_key(const std::string& section, const std::string& key);
// Gives [offload] the options of the tiers on which its states are, with their defaults, where it lacks them.
void complete_offload(Section& offload, const SchemaSource& plugins);

}  // namespace eng
