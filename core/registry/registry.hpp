// SPDX-License-Identifier: Apache-2.0
// Finding plugins, reading their descriptions without running them, loading them once and for ever.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/config/config.hpp"
#include "engine/plugin.h"

namespace eng {

// One thing a plugin provides.
struct Provided {
  std::string kind;  // "eng.optimizer/1"
  std::string name;  // "adamw"
  std::string summary;
  PluginSchema schema;
};

// The description in section .eng_plugin.
struct Description {
  std::string draft, id, name, version, license, summary;
  std::vector<Provided> provides;
  std::string text;  // verbatim
};

// A file that was looked at. `refused` says why it is not used ("" if it is).
struct Candidate {
  std::filesystem::path path;
  Description description;
  std::string refused;
};

class Registry {
 public:
  struct Search {
    std::vector<std::filesystem::path> extra;  // --plugin-path, before all others
    bool environment = true;                   // ENGINE_PLUGIN_PATH and XDG_DATA_HOME
  };
  // Scans the search path; runs no plugin code and never throws for a bad file.
  static std::unique_ptr<Registry> scan(const Search& search);
  ~Registry();  // stops every started plugin, in reverse order; code stays mapped

  const std::vector<std::filesystem::path>& places() const;
  const std::vector<Candidate>& candidates() const;
  const Provided* find(const std::string& kind, const std::string& name) const;
  const Candidate* provider(const std::string& kind, const std::string& name) const;
  std::vector<std::string> names(const std::string& kind) const;
  std::string explain(const std::string& kind, const std::string& name) const;
  SchemaSource schemas() const;
  // Refuses a plugin file whose sha256 differs from the pinned one ([plugins] sha256, "id=hex").
  void pin(const std::vector<std::string>& hashes);

  // Loads the plugin on first use and returns the normalised copy of its table: fields the plugin does
  // not know are zero. Throws Error(Exit::environment) naming the file and the reason.
  // `first_size` is the size of the struct's 1.0 version (fewer bytes are refused).
  template <class Table>
  Table table(const std::string& kind, const std::string& name, uint32_t first_size = sizeof(Table)) {
    Table out{};
    copy_table(kind, name, &out, sizeof(Table), first_size);
    return out;
  }
  // Every loaded plugin: id, version, path, sha256: the identity of a run.
  struct Loaded {
    std::string id, version, path, sha256;
  };
  std::vector<Loaded> loaded() const;

 private:
  Registry();
  void copy_table(const std::string& kind, const std::string& name, void* out, uint32_t size, uint32_t first_size);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace eng
