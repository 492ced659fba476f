// SPDX-License-Identifier: Apache-2.0
// Complete or not there: a checkpoint is written under a temporary name, made durable, its manifest last, and
// then renamed. Loading checks every byte.
//
//   checkpoints/step-00000100/manifest.json            core/checkpoint/manifest.hpp
//                             model-00000.safetensors  parameters under their own names
//                             optim-00000.safetensors  NAME.STATE for every optimizer state
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint/manifest.hpp"

namespace eng {

inline constexpr const char* kParameterRole = "parameter";

// Elements [first, first + count) of a tensor on their way to or from `host`.
using Read = std::function<void(const TensorSpec& tensor, uint64_t first, uint64_t count, void* host)>;
using Fill = std::function<void(const TensorSpec& tensor, uint64_t first, uint64_t count, const void* host)>;

struct Saved {
  std::filesystem::path path;
  uint64_t bytes = 0;
  double seconds = 0;
};

// Writes checkpoints/step-NNNNNNNN, which must not exist. On failure nothing of it remains, all older
// checkpoints are as they were, and Error(Exit::disk) names the file, the bytes needed and the bytes free.
// The caller holds the run's lock: leftovers of an earlier process are removed. Elements pass through `staging`, of
// 16 bytes at least; without it a few MiB are taken for the duration of the call.
Saved save_checkpoint(const std::filesystem::path& checkpoints, const RunPoint& point,
                      const std::vector<TensorSpec>& tensors, const Read& read, std::span<char> staging = {});

// Bytes that such a save takes on disk, up to the manifest: for `check` and the disk plan.
uint64_t checkpoint_bytes(const std::vector<TensorSpec>& tensors);

// Fills exactly the expected tensors, in any order, each element once; without `fill` only what needs no data is
// checked. With `only_role` nothing else of the checkpoint counts. Throws Error(Exit::checkpoint) naming the file
// or tensor if anything is damaged, missing, unexpected, or of another type or shape; memory may then be partly
// filled.
RunPoint load_checkpoint(const std::filesystem::path& directory, const std::vector<TensorSpec>& expected,
                         const Fill& fill, std::span<char> staging = {}, const std::string& only_role = "");

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
// Reads its manifest and headers, or, with `every_byte`, all of it.
CheckpointRow inspect_checkpoint(const std::filesystem::path& path, bool every_byte);
// The checkpoints in a folder, oldest first; an absent folder has none.
std::vector<CheckpointRow> list_checkpoints(const std::filesystem::path& checkpoints, bool every_byte = false);

// The newest checkpoint whose every byte is as written, and each newer one that was refused. No `path` but
// something in `refused`: there are checkpoints and none is usable, which is no fresh run.
struct Found {
  std::optional<std::filesystem::path> path;
  std::vector<CheckpointRow> refused;
};
Found find_latest(const std::filesystem::path& checkpoints);

// Removes complete checkpoints but the newest `keep` (0: all are kept); incomplete ones are left to look at.
void collect_checkpoints(const std::filesystem::path& checkpoints, int64_t keep);
// Renames every checkpoint of a step behind `step` to "aside-step-N": a run that goes on from `step` leaves that
// future, damaged or not, and must not find it again.
void set_aside_newer(const std::filesystem::path& checkpoints, int64_t step);
// Removes what an earlier process left half written. Only under the run's lock.
void remove_leftovers(const std::filesystem::path& checkpoints);

}  // namespace eng
