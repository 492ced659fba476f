// SPDX-License-Identifier: Apache-2.0
// Finding plugins, reading their descriptions without running them, loading them once and for ever.
#pragma once

#include <filesystem>
#include <functional>
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

// A file that was looked at. `refused` says why it is not used ("" if it is). `shadowed` lists what it
// provides but an earlier file provides too: "eng.optimizer/1 'adamw' is shadowed by PATH".
struct Candidate {
  std::filesystem::path path;
  Description description;
  std::string refused;
  std::vector<std::string> shadowed;
};

// Receives what plugins log: their id, ENG_LOG_*, one line. Called on any thread, one call at a time. Without
// one, lines are dropped.
using PluginLog = std::function<void(const std::string& id, int32_t level, const std::string& text)>;
void set_plugin_log(PluginLog log);

// Stops every started plugin, in reverse order; their code stays mapped. Nothing can be loaded from them
// afterwards. Runs by itself when the process exits.
void stop_plugins();

class Registry {
 public:
  struct Search {
    std::vector<std::filesystem::path> extra;  // --plugin-path, before all others
    bool environment = true;                   // ENGINE_PLUGIN_PATH and XDG_DATA_HOME
  };
  // Scans the search path; runs no plugin code and never throws for a bad file.
  static std::unique_ptr<Registry> scan(const Search& search);
  ~Registry();  // plugins stay loaded and started for the next registry: see stop_plugins

  const std::vector<std::filesystem::path>& places() const;  // in search order, also those that do not exist
  const std::vector<Candidate>& candidates() const;
  const Provided* find(const std::string& kind, const std::string& name) const;
  const Candidate* provider(const std::string& kind, const std::string& name) const;
  // Every file that provides it. Of most kinds the first one wins, and is the only one; kernels for one
  // device type (eng.kernels/1) may come from many.
  std::vector<const Candidate*> providers(const std::string& kind, const std::string& name) const;
  std::vector<std::string> names(const std::string& kind) const;  // sorted
  // Why there is no such plugin: the places looked, why each candidate was refused, what there is instead.
  std::string explain(const std::string& kind, const std::string& name) const;
  SchemaSource schemas() const;  // borrows this registry
  // Refuses a plugin file whose sha256 differs from the pinned one ([plugins] sha256, "id=hex"). Throws
  // Error(Exit::usage) for a malformed pin and for an id that no plugin has.
  void pin(const std::vector<std::string>& hashes);

  // Loads the plugin on first use and returns the normalised copy of its table: fields the plugin does
  // not know are zero. Throws Error(Exit::environment) naming the file and the reason.
  // `first_size` is the size of the struct's 1.0 version (fewer bytes are refused). A table is two 32-bit
  // numbers, then pointers; one of the first version that is NULL is refused too.
  template <class Table>
  Table table(const std::string& kind, const std::string& name, uint32_t first_size = sizeof(Table)) {
    Table out{};
    copy_table(the_provider(kind, name), kind, name, &out, sizeof(Table), first_size);
    return out;
  }
  // The same for every provider, in search order.
  template <class Table>
  std::vector<Table> tables(const std::string& kind, const std::string& name, uint32_t first_size = sizeof(Table)) {
    std::vector<Table> out;
    for (const Candidate* candidate : providers(kind, name))
      copy_table(*candidate, kind, name, &out.emplace_back(), sizeof(Table), first_size);
    return out;
  }
  // Every plugin this registry loaded: the identity of a run. `warning` says what it did to the process
  // while it was loaded (floating-point mode, locale, signal handlers) and was undone; mostly "".
  struct Loaded {
    std::string id, version, path, sha256, warning;
  };
  std::vector<Loaded> loaded() const;

 private:
  Registry();
  const Candidate& the_provider(const std::string& kind, const std::string& name) const;
  void copy_table(const Candidate& from, const std::string& kind, const std::string& name, void* out, uint32_t size,
                  uint32_t first_size);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace eng
