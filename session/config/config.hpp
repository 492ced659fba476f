// SPDX-License-Identifier: Apache-2.0
// The resolved configuration: every key of every section, typed, with its origin.
#pragma once

#include <filesystem>
#include <functional>

#include "core/config/plugin_schema.hpp"
#include "core/config/section.hpp"
#include "session/config/problems.hpp"

namespace eng {

// What another trainer calls a key or a section of ours.
struct Foreign {
  std::string whose;           // "DeepSpeed's"
  std::string here = {};       // "train.steps" or "[zero]"; "" where nothing here does the same
  std::string write = {};      // what to type where the value is known as well: "zero.plugin = \"zero3\""
  std::string plugin = {};     // of `here`, the plugin that `write` names
  bool same = false;           // the value means the same here
  bool part_of_steps = false;  // the value is a part of train.steps, and here a number of steps
  std::string why = {};        // what else there is to know
};

// What [model] from = "DIR" says of the model.
struct ModelSource {
  std::filesystem::path file;               // where it is written; empty if nowhere
  std::map<std::string, Setting> settings;  // of [model]: `plugin` and the plugin's options
  std::vector<std::string> notes;           // keys that nobody knows
};

// What the configuration asks others: of plugins, which are not loaded for it, and of weights.
struct SchemaSource {
  using Text = const std::string&;
  // nullptr if there is none.
  std::function<const PluginSchema*(Text kind, Text name)> find = [](Text, Text) { return nullptr; };
  std::function<std::vector<std::string>(Text kind)> names = [](Text) { return std::vector<std::string>(); };
  // Where was looked, and why each candidate was refused: printed when `find` fails.
  std::function<std::string(Text kind, Text name)> explain = [](Text, Text) { return std::string(); };
  // Is called first, with [plugins] path made absolute; may replace the other members.
  std::function<void(const std::vector<std::filesystem::path>& folders)> look_in = [](const auto&) {};
  // [model] from: reads what the directory says of its model. `plugin` is that of [model], "" if none is named. Throws
  // Error(Exit::usage) that lists everything that is not supported.
  std::function<ModelSource(const std::filesystem::path& directory, Text plugin)> model_of =
      [](const auto&, Text) -> ModelSource { throw Error(Exit::usage, "`from` is not read here"); };
  // A name of another trainer. `section` is the one that it stands in, "" for a section's own name and outside of all.
  std::function<std::optional<Foreign>(Text section, Text name, const Value& value)> foreign =
      [](Text, Text, const Value&) -> std::optional<Foreign> { return std::nullopt; };
};

struct Document;  // session/config/source.hpp

class Config {
 public:
  // Reads and validates `path` and `overrides`: "train.steps=10" sets a key, "-train.steps" takes away what the file
  // says of it. Throws ConfigError with every problem at once.
  // Relative paths start at `base_dir`, by default the file's folder.
  static Config load(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                     const SchemaSource& plugins, std::filesystem::path base_dir = {});
  // The same for text in memory; `name` stands for the file in messages.
  static Config parse(const std::string& text, const std::string& name, const std::filesystem::path& base_dir,
                      const std::vector<std::string>& overrides, const SchemaSource& plugins);

  // The same for a text that was read without overrides: read_document (session/config/source.hpp).
  static Config resolve(const Document& read, const std::string& text, const std::string& name,
                        const std::filesystem::path& base_dir, const std::vector<std::string>& overrides,
                        const SchemaSource& plugins);

  const Section& section(const std::string& name) const;  // every section exists; absent ones hold defaults
  Section& section(const std::string& name);
  const std::vector<Section>& sections() const { return sections_; }
  const std::filesystem::path& base_dir() const { return base_dir_; }  // relative data paths start here
  const std::string& name() const { return name_; }                    // of the file
  const std::string& source() const { return source_; }                // the text as given
  const std::vector<std::string>& notes() const { return notes_; }
  // A file without [data] is good enough to plan with. Throws ConfigError if `section` is absent and
  // cannot do without: its default plugin was not found, or a key without a default is missing.
  void require(const std::string& section) const;

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

// The core's sections.
struct SectionSchema {
  std::string name;
  std::string kind;  // of its plugin; "" if it names none
  Schema options;
};
const std::vector<SectionSchema>& section_schemas();
// What each of [[optimizer.groups]] has beside the plugin's keys that are marked per_group.
const Schema& group_options();
// The core's keys and those of `plugin`, if any, which may give a core key (such as learning_rate) another default.
Schema merged(const SectionSchema& section, const PluginSchema* plugin);

}  // namespace eng
