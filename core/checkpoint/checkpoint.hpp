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
#include <string>
#include <vector>

#include "core/checkpoint/manifest.hpp"

namespace eng {

inline constexpr const char* kParameterRole = "parameter";

// A logical tensor to save. `read` copies elements [first, first + count) to `host`; where the elements already
// lie in host memory, `host` points at them and `read` is empty.
struct TensorRef {
  std::string name;
  std::string role;  // kParameterRole or the optimizer state's name
  int32_t dtype = 0;
  std::vector<int64_t> shape;
  std::function<void(void* host, uint64_t first, uint64_t count)> read;
  const void* host = nullptr;
};

// A logical tensor that must be loaded.
struct TensorSpec {
  std::string name, role;
  int32_t dtype = 0;
  std::vector<int64_t> shape;
};

// Memory through which elements pass. The caller may give it (then saving and loading take no more than a few
// pages beside it); otherwise `bytes` are taken for the duration of the call.
struct Staging {
  void* data = nullptr;
  uint64_t bytes = uint64_t(64) << 20;
};

struct Saved {
  std::filesystem::path path;
  uint64_t bytes = 0;
  double seconds = 0;
};

// Writes checkpoints/step-NNNNNNNN, replacing one of the same step. On failure nothing of it remains, all older
// checkpoints are as they were, and Error(Exit::disk) names the file, the bytes needed and the bytes free.
// The caller holds the run's lock: leftovers of an earlier process are removed.
Saved save_checkpoint(const std::filesystem::path& checkpoints, const RunPoint& point,
                      const std::vector<TensorRef>& tensors, Staging staging = {});

// Bytes that such a save takes on disk, up to the manifest: for `check` and the disk plan.
uint64_t checkpoint_bytes(const std::vector<TensorSpec>& tensors);

// Called with elements [first, first + count) of one expected tensor, in any order, each element exactly once.
using Fill = std::function<void(const TensorSpec& tensor, uint64_t first, uint64_t count, const void* data)>;

// Fills exactly the expected tensors. Throws Error(Exit::checkpoint) naming the file or tensor if anything is
// damaged, missing, unexpected, or of another type or shape; memory may then be partly filled.
RunPoint load_checkpoint(const std::filesystem::path& directory, const std::vector<TensorSpec>& expected,
                         const Fill& fill, Staging staging = {});

// Reads and checks every byte. Throws Error(Exit::checkpoint).
Manifest verify_checkpoint(const std::filesystem::path& directory, Staging staging = {});

}  // namespace eng
