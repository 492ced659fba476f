// SPDX-License-Identifier: Apache-2.0
// The place of copies of a run's checkpoints: a folder, or a store of objects.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "session/checkpoint/checkpoint.hpp"
#include "session/objects.hpp"

namespace eng {

// A complete checkpoint whose files are open, so that it may be removed meanwhile.
struct CopyJob {
  std::string name;
  struct File {
    std::string name;
    Fd fd;
    uint64_t bytes;
  };
  std::vector<File> files;  // the manifest last
};
// Throws Error(Exit::disk).
CopyJob open_copy_job(const std::filesystem::path& checkpoint);
std::string manifest_of(const CopyJob& job);
uint64_t file_bytes(int fd, const std::filesystem::path& path);

inline constexpr const char* manifest_name = "manifest.json";
inline constexpr uint64_t largest_manifest = uint64_t{1} << 30;
// The files of a run, apart from its checkpoints, with which a place is a run that can be resumed.
inline constexpr const char* run_files[] = {
    "config.toml", "config.resolved.toml", "device_choices.txt", "metrics.jsonl", "run.json", "state.json"};

class CopyPlace {
 public:
  virtual ~CopyPlace() = default;
  virtual std::string name() const = 0;  // for messages
  // Called while a copy is made; throws where it is given up.
  virtual void go_on_while(std::function<void()> go_on) = 0;
  // The checkpoints that are there.
  virtual std::set<std::string> checkpoints() = 0;
  // The checksum of the manifest of a checkpoint; "" if it cannot be read.
  virtual std::string manifest_sum(const std::string& checkpoint) = 0;
  // A checkpoint, every byte read, where it can be loaded from: a store's is brought into the folder `into`.
  virtual CheckpointRow usable(const std::string& checkpoint, const std::filesystem::path& into) = 0;
  // Before the first copy: removes what an earlier process left incomplete, but for what it may go on with of
  // `next`, and sets aside the checkpoints of later steps than `step`.
  virtual void begin(int64_t step, const std::string& next) = 0;
  // Copies everything, without making it a checkpoint; then makes it one, and removes older ones as `keep` says; or
  // removes what a failed copy has left.
  virtual void copy(const CopyJob& job, const std::filesystem::path& run) = 0;
  virtual void publish(const CopyJob& job, int64_t keep) = 0;
  virtual void discard(const CopyJob& job) noexcept = 0;
};

std::unique_ptr<CopyPlace> folder_copies(std::filesystem::path place);
std::unique_ptr<CopyPlace> object_copies(std::unique_ptr<ObjectStore> store);

// Writes a checkpoint of a store, of which `objects` are the files, into this folder of checkpoints, and reads every
// byte back. Returns its path; `problem` is why it is damaged, and it is not written then. What an interrupted call
// has brought stays in a folder of its own there, and is not brought again. Throws Error, as ObjectStore and for a disk
// that is full.
std::filesystem::path fetch_checkpoint(ObjectStore& store, const std::string& name,
                                       const std::filesystem::path& checkpoints, std::string& problem,
                                       const std::function<void(uint64_t done, uint64_t all)>& progress = {});
// Removes what interrupted calls have brought into this folder of checkpoints.
void remove_unfinished(const std::filesystem::path& checkpoints);
// The complete checkpoints of a store, the newest first.
std::vector<std::string> stored_checkpoints(ObjectStore& store);

}  // namespace eng
