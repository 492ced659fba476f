// SPDX-License-Identifier: Apache-2.0
// The resolved configuration: every key of every section, typed, with its origin.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/config/value.hpp"
#include "engine/base.h"

namespace eng {

// One section, complete: keys of the core's schema and of the section's plugin.
class Section {
 public:
  Section() = default;
  Section(std::string name, std::map<std::string, Setting> settings)
      : name_(std::move(name)), settings_(std::move(settings)) {}
  const std::string& name() const { return name_; }
  const std::map<std::string, Setting>& settings() const { return settings_; }
  bool has(const std::string& key) const;  // holds a value (given or default)
  // Throw Error(Exit::bug) for a key or type that the schema does not have.
  bool boolean(const std::string& key) const;
  int64_t integer(const std::string& key) const;  // also bytes
  double number(const std::string& key) const;    // also of an integer
  const std::string& string(const std::string& key) const;
  const std::vector<std::string>& strings(const std::string& key) const;
  const std::vector<double>& numbers(const std::string& key) const;
  // Replaces a value. Any origin but "default" and "derived" counts as given.
  void set(const std::string& key, Value value, std::string origin);

 private:
  const Setting& at(const std::string& key) const;
  std::string name_;
  std::map<std::string, Setting> settings_;
};

// A section as a plugin sees it. Borrows the section.
class Options {
 public:
  explicit Options(const Section& section);
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
  const eng_options* get() const { return &table_; }

 private:
  eng_options table_{};
};

// What the configuration asks the registry: the options and presets of plugin `name` of `kind`, without
// loading it; nullptr if there is none.
struct PluginSchema {
  Schema options;
  std::map<std::string, Preset> presets;
};
struct SchemaSource {
  std::function<const PluginSchema*(const std::string& kind, const std::string& name)> find;
  std::function<std::vector<std::string>(const std::string& kind)> names;
  // Where was looked, and why each candidate was refused: printed when `find` fails.
  std::function<std::string(const std::string& kind, const std::string& name)> explain;
};

class Config {
 public:
  // Reads and validates `path` and `overrides` ("train.steps=10"). Throws Error(Exit::usage) whose text
  // lists every problem at once, sorted by line, each with file:line:column, excerpt and nearest name.
  static Config load(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                     const SchemaSource& plugins);
  // The same for text in memory; `name` stands for the file in messages.
  static Config parse(const std::string& text, const std::string& name, const std::filesystem::path& base_dir,
                      const std::vector<std::string>& overrides, const SchemaSource& plugins);

  const Section& section(const std::string& name) const;  // every section exists; absent ones hold defaults
  Section& section(const std::string& name);
  const std::vector<Section>& sections() const { return sections_; }
  const std::filesystem::path& base_dir() const { return base_dir_; }  // relative data paths start here
  const std::string& source() const { return source_; }                // the text as given
  const std::vector<std::string>& notes() const { return notes_; }
  // A file without [data] is good enough to plan with. Throws Error(Exit::usage) if `section` is absent and
  // cannot do without: its default plugin was not found, or a key without a default is missing.
  void require(const std::string& section) const;

  // TOML with "# from: ..." behind every key; parses to the same configuration: the keys that hold a default
  // are listed in [resolved], so that they stay what they are, and stay "not given".
  std::string resolved() const;

 private:
  std::vector<Section> sections_;
  std::filesystem::path base_dir_;
  std::string source_;
  std::vector<std::string> notes_;
  std::map<std::string, std::string> missing_;  // section -> why `require` refuses it
};

// The largest configuration that is read.
inline constexpr std::size_t max_config_bytes = std::size_t{1} << 20;
// [plugins] path of a file that is otherwise not looked at: needed to find the schemas it is checked with.
// Empty if there is none or the file is bad (Config::load says why).
std::vector<std::string> plugin_paths(const std::filesystem::path& path, const std::vector<std::string>& overrides);

// "64MiB" -> 67108864; "24GB" -> 24000000000; plain integers are bytes. nullopt if malformed or too large.
std::optional<int64_t> parse_bytes(const std::string& text);
// 67108864 -> "64.0 MiB".
std::string format_bytes(double bytes);
// The candidate within a Damerau-Levenshtein distance of 2 (of 1 for names up to 4 letters), or "".
std::string nearest(const std::string& name, const std::vector<std::string>& candidates);
// All core sections, their keys, the kind of plugin each names ("" if none) and that plugin's default.
struct SectionSchema {
  std::string name;
  std::string kind;
  Schema options;
  std::string help;
};
const std::vector<SectionSchema>& section_schemas();
// Every section, key, type, range, default and help as a TOML file of comments, with the options and presets of
// every plugin known to `plugins`. `only`: names of sections or plugins; empty for all.
std::string schema_text(const SchemaSource& plugins, const std::vector<std::string>& only = {});
// A configuration to start from, for the preset of a model plugin.
std::string template_text(const std::string& plugin, const std::string& preset);

}  // namespace eng
