// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints: all ranks write their own files at the same time, while the run waits or while it continues.
#pragma once

#include <optional>

#include "core/config/section.hpp"
#include "session/checkpoint/share.hpp"

namespace eng {

struct Saved {
  std::filesystem::path path;
  uint64_t bytes = 0;  // of all ranks
  double seconds = 0;  // for which the caller waited
  bool best = false;   // of the run so far, with checkpoint.best
};

// One checkpoint at a time. All ranks call all functions in the same order, on the thread that may exchange. On failure
// nothing of the checkpoint remains, older checkpoints are unchanged, and every rank throws the same Error. Exit::disk
// names the file, the bytes needed and the bytes free.
class Saver {
 public:
  // Saves into checkpoints/step-NNNNNNNN and keeps the newest `keep` (0: all). The caller holds the run's lock, so
  // incomplete files of an earlier process are removed. `asynchronous`: begin() copies what this rank writes into
  // snapshot_bytes() of memory, kept from one save to the next, and a thread writes it from there.
  Saver(std::filesystem::path checkpoints, int64_t keep, bool asynchronous, Peers peers = {});
  ~Saver();  // abandons an unfinished checkpoint

  // Reserves the space of all files and takes the snapshot. An earlier checkpoint must be finished. If not
  // asynchronous, `read` and `staging` (at least 16 bytes; if empty, a few MiB are allocated) are used until finish().
  void begin(const RunPoint& point, const std::vector<TensorShare>& tensors, const Read& read,
             std::span<char> staging = {});
  // Between two steps: finishes the current checkpoint if the files of all ranks are written.
  std::optional<Saved> poll();
  // Waits for the current checkpoint, if any, and gives it its name.
  std::optional<Saved> finish();

 private:
  struct Job;
  void write(Job& job) const;
  std::string still(const char* what) const;
  void give_up();

  std::filesystem::path checkpoints_;
  int64_t keep_;
  bool asynchronous_;
  Peers peers_;
  std::unique_ptr<char[]> snapshot_;
  uint64_t snapshot_bytes_ = 0;
  std::unique_ptr<Job> job_;
};

// True if a run with this [checkpoint] saves nothing by itself.
bool saves_nothing(const Section& checkpoint);

// Bytes on disk that a save of this rank takes, without the manifest: for `check` and the disk plan.
uint64_t checkpoint_bytes(const std::vector<TensorShare>& tensors);

}  // namespace eng
