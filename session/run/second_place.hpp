// SPDX-License-Identifier: Apache-2.0
// [checkpoint] second: copies of finished checkpoints in another folder or in a store, made while training continues.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "session/config/config.hpp"
#include "session/run/copy_place.hpp"

namespace eng {

// The folder or the store below [checkpoint] second that belongs to a run: it has the name of the run's directory. Null
// without the key. Throws Error(Exit::usage, environment) for a store that cannot be opened.
std::unique_ptr<CopyPlace> second_place(const Config& config, const std::filesystem::path& run,
                                        const OpenStore& open_store);

// Throws Error(Exit::usage) if `place` is the run itself, or has checkpoints of another one. `run` need not exist.
void check_second_place(const std::filesystem::path& run, CopyPlace& place);

// The newest undamaged copy of a step above `above`; with `only`, of that step. It must be one that this run has made
// and not set aside: `run` has a list. A copy in a store is written into `checkpoints` first. `tell`: each that is
// passed over because it is damaged.
std::optional<std::filesystem::path> newest_copy(const std::filesystem::path& run, CopyPlace& place,
                                                 const std::filesystem::path& checkpoints, int64_t above,
                                                 const std::function<void(const CheckpointRow&)>& tell,
                                                 std::optional<int64_t> only = std::nullopt);

// Writes the list of copies of a run that was brought from `place` as it was at this step, so that it goes on there.
void adopt_copies(const std::filesystem::path& run, CopyPlace& place, int64_t step);

// On the rank that has the run's directory, which it holds. A failure of the second place never fails the run: it is a
// text to tell. Threads: the functions on one; the copies on one of its own, of the lowest priority.
class SecondPlace {
 public:
  // `run`: the directory that stays the same wherever it is moved. `step`: that from which the run goes on; copies of
  // later steps are set aside. `from`: the checkpoint of the run's directory from which it goes on; it is copied if it
  // is not there.
  SecondPlace(std::filesystem::path run, std::unique_ptr<CopyPlace> place, int64_t keep, int64_t step,
              const std::optional<std::filesystem::path>& from);
  ~SecondPlace();  // gives up a copy that is not complete
  SecondPlace(const SecondPlace&) = delete;
  SecondPlace& operator=(const SecondPlace&) = delete;

  // Copies a complete checkpoint. Its files are opened now, so that it may be removed meanwhile. Of those that wait,
  // the oldest is left out if this place would not keep it either.
  void add(const std::filesystem::path& checkpoint);
  // Texts about failures since the last call.
  std::vector<std::string> news();
  // Waits at most so long; true if everything is copied, or failed.
  bool wait(double seconds);
  // At the end: which checkpoints are not there; "" if all are.
  std::string missing() const;
  std::string place() const { return place_->name(); }

 private:
  void begin();
  void work();
  void copy(const CopyJob& job);
  void failed(const std::string& name, const std::string& why);
  std::filesystem::path list() const;

  const std::filesystem::path run_;
  const std::unique_ptr<CopyPlace> place_;
  const int64_t keep_, step_;
  std::string next_step_;                              // the checkpoint that is copied first, if any
  bool begun_ = false;                                 // the place was looked at, and is ready
  std::map<std::string, std::string> copied_, aside_;  // name: checksum of its manifest; the thread's, once it runs
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<CopyJob>> next_;
  bool busy_ = false, ends_ = false;
  std::atomic<bool> give_up_ = false, any_news_ = false, starts_ = true;
  std::vector<std::string> news_;
  std::string last_failure_;
  std::vector<std::string> missing_;
  uint64_t added_ = 0;
  std::thread thread_;
};

}  // namespace eng
