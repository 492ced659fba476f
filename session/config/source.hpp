// SPDX-License-Identifier: Apache-2.0
// Internals of the configuration: the values of the file and the overrides, and their problems.
#pragma once

#include <set>

#include "session/config/config.hpp"

namespace eng {

inline constexpr std::size_t max_config_bytes = std::size_t{1} << 20;

struct Given {
  Value value;
  std::string odd;        // what it is, if it is not a possible Value: "a date or time", "a table", ...
  TextRange key, place;   // of the key and of the value
  std::string text = {};  // the right side of an override
  bool held = false;      // a default written by a resolved text, not given by the user
};

struct Document {
  struct Part {
    TextRange header;  // none if only overrides mention it
    std::map<std::string, Given> keys;
  };
  std::map<std::string, Part> parts;  // by section; "": keys outside any section
  bool resolved = false;              // the text of a run, which has every key
  std::set<std::string> removed;      // "section.key", by overrides
  std::vector<std::string> notes;

  // nullptr if it is absent.
  const Part* find(const std::string& section) const;
  const Given* find(const std::string& section, const std::string& key) const;
  // nullptr also if it is of another type.
  template <class T>
  const T* value(const std::string& section, const std::string& key) const {
    const Given* given = find(section, key);
    return given ? std::get_if<T>(&given->value) : nullptr;
  }
};

using Problems = std::vector<Problem>;
// Adds everything that cannot be read to `problems`.
Document read_document(const std::string& text, const std::vector<std::string>& overrides, Problems& problems);
// Applies overrides and removals to a document: see Config::load.
void take_overrides(const std::vector<std::string>& overrides, Document& document, Problems& problems);
// A text by itself; `name` stands for its file. Throws ConfigError.
Document read_document(const std::string& text, const std::string& name);
// Reads a file as read_document reads a text. Throws ConfigError, or Error(Exit::usage) if it cannot be read.
Document read_document(const std::filesystem::path& file);

// The text of a run, `file`, which it wrote with every key. Throws Error(Exit::usage) also if it was cut off: the keys
// that it lacks would silently get defaults.
Document read_resolved(const std::string& text, const std::filesystem::path& file);
Document read_resolved(const std::filesystem::path& file);

// The faults in the entries of [[SECTION]], which stand at `place`; converts their values. `shared`: of
// [[data.sources]], the section [data], which has what an entry lacks.
Problems entry_problems(const std::string& section, Tables& entries, const TextRange& place,
                        const SchemaSource& plugins, const Document::Part* shared = nullptr);

// Removes the options of tiers that hold no state from the settings of [offload], unless they are given. Returns what
// is wrong with those that stay.
Problems keep_tier_options(std::map<std::string, Setting>& offload, const Document& document,
                           const SchemaSource& plugins);
// The tier that a state of [offload] names and that no plugin provides, if an option of it would be called `key`; else
// "".
std::string absent_tier(const std::string& key, const Document& document, const SchemaSource& plugins);

// Moves keys that older engines had elsewhere: model.z_loss is loss.z_loss, unless the plugin `model` has a key z_loss.
void move_old_keys(Document& document, const std::string& model, const SchemaSource& plugins, Problems& problems);

// A key of a plugin that is newer than a run.
struct Newer {
  std::string section, key;
  Value before;  // that computes what the run did
};
// Gives a resolved text the keys that its plugins have got since, if their defaults would change its numbers. Returns
// these. What an override removed stays away, and a plugin that an override names has its defaults.
std::vector<Newer> keep_old_values(Document& document, const SchemaSource& plugins);

// [adapter] with its keys becomes the one entry of [[transforms]]; both at once are a problem.
void move_adapter(Document& document, Problems& problems);

// Rules between keys, and values derived from others. Sections in `broken` already have problems; rules about them are
// skipped.
void apply_rules(const Document& document, const std::set<std::string>& broken, Config& config, Problems& problems,
                 std::vector<std::string>& notes);

}  // namespace eng
