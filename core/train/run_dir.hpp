// SPDX-License-Identifier: Apache-2.0
// The directory of one run: its layout, its lock, its identity and its state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/manifest.hpp"

namespace eng {

// state.json. `status`: running, done, stopped, failed; "unknown" if the file was damaged by others.
struct RunState {
  std::string status = "running";
  int64_t step = 0;
  std::string last_checkpoint;  // "step-00000100", "" if none is complete
  int exit_code = 0;
  int64_t attempt = 1;  // this and `updated` are filled in when written
  std::string updated;
};

// run.json: what would have to be the same for the run to be the same.
struct RunIdentity {
  std::string version, commit, build, command;
  std::vector<RunPoint::Plugin> plugins;
  std::string data_hash, model_hash, config_hash;
  std::map<std::string, uint64_t> seeds;
  int64_t ranks = 1;
  std::vector<std::string> hosts;
  std::map<std::string, std::string> extra;
};

class RunDir {
 public:
  // A new root/name/YYYYMMDD-HHMMSS-xxxx (UTC and four random digits).
  static RunDir create(const std::filesystem::path& root, const std::string& name);
  // `directory` itself: new or empty, or a run, which then goes on. Throws Error(Exit::usage) for anything else.
  static RunDir at(const std::filesystem::path& directory);
  // `directory` must be a run.
  static RunDir open(const std::filesystem::path& directory);
  static bool is_run(const std::filesystem::path& directory);

  // All three hold LOCK until the object goes: a second process gets Error(Exit::usage) naming host and pid.
  ~RunDir();
  RunDir(RunDir&& other) noexcept;
  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;

  // The state found on opening; nullopt for a new run. The object continues it with the next attempt.
  const std::optional<RunState>& previous() const { return previous_; }
  int64_t attempt() const { return previous_ ? previous_->attempt + 1 : 1; }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }

  // Each replaces its file whole. Throw Error(Exit::disk).
  void write_config(const std::string& given, const std::string& resolved) const;
  void write_plan(const std::string& text) const;
  void write_identity(const RunIdentity& identity) const;
  void write_state(RunState state) const;
  // Appends a line with the time to logs/rank-00000.log. Never throws: it is also the last thing an error does.
  void log(const std::string& line) const noexcept;

 private:
  explicit RunDir(std::filesystem::path path);
  void lock();
  std::filesystem::path path_;
  std::optional<RunState> previous_;
  int lock_ = -1;
  int log_ = -1;
};

// "20261120-132005" or, with `full`, "2026-11-20T13:20:05Z".
std::string utc_now(bool full);

}  // namespace eng
