// SPDX-License-Identifier: Apache-2.0
#include "session/run/second_place.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>

#include "session/run/run_dir.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t copied_at_once = 1 << 20;
constexpr const char *manifest_name = "manifest.json", *list_name = "second.json";
constexpr uint64_t largest_manifest = uint64_t{1} << 30, largest_list = 64 << 20;

// The files of a run, apart from its checkpoints, with which the second place is a run that can be resumed.
constexpr const char* run_files[] = {
    "config.toml", "config.resolved.toml", "device_choices.txt", "metrics.jsonl", "run.json", "state.json"};

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

// "" if it cannot be read.
std::string manifest_sum(const fs::path& checkpoint) try {
  return Checksum::of(read_text(checkpoint / manifest_name, largest_manifest, Exit::disk));
} catch (const Error&) {
  return "";
}

std::vector<fs::path> checkpoints_in(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (checkpoint_step(entry.path())) out.push_back(entry.path());
  return out;
}

// Both priorities are those of the thread alone. Without the right to one, it has the usual.
void be_last() {
  constexpr int of_thread = 1, best_effort = 2 << 13, lowest = 7;
  const auto self = static_cast<id_t>(::syscall(SYS_gettid));
  ::setpriority(PRIO_PROCESS, self, 19);
  ::syscall(SYS_ioprio_set, of_thread, self, best_effort | lowest);
}

// `each` sees the bytes.
template <class Each>
void copy_bytes(int from, const std::string& what, uint64_t bytes, FileWriter& out, const Each& each) {
  std::vector<char> buffer(std::max<uint64_t>(1, std::min(copied_at_once, bytes)));
  for (uint64_t at = 0; at < bytes;) {
    const ssize_t n = ::pread(from, buffer.data(), std::min(buffer.size(), bytes - at), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw Error(Exit::disk, fmt::format("cannot read {}: {}", what, n < 0 ? std::strerror(errno) : "it ends early"));
    each(std::string_view(buffer.data(), static_cast<size_t>(n)));
    out.write(buffer.data(), static_cast<uint64_t>(n));
    at += static_cast<uint64_t>(n);
  }
  out.finish();
}

uint64_t file_bytes(int fd, const fs::path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) disk_error("read", path, errno);
  return static_cast<uint64_t>(info.st_size);
}

// A later read comes from the disk.
void forget_pages(const fs::path& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd >= 0) ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace

struct SecondPlace::Job {
  std::string name;
  struct File {
    std::string name;
    Fd fd;
    uint64_t bytes;
  };
  std::vector<File> files;  // the manifest last
};

fs::path second_place(const Config& config, const fs::path& run) {
  const Section& checkpoint = config.section("checkpoint");
  if (!checkpoint.given("second") || checkpoint.string("second").empty()) return {};
  const fs::path name = (fs::absolute(run) / "").lexically_normal().parent_path().filename();
  return fs::absolute(config.base_dir() / checkpoint.string("second")).lexically_normal() / name;
}

void check_second_place(const fs::path& run, const fs::path& place) {
  std::error_code none;
  if (fs::equivalent(run, place, none))
    throw Error(Exit::usage, fmt::format("checkpoint.second: {} is the run itself", place.string()),
                "give another folder, or --unset checkpoint.second");
  const Copies list = read_list(run / list_name);
  for (const fs::path& path : checkpoints_in(place / checkpoints_folder)) {
    const std::string name = path.filename();
    const auto aside = list.aside.find(name);
    if (list.copied.count(name) || (aside != list.aside.end() && aside->second == manifest_sum(path))) continue;
    throw Error(Exit::usage,
                fmt::format("checkpoint.second: {} has {}, which this run has not copied: it is of another run",
                            path.parent_path().string(), name),
                "give another folder, or remove that one");
  }
}

std::optional<fs::path> newest_copy(const fs::path& run, const fs::path& place, int64_t above,
                                    const std::function<void(const CheckpointRow&)>& tell,
                                    std::optional<int64_t> only) {
  const Copies list = read_list(run / list_name);
  std::map<int64_t, fs::path, std::greater<>> found;
  for (const auto& [name, sum] : list.copied) {
    const int64_t step = checkpoint_step(name).value_or(-1);
    const fs::path path = place / checkpoints_folder / name;
    std::error_code none;
    if (step > above && (!only || step == *only) && fs::exists(path / manifest_name, none)) found[step] = path;
  }
  for (const auto& [step, path] : found) {
    CheckpointRow row = inspect_checkpoint(path, true);
    if (row.problem.empty() && manifest_sum(path) != list.copied.at(path.filename().string()))
      row.problem = path.string() + ": is not the checkpoint that this run has copied";
    if (row.problem.empty()) return path;
    tell(row);
  }
  return std::nullopt;
}

