// SPDX-License-Identifier: Apache-2.0
// Complete or not there: a checkpoint is written under a temporary name, made durable, its manifest last, and
// then renamed. Loading checks every byte.
//
//   checkpoints/step-00000100/manifest.json            session/checkpoint/manifest.hpp
//                             model-00000.safetensors  of rank 0: parameters under their own names
//                             optim-00000.safetensors  NAME.STATE for every optimizer state
//
// A part of a tensor is stored flat, as NAME[FIRST:END].
#pragma once

#include "session/checkpoint/safetensors.hpp"
#include "session/checkpoint/saver.hpp"

namespace eng {

// Fills exactly the ranges of the expected tensors, in any order, each element once, whatever ranges of how many ranks
// wrote them; without `fill` only what needs no data is checked. The ranks together read and check every byte; with
// `only_role` nothing else of the checkpoint counts. Throws Error(Exit::checkpoint), on all ranks alike, naming the
// file or tensor if anything is damaged, missing, unexpected, or of another shape; memory may then be partly filled.
// Between F32, BF16 and F16 values are converted; one that does not come back with its bits is refused as well, unless
// `round` allows to round it.
RunPoint load_checkpoint(const std::filesystem::path& directory, const std::vector<TensorShare>& expected,
                         const Fill& fill, std::span<char> staging = {}, const std::string& only_role = "",
                         const Peers& peers = {}, bool round = false);

// The files of a checkpoint, opened, with everything checked that needs no data to be read.
struct OpenCheckpoint {
  explicit OpenCheckpoint(const std::filesystem::path& directory);  // throws Error(Exit::checkpoint)
  // Elements of a tensor, as they lie on the disk; nothing is compared.
  void read(const ManifestTensor& tensor, uint64_t first, uint64_t count, void* out) const;

  Manifest manifest;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files;
};

inline constexpr const char* temporary_prefix = ".tmp-";  // of what is not complete yet
// "step-00000100", and back (nullopt for other names).
std::string checkpoint_name(int64_t step);
std::optional<int64_t> checkpoint_step(const std::filesystem::path& path);

// What is known of a checkpoint; `problem` is "" if it is good as far as it was read.
struct CheckpointRow {
  std::filesystem::path path;
  int64_t step = 0;
  uint64_t bytes = 0;
  uint64_t tensors = 0;
  std::string problem;
};
// Reads its manifest and headers, or, with `every_byte`, all of it, each rank a part; all get the same answer.
CheckpointRow inspect_checkpoint(const std::filesystem::path& path, bool every_byte, const Peers& peers = {});
// The checkpoints in a folder, oldest first; an absent folder has none.
std::vector<CheckpointRow> list_checkpoints(const std::filesystem::path& checkpoints, bool every_byte = false);

// The newest checkpoint whose every byte is as written, and each newer one that was refused. No `path` but
// something in `refused`: there are checkpoints and none is usable, which is no fresh run.
struct Found {
  std::optional<std::filesystem::path> path;
  std::vector<CheckpointRow> refused;
};
Found find_latest(const std::filesystem::path& checkpoints, const Peers& peers = {});

// Removes complete checkpoints but the newest `keep` (0: all are kept); incomplete ones are left to look at.
void collect_checkpoints(const std::filesystem::path& checkpoints, int64_t keep);
// Hides it first, so that a half-removed one is never seen under its name.
std::error_code remove_checkpoint(const std::filesystem::path& path);
// Removes what an earlier process left half written. Only under the run's lock.
void remove_leftovers(const std::filesystem::path& checkpoints);

}  // namespace eng
