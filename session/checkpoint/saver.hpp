// SPDX-License-Identifier: Apache-2.0
// Writing checkpoints: every rank its own files, all of them at once, while it waits or while it goes on.
#pragma once

#include <optional>

#include "session/checkpoint/share.hpp"

namespace eng {

struct Saved {
  std::filesystem::path path;
  uint64_t bytes = 0;  // of all ranks
  double seconds = 0;  // that the caller waited
};

// One checkpoint at a time. All functions are called by all ranks alike, on the thread that may exchange. On failure
// nothing of a checkpoint remains, all older ones are as they were, and every rank throws the same Error: Exit::disk
// names the file, the bytes needed and the bytes free.
class Saver {
 public:
  // Into checkpoints/step-NNNNNNNN, of which the newest `keep` stay (0: all). The caller holds the run's lock:
  // leftovers of an earlier process are removed. `asynchronous`: begin() copies what this rank writes into
  // snapshot_bytes() of memory, kept from one save to the next, and a thread writes it from there.
  Saver(std::filesystem::path checkpoints, int64_t keep, bool asynchronous, Peers peers = {});
  ~Saver();  // gives up what is not finished

  // Reserves the space of all files and takes the snapshot. What is under way has been finished before.
  // Not asynchronous: `read` and `staging` (16 bytes at least; without it a few MiB are taken) serve until finish().
  void begin(const RunPoint& point, const std::vector<TensorShare>& tensors, const Read& read,
             std::span<char> staging = {});
  // Between two steps: finishes the checkpoint under way if the files of all ranks are written.
  std::optional<Saved> poll();
  // Waits for the checkpoint under way, if there is one, and gives it its name.
  std::optional<Saved> finish();

 private:
  struct Job;
  void write(Job& job) const;
  void give_up();

  std::filesystem::path checkpoints_;
  int64_t keep_;
  bool asynchronous_;
  Peers peers_;
  std::unique_ptr<char[]> snapshot_;
  uint64_t snapshot_bytes_ = 0;
  std::unique_ptr<Job> job_;
};

// Bytes that a save takes of this rank on disk, up to the manifest: for `check` and the disk plan.
uint64_t checkpoint_bytes(const std::vector<TensorShare>& tensors);

}  // namespace eng
