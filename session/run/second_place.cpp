// SPDX-License-Identifier: Apache-2.0
#include "session/run/second_place.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

#include "session/ranks/signals.hpp"
#include "session/run/run_dir.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

constexpr const char* list_name = "second.json";
constexpr uint64_t largest_list = 64 << 20;

struct Copies {
  std::map<std::string, std::string> copied, aside;
};

std::map<std::string, std::string> names_in(const Json& all) {
  std::map<std::string, std::string> out;
  if (!all.is_object()) return out;
  for (const Json::Member& m : all.members())
    if (checkpoint_step(m.key) && m.value.is_string()) out[m.key] = m.value.text();
  return out;
}

// A list that is missing or damaged knows nothing.
Copies read_list(const fs::path& file) try {
  const Json all = Json::parse_or_null(read_text(file, largest_list, Exit::disk), true);
  return all.is_object() ? Copies{names_in(all.get("copied")), names_in(all.get("aside"))} : Copies{};
} catch (const Error&) {
  return {};
}

void write_list(const fs::path& file, const Copies& list) {
  write_atomic(file, Json::ordered({{"v", 1}, {"copied", list.copied}, {"aside", list.aside}}).dump(2) + "\n");
}

// Both priorities are those of the thread alone. Without the right to one, it has the usual.
void be_last() {
  constexpr int of_thread = 1, best_effort = 2 << 13, lowest = 7;
  const auto self = static_cast<id_t>(::syscall(SYS_gettid));
  ::setpriority(PRIO_PROCESS, self, 19);
  ::syscall(SYS_ioprio_set, of_thread, self, best_effort | lowest);
}

}  // namespace

std::unique_ptr<CopyPlace> second_place(const Config& config, const fs::path& run, const OpenStore& open_store) {
  const Section& checkpoint = config.section("checkpoint");
  if (!checkpoint.given("second") || checkpoint.string("second").empty()) return nullptr;
  const fs::path name = (fs::absolute(run) / "").lexically_normal().parent_path().filename();
  const std::string& place = checkpoint.string("second");
  if (!is_object_address(place))
    return folder_copies(fs::absolute(config.base_dir() / place).lexically_normal() / name);
  if (!open_store)
    throw Error(Exit::usage, fmt::format("checkpoint.second = {}: stores of objects are for `engine run`", place),
                "name a folder, or --unset checkpoint.second");
  return object_copies(open_store(place + (place.ends_with('/') ? "" : "/") + name.string()));
}

void check_second_place(const fs::path& run, CopyPlace& place) {
  std::error_code none;
  if (fs::equivalent(run, place.name(), none))
    throw Error(Exit::usage, fmt::format("checkpoint.second: {} is the run itself", place.name()),
                "give another folder, or --unset checkpoint.second");
  const Copies list = read_list(run / list_name);
  for (const std::string& name : place.checkpoints()) {
    const auto aside = list.aside.find(name);
    if (list.copied.count(name) || (aside != list.aside.end() && aside->second == place.manifest_sum(name))) continue;
    throw Error(Exit::usage,
                fmt::format("checkpoint.second: {}/{} has {}, which this run has not copied: it is of another run",
                            place.name(), checkpoints_folder, name),
                "give another place, or remove that one");
  }
}

std::optional<fs::path> newest_copy(const fs::path& run, CopyPlace& place, const fs::path& checkpoints, int64_t above,
                                    const std::function<void(const CheckpointRow&)>& tell,
                                    std::optional<int64_t> only) {
  const Copies list = read_list(run / list_name);
  std::map<int64_t, std::string, std::greater<>> found;
  for (const std::string& name : place.checkpoints()) {
    const int64_t step = checkpoint_step(name).value_or(-1);
    if (list.copied.count(name) && step > above && (!only || step == *only)) found[step] = name;
  }
  for (const auto& [step, name] : found) {
    const std::string sum = place.manifest_sum(name);
    if (sum.empty()) continue;
    CheckpointRow row{fs::path(place.name()) / checkpoints_folder / name, step, 0, 0, ""};
    bool same = sum == list.copied.at(name);
    if (same) {
      row = place.usable(name, checkpoints);
      if (!row.problem.empty()) {
        tell(row);
        continue;
      }
      // It may have been replaced meanwhile.
      const bool brought = row.path.parent_path() == checkpoints;
      same = (brought ? Checksum::of(read_text(row.path / manifest_name, largest_manifest, Exit::disk))
                      : place.manifest_sum(name)) == sum;
      if (same) return row.path;
      if (brought) remove_checkpoint(row.path);
    }
    row.problem = row.path.string() + ": is not the checkpoint that this run has copied";
    tell(row);
  }
  return std::nullopt;
}

