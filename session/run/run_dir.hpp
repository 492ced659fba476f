// SPDX-License-Identifier: Apache-2.0
// The directory of one run: its layout, its lock and its state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "session/file.hpp"
#include "session/held_folder.hpp"
#include "session/json.hpp"
#include "session/ranks/log.hpp"
#include "session/report/metrics.hpp"
#include "session/stamp.hpp"

namespace eng {

// run.json; null if it cannot be read.
Json read_run_json(const std::filesystem::path& run);
// The records of the attempts that run.json holds, oldest first. If it does not say how the last one ended, its process
// was killed: state.json tells how far it came.
Json earlier_attempts(const std::filesystem::path& run);
// Renames every checkpoint of a step after `step` to "aside-step-N", damaged or not. A run that is resumed from `step`
// must not find them again. Throws Error(Exit::disk).
inline constexpr const char* checkpoints_folder = "checkpoints";
inline constexpr const char* aside_prefix = "aside-";
void set_aside_newer(const std::filesystem::path& checkpoints, int64_t step);

// For a run whose process has ended. If state.json says "running" or "failed", writes "failed" and the newest complete
// checkpoint. Returns the checkpoint's name, or "" if there is none. Never throws.
std::string settle(const std::filesystem::path& run, int exit_code) noexcept;

class RunDir {
 public:
  // A new root/name/YYYYMMDD-HHMMSS-xxxx (UTC and four random digits).
  static RunDir create(const std::filesystem::path& root, const std::string& name);
  // `directory` itself: new, empty, or a run, which is then resumed. Throws Error(Exit::usage) for anything else.
  static RunDir at(const std::filesystem::path& directory);
  // `directory` must be a run.
  static RunDir open(const std::filesystem::path& directory);
  static bool is_run(const std::filesystem::path& directory);
  // All three lock the directory and LOCK in it until the object is destroyed: a second process gets an
  // Error(Exit::usage) with host and pid. All that is written later goes into this directory, wherever it is moved.

  // 1 for a new run; increased each time the run is opened.
  int64_t attempt() const { return attempt_; }
  const HeldFolder& folder() const { return folder_; }
  const std::filesystem::path& path() const { return folder_.path(); }
  // Its folder of this name; throws Error(Exit::disk) as HeldFolder does.
  const HeldFolder& checkpoints() const { return checkpoints_; }
  std::filesystem::path metrics() const { return folder_.inside() / "metrics.jsonl"; }

  // Replaces one of its files as a whole. Throws Error(Exit::disk).
  void write(const char* name, std::string_view text) const { write_atomic(folder_.inside() / name, text); }
  // state.json, and in run.json how the attempt ended. `status`: running, done, stopped, failed; `last_checkpoint`: ""
  // if none is complete; `why`: of an end before the last step.
  void write_state(const char* status, int64_t step, const std::string& last_checkpoint, int exit_code,
                   const std::string& why = "") const;
  void log(const std::string& line) const noexcept { log_line(folder_.inside(), 0, line); }

 private:
  explicit RunDir(std::filesystem::path path);
  HeldFolder folder_;
  Fd lock_;
  HeldFolder checkpoints_;
  int64_t attempt_ = 1;
};

}  // namespace eng
