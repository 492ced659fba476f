// SPDX-License-Identifier: Apache-2.0
// The plugins that were found, by kind and name. Each is loaded on first use, once, until the process ends.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "core/config/plugin_schema.hpp"
#include "core/config/section.hpp"
#include "engine/comm.h"
#include "engine/data.h"
#include "engine/device.h"
#include "engine/job.h"
#include "engine/loss.h"
#include "engine/observer.h"
#include "engine/plugin.h"
#include "engine/policy.h"
#include "engine/tier.h"
#include "engine/transform.h"

namespace eng {

// Bytes of a table that every plugin has; the pointers among them are not NULL. What follows is optional.
template <class Table>
constexpr uint32_t required_bytes = [] {
  if constexpr (std::is_same_v<Table, eng_comm>) return offsetof(eng_comm, overhead_bytes);
  if constexpr (std::is_same_v<Table, eng_data>) return offsetof(eng_data, build);
  if constexpr (std::is_same_v<Table, eng_device>) return offsetof(eng_device, queue_create);
  if constexpr (std::is_same_v<Table, eng_job>) return offsetof(eng_job, site);
  if constexpr (std::is_same_v<Table, eng_observer>) return offsetof(eng_observer, after_step);
  if constexpr (std::is_same_v<Table, eng_axis>) return offsetof(eng_axis, states);
  if constexpr (std::is_same_v<Table, eng_transform>) return offsetof(eng_transform, flags);
  if constexpr (std::is_same_v<Table, eng_tier>) return offsetof(eng_tier, host_bytes);
  return sizeof(Table);
}();

// True if a file with this eng_plugin.draft_id can be used. The last draft before the freeze has the tables of 1.0.
constexpr bool speaks(std::string_view draft_id) {
  return draft_id == ENG_ABI_DRAFT_ID || draft_id == "draft-9";
}

// One thing a plugin provides.
struct Provided {
  std::string kind;  // "eng.optimizer/1"
  std::string name;  // "adamw"
  std::string summary;
  PluginSchema schema;
  std::string refused = {};  // why the engine cannot use it; "" if it can
  std::string draft = {};    // "eng.optimizer/1-draft6", of which it was built; "" if it states none
  std::string old = {};      // says that this is the draft before the engine's, which is accepted; "" if it is not
  std::vector<std::string> changed_ops = {};  // changed since that draft: its kernels of these are not used
  Preset facts = {};                          // what its description says besides: `least_arch`, `devices`, `fallback`
  std::optional<Preset> fit = {};             // [provides.fit]
};

// The description in section .eng_plugin.
struct Description {
  std::string id, name, version, license, summary;
  std::vector<Provided> provides;
  std::string text;                    // verbatim
  std::vector<std::string> uses = {};  // ops of other plugins that it emits
};

// A plugin file that was checked and stays open: what is hashed and loaded is what was read.
class PluginFile {
 public:
  virtual ~PluginFile() = default;
  virtual const std::string& path() const = 0;  // absolute, without symbolic links
  // Hash of the open file, in hexadecimal. Throws Error(Exit::environment) if it cannot be read.
  virtual std::string sha256() const = 0;
  // "" if path() leads to the open file, unchanged since it was opened, and only root and this user can alter that;
  // otherwise why not, and what to change.
  virtual std::string doubt() const = 0;
  // Help if the loader refuses the file: the libraries that it lacks, and how they are installed.
  virtual std::string missing() const = 0;
};

// A file found on the search path.
struct Candidate {
  std::filesystem::path path;  // as it was found
  Description description;
  std::string refused;                     // why none of it can be used; "" if some of it can
  std::vector<std::string> shadowed;       // what an earlier file provides as well: "... is shadowed by PATH"
  std::shared_ptr<const PluginFile> file;  // nullptr if it is refused
};

// Receives what plugins log: their id, ENG_LOG_*, one line. Called on any thread, one call at a time. If loading a
// plugin changed process state (floats, locale, signal handlers), which is undone, it receives a warning.
using PluginLog = std::function<void(const std::string& id, int32_t level, const std::string& text)>;
void set_plugin_log(PluginLog log);

// Finds the extensions that plugins may ask for besides eng.threads/1: the table with this id, or nullptr.
using Extensions = const void* (*)(const std::string& id);
void set_extensions(Extensions find);

// Stops all started plugins, in reverse order; they cannot be used again. Also runs when the process exits.
void stop_plugins();
// True once plugins were stopped: from then on nothing that a plugin made may be used or given back.
bool plugins_stopped();

// Copies a table by the growth rules of engine/base.h; missing members become zero. Its first `required` bytes must
// be there, and hold pointers from byte 8 on, none of them NULL. Throws Error(Exit::environment) prefixed with
// `what`.
void copy_struct(const void* theirs, void* out, uint32_t size, uint32_t required, const std::string& what);

// Copies one entry of a list that a table points to. Throws like copy_struct; an entry smaller than Entry is refused.
template <class Entry>
void copy_entry(const Entry* theirs, Entry& out, const std::string& what) {
  if (!theirs || theirs->struct_size < sizeof(Entry))
    throw Error(
        Exit::environment,
        what + (theirs ? fmt::format(" states struct_size {}: the minimum is {}", theirs->struct_size, sizeof(Entry))
                       : " is NULL"),
        "rebuild the plugin with this engine's headers");
  out = *theirs;
}

// The entry of this kind and name in the file, or nullptr if there is none that is used.
const Provided* find_in(const Candidate& candidate, const std::string& kind, const std::string& name);

class Registry {
 public:
  explicit Registry(std::vector<std::filesystem::path> places) : places_(std::move(places)) {}
  // Adds a file. Of two with the same plugin id, or that provide the same thing, the earlier is used.
  void add(Candidate candidate);

