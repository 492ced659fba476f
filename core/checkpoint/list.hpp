// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a run: which are there, which is usable, which may go.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace eng {

// "step-00000100", and back (nullopt for other names).
std::string checkpoint_name(int64_t step);
std::optional<int64_t> checkpoint_step(const std::string& name);

// One row of `engine ckpt ls`. `problem` is "" if the manifest is whole and all files have their sizes; the
// bytes themselves are read by verify_checkpoint only.
struct CheckpointRow {
  std::filesystem::path path;
  int64_t step = 0;
  uint64_t bytes = 0;
  uint64_t tensors = 0;
  std::string problem;
};
// Oldest first; an absent directory has none.
std::vector<CheckpointRow> list_checkpoints(const std::filesystem::path& checkpoints);
// The rows as text, one line each.
std::string checkpoint_table(const std::vector<CheckpointRow>& rows);

struct Refused {
  std::filesystem::path path;
  std::string reason;
};
// The newest checkpoint whose every byte is as written, and each newer one that was refused with the reason.
// No `path` but something in `refused`: there are checkpoints and none is usable, which the caller must not
// take for a fresh run.
struct Found {
  std::optional<std::filesystem::path> path;
  std::vector<Refused> refused;
};
Found find_latest(const std::filesystem::path& checkpoints);

// Result lines of `engine ckpt verify DIR`, DIR being one checkpoint, a folder of them, or a run.
struct Verified {
  std::filesystem::path path;
  std::string problem;  // "" if good
};
std::vector<Verified> verify_all(const std::filesystem::path& directory);

// Removes complete checkpoints but the newest `keep` (0: all are kept), never `in_use` (the one being resumed)
// nor the only complete one; incomplete ones are left for people to look at. Returns what was removed.
std::vector<std::filesystem::path> collect_checkpoints(const std::filesystem::path& checkpoints, int64_t keep,
                                                       const std::filesystem::path& in_use = {});
// Renames every checkpoint of a step behind `step` to "aside-step-N": a run that goes on from `step` leaves that
// future, damaged or not, and must not find it again. Returns the new names.
std::vector<std::filesystem::path> set_aside_newer(const std::filesystem::path& checkpoints, int64_t step);
// Removes what an earlier process left half written. Call it before find_latest, and only under the run's lock.
void remove_leftovers(const std::filesystem::path& checkpoints);

}  // namespace eng