void adopt_copies(const fs::path& run, CopyPlace& place, int64_t step) {
  Copies list;
  for (const std::string& name : place.checkpoints())
    (checkpoint_step(name).value_or(0) > step ? list.aside : list.copied)[name] = place.manifest_sum(name);
  write_list(run / list_name, list);
}

SecondPlace::SecondPlace(fs::path run, std::unique_ptr<CopyPlace> place, int64_t keep, int64_t step,
                         const std::optional<fs::path>& from)
    : run_(std::move(run)), place_(std::move(place)), keep_(keep), step_(step) {
  Copies list = read_list(this->list());
  for (auto it = list.copied.begin(); it != list.copied.end();) {
    const bool later = checkpoint_step(it->first).value_or(0) > step;
    if (later) list.aside[it->first] = it->second;
    it = later ? list.copied.erase(it) : std::next(it);
  }
  place_->go_on_while([this] {
    if (give_up_) throw Error(Exit::bug, "the copy was given up");
    if (starts_ && Signals::pending()) throw Error(Exit::stopped, "stopped");
  });
  copied_ = std::move(list.copied), aside_ = std::move(list.aside);
  try {
    write_list(this->list(), {copied_, aside_});
    next_step_ = from ? from->filename().string() : "";
    begin();
    // The copy that is there may be of an earlier attempt at this step.
    const auto had = copied_.find(next_step_);
    if (from && (had == copied_.end() || !place_->checkpoints().count(next_step_) ||
                 place_->manifest_sum(next_step_) != had->second))
      add(*from);
  } catch (const std::exception& e) {
    if (Signals::pending())  // the run has not begun: it saves nothing, and waits for no copy
      throw Error(Exit::stopped, fmt::format("stopped by {} while it looked at the second place, {}",
                                             Signals::name(Signals::pending()), this->place()));
    failed("", name_held(e.what()));
    if (from) add(*from);
  }
  starts_ = false;
  // Signals are for the other threads.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { work(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

SecondPlace::~SecondPlace() {
  give_up_ = true;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true, next_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

fs::path SecondPlace::list() const {
  return run_ / list_name;
}

// A place that could not be reached may have another run's checkpoints.
void SecondPlace::begin() {
  check_second_place(run_, *place_);
  place_->begin(step_, next_step_);
  begun_ = true;
}

void SecondPlace::add(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename();
  try {
    auto job = std::make_unique<CopyJob>(open_copy_job(checkpoint));
    const std::lock_guard lock(mutex_);
    ++added_;
    next_.push_back(std::move(job));
    if (keep_ > 0 && next_.size() > static_cast<size_t>(keep_)) next_.pop_front();
  } catch (const std::exception& e) {
    failed(name, name_held(e.what()));
  }
  changed_.notify_all();
}

std::vector<std::string> SecondPlace::news() {
  if (!any_news_.exchange(false)) return {};
  const std::lock_guard lock(mutex_);
  return std::exchange(news_, {});
}

bool SecondPlace::wait(double seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return !busy_ && next_.empty(); });
}

std::string SecondPlace::missing() const {
  const std::lock_guard lock(mutex_);
  if (missing_.empty()) return "";
  const std::set<std::string> names(missing_.begin(), missing_.end());
  return fmt::format("checkpoint.second: {} of {} checkpoints were not copied to {}: {}; last: {}", names.size(),
                     added_, place_->name(), fmt::join(names, ", "), last_failure_);
}

void SecondPlace::failed(const std::string& name, const std::string& why) {
  const std::lock_guard lock(mutex_);
  last_failure_ = why;
  if (!name.empty()) missing_.push_back(name);
  news_.push_back(
      fmt::format("checkpoint.second: {}{}; training goes on", name.empty() ? "" : name + " is not copied: ", why));
  any_news_ = true;
}

void SecondPlace::work() {
  be_last();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !next_.empty(); });
    if (ends_) return;
    const std::unique_ptr<CopyJob> job = std::move(next_.front());
    next_.pop_front();
    busy_ = true;
    lock.unlock();
    std::string why;
    try {
      copy(*job);
    } catch (const std::exception& e) {
      why = name_held(e.what());
    }
    if (!why.empty()) {
      place_->discard(*job);
      if (!give_up_) failed(job->name, why);
    }
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void SecondPlace::copy(const CopyJob& job) {
  if (!begun_) begin();
  place_->copy(job, run_);
  copied_[job.name] = Checksum::of(manifest_of(job));
  const std::set<std::string> there = place_->checkpoints();
  std::erase_if(copied_, [&](const auto& entry) { return entry.first != job.name && !there.count(entry.first); });
  aside_.erase(job.name);
  write_list(list(), {copied_, aside_});
  place_->publish(job, keep_);
}

}  // namespace eng