  const std::vector<std::filesystem::path>& places() const { return places_; }  // searched, existing or not
  const std::vector<Candidate>& candidates() const { return candidates_; }
  const Provided* find(const std::string& kind, const std::string& name) const;
  // The file that provides it: the first one wins. Kernels of one device (eng.kernels/1) may come from several files.
  std::vector<const Candidate*> providers(const std::string& kind, const std::string& name) const;
  std::vector<std::string> names(const std::string& kind) const;  // sorted
  std::string refused_file(const std::string& name) const;        // "PATH: why not; " of the file NAME.eng.so, or ""
  // Pins the plugin `id` to a sha256 in lowercase: a file with another one is not loaded. The error then names `by`,
  // and its help is `help`.
  struct Pin {
    std::string hash, by, help;
  };
  void pin(const std::string& id, const Pin& to) { pins_[id] = to; }

  // Loads the plugin on first use; for `required` see copy_struct. Throws Error(Exit::environment) with the file and
  // the reason.
  template <class Table>
  Table table(const std::string& kind, const std::string& name, uint32_t required = required_bytes<Table>) {
    const auto all = providers(kind, name);
    if (all.empty())
      throw Error(Exit::environment, "no plugin provides " + kind + " '" + name + "'",
                  refused_file(name) + "engine plugins ls --why");
    return table_of<Table>(*all.front(), kind, name, required);
  }
  // The table of one given provider.
  template <class Table>
  Table table_of(const Candidate& from, const std::string& kind, const std::string& name,
                 uint32_t required = required_bytes<Table>) {
    Table out;
    copy_table(from, kind, name, &out, sizeof(Table), required);
    return out;
  }
  // The providers that are loaded already, each with the names that it provides.
  std::vector<std::pair<const Candidate*, std::string>> loaded_providers(const std::string& kind) const;
  // The plugins that this registry has loaded; a run records them.
  struct Loaded {
    std::string id, version, path, sha256;
  };
  const std::vector<Loaded>& loaded() const { return loaded_; }

 private:
  void copy_table(const Candidate& from, const std::string& kind, const std::string& name, void* out, uint32_t size,
                  uint32_t required);
  std::vector<std::filesystem::path> places_;
  std::vector<Candidate> candidates_;
  std::map<std::string, Pin> pins_;  // by id
  std::vector<Loaded> loaded_;
};

}  // namespace eng
