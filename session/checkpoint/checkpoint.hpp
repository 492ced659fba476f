// SPDX-License-Identifier: Apache-2.0
// A checkpoint is either complete or absent: it is written under a temporary name, flushed to the disk with its
// manifest last, and then renamed. Loading checks every byte.
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

// Fills exactly the ranges of the expected tensors, in any order, each element once, whichever ranks wrote them.
// Without `fill`, checks only what needs no data. Together the ranks read and check every byte; with `only_role`, only
// tensors of that role and of policies. What a policy keeps of its own is not needed by a run with another policy, and
// not asked of a checkpoint of one: it is left out, or not filled. An optional tensor that the checkpoint lacks is not
// filled either. If anything else is damaged, missing, unexpected, or of another type or shape, throws the same
// Error(Exit::checkpoint) on all ranks, naming the file or tensor; memory may then be partly filled. Between F32, BF16
// and F16 values are converted. A value that would not come back with its bits is refused as well, unless `round`
// allows rounding.
RunPoint load_checkpoint(const std::filesystem::path& directory, const std::vector<TensorShare>& expected,
                         const Fill& fill, std::span<char> staging = {}, const std::string& only_role = "",
                         const Peers& peers = {}, bool round = false);

// The opened files of a checkpoint. Everything that needs no data is checked.
struct OpenCheckpoint {
  explicit OpenCheckpoint(const std::filesystem::path& directory);  // throws Error(Exit::checkpoint)
  // Elements of a tensor as they are on the disk; checksums are not compared.
  void read(const ManifestTensor& tensor, uint64_t first, uint64_t count, void* out) const;

  Manifest manifest;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files;
};

inline constexpr const char* temporary_prefix = ".tmp-";  // of incomplete checkpoints
// "step-00000100", and back (nullopt for other names).
std::string checkpoint_name(int64_t step);
std::optional<int64_t> checkpoint_step(const std::filesystem::path& path);

// The known facts about a checkpoint; `problem` is "" if no damage was found in what was read.
struct CheckpointRow {
  std::filesystem::path path;
  int64_t step = 0;
  uint64_t bytes = 0;
  uint64_t tensors = 0;
  std::string problem;
  int64_t best_step = -1;  // of the run when it was saved, with checkpoint.best; -1: not known
  bool best = false;       // in a list: this is the best one of the run, by the newest undamaged one
};
// Reads its manifest and headers, or, with `every_byte`, all of it, each rank a part. All ranks get the same answer.
CheckpointRow inspect_checkpoint(const std::filesystem::path& path, bool every_byte, const Peers& peers = {});
// The checkpoints in a folder, oldest first; an absent folder has none.
std::vector<CheckpointRow> list_checkpoints(const std::filesystem::path& checkpoints, bool every_byte = false);

// The newest undamaged checkpoint, and each newer one that was refused. Without `path` but with entries in `refused`,
// there are checkpoints but none is usable: this is not a new run.
struct Found {
  std::optional<std::filesystem::path> path;
  size_t tensors = 0;  // in it
  std::vector<CheckpointRow> refused;
};
Found find_latest(const std::filesystem::path& checkpoints, const Peers& peers = {});

// The best of a list; none if no checkpoint says it, or it is not there.
std::optional<std::filesystem::path> best_checkpoint(const std::vector<CheckpointRow>& rows);
// Removes complete checkpoints except the newest `keep` (0: all are kept) and the best one. Incomplete ones are not
// removed.
void collect_checkpoints(const std::filesystem::path& checkpoints, int64_t keep);
// Renames it first, so that a partly removed checkpoint is never seen under its name.
std::error_code remove_checkpoint(const std::filesystem::path& path);
// Removes what an earlier process left incomplete. Only under the run's lock.
void remove_leftovers(const std::filesystem::path& checkpoints);

}  // namespace eng