SecondPlace::SecondPlace(fs::path run, fs::path place, int64_t keep, int64_t step, const std::optional<fs::path>& from)
    : run_(std::move(run)), place_(std::move(place)), keep_(keep) {
  std::error_code none;
  Copies list = read_list(this->list());
  for (auto it = list.copied.begin(); it != list.copied.end();) {
    const bool later = checkpoint_step(it->first).value_or(0) > step;
    if (later) list.aside[it->first] = it->second;
    it = later ? list.copied.erase(it) : std::next(it);
  }
  try {
    write_list(this->list(), list);
    remove_leftovers(folder());
    set_aside_newer(folder(), step);
  } catch (const std::exception& e) {
    failed("", name_held(e.what()));
  }
  copied_ = std::move(list.copied), aside_ = std::move(list.aside);
  if (from) {
    const bool there = copied_.count(from->filename()) && fs::exists(folder() / from->filename() / manifest_name, none);
    if (!there) add(*from);
  }
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

fs::path SecondPlace::folder() const {
  return place_ / checkpoints_folder;
}

void SecondPlace::add(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename();
  try {
    auto job = std::make_unique<Job>(Job{name, {}});
    for (const auto& entry : fs::directory_iterator(checkpoint)) {
      Fd fd = open_regular(entry.path(), O_RDONLY);
      const uint64_t bytes = file_bytes(fd, entry.path());
      job->files.push_back({entry.path().filename(), std::move(fd), bytes});
    }
    std::stable_partition(job->files.begin(), job->files.end(), [](const auto& f) { return f.name != manifest_name; });
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
                     added_, place_.string(), fmt::join(names, ", "), last_failure_);
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
    const std::unique_ptr<Job> job = std::move(next_.front());
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
      std::error_code none;
      fs::remove_all(folder() / (temporary_prefix + job->name), none);
      if (!give_up_) failed(job->name, why);
    }
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void SecondPlace::copy(const Job& job) {
  const auto go_on = [this](std::string_view) {
    if (give_up_) throw Error(Exit::bug, "the copy was given up");
  };
  make_directories(folder());
  const fs::path temporary = folder() / (temporary_prefix + job.name), complete = folder() / job.name;
  fs::remove_all(temporary);
  make_directories(temporary);
  std::string manifest;
  for (const Job::File& file : job.files) {
    FileWriter out(temporary / file.name, file.bytes);
    copy_bytes(file.fd, job.name + "/" + file.name, file.bytes, out, [&](std::string_view part) {
      go_on(part);
      if (file.name == manifest_name) manifest += part;
    });
    forget_pages(temporary / file.name);
  }
  sync_directory(temporary);
  // Every byte as it is there now, by the checksums of the manifest.
  if (const CheckpointRow row = inspect_checkpoint(temporary, true); !row.problem.empty())
    throw Error(Exit::checkpoint, row.problem);
  for (const char* name : run_files) {
    const fs::path from = run_ / name, to = place_ / name, part = to.string() + ".tmp";
    std::error_code none;
    if (!fs::is_regular_file(from, none)) continue;
    const Fd fd = open_regular(from, O_RDONLY);
    const uint64_t bytes = file_bytes(fd, from);
    FileWriter out(part, bytes);
    copy_bytes(fd, from.string(), bytes, out, go_on);
    rename_durably(part, to);
  }
  copied_[job.name] = Checksum::of(manifest);
  std::erase_if(copied_, [&](const auto& entry) {
    std::error_code none;
    return entry.first != job.name && !fs::exists(folder() / entry.first, none);
  });
  aside_.erase(job.name);
  write_list(list(), {copied_, aside_});
  if (fs::exists(complete))
    if (const std::error_code error = remove_checkpoint(complete)) disk_error("remove", complete, error.value());
  rename_durably(temporary, complete);
  collect_checkpoints(folder(), keep_);
}

}  // namespace eng
