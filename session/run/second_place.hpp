// SPDX-License-Identifier: Apache-2.0
// [checkpoint] second: copies of finished checkpoints in another folder, made while training continues.
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

#include "session/checkpoint/checkpoint.hpp"
#include "session/config/config.hpp"

namespace eng {

// The folder below [checkpoint] second that belongs to a run: it has the name of the run's directory. "" without the
// key.
std::filesystem::path second_place(const Config& config, const std::filesystem::path& run);

// Throws Error(Exit::usage) if `place` is the run itself, or has checkpoints of another one. `run` need not exist.
void check_second_place(const std::filesystem::path& run, const std::filesystem::path& place);

// The newest undamaged copy of a step above `above`; with `only`, of that step. It must be one that this run has made
// and not set aside: `run` has a list. `tell`: each that is passed over because it is damaged.
std::optional<std::filesystem::path> newest_copy(const std::filesystem::path& run, const std::filesystem::path& place,
                                                 int64_t above, const std::function<void(const CheckpointRow&)>& tell,
                                                 std::optional<int64_t> only = std::nullopt);

// On the rank that has the run's directory, which it holds. A failure of the second place never fails the run: it is a
// text to tell. Threads: the functions on one; the copies on one of its own, of the lowest priority.
class SecondPlace {
 public:
  // `run`: the directory that stays the same wherever it is moved. `step`: that from which the run goes on; copies of
  // later steps are set aside. `from`: the checkpoint of the run's directory from which it goes on; it is copied if it
  // is not there.
  SecondPlace(std::filesystem::path run, std::filesystem::path place, int64_t keep, int64_t step,
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
  const std::filesystem::path& place() const { return place_; }

 private:
  struct Job;
  void work();
  void copy(const Job& job);
  void failed(const std::string& name, const std::string& why);
  std::filesystem::path list() const;
  std::filesystem::path folder() const;  // of the copies

  const std::filesystem::path run_, place_;
  const int64_t keep_;
  std::map<std::string, std::string> copied_, aside_;  // name: checksum of its manifest; the thread's, once it runs
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> next_;
  bool busy_ = false, ends_ = false;
  std::atomic<bool> give_up_ = false, any_news_ = false;
  std::vector<std::string> news_;
  std::string last_failure_;
  std::vector<std::string> missing_;
  uint64_t added_ = 0;
  std::thread thread_;
};

}  // namespace eng
