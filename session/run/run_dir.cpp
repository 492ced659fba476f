// SPDX-License-Identifier: Apache-2.0
#include "session/run/run_dir.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>

namespace eng {
namespace fs = std::filesystem;
namespace {

constexpr const char* kState = "state.json";
constexpr const char* kRecord = "run.json";

// True if it has only files that a run which died at its start may leave.
bool is_blank(const fs::path& directory) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    const bool folder = name == checkpoints_folder || name == logs_folder;
    if (entry.is_symlink() || !(folder ? fs::is_empty(entry.path()) : name == "LOCK" || name == "state.json.tmp"))
      return false;
  }
  return true;
}

// The directory is locked, so that removing LOCK lets nobody in. LOCK says who holds it, and is locked as well for file
// systems that lock no directories (NFS).
Fd lock(const HeldFolder& folder) {
  Fd fd = open_regular(folder.path() / "LOCK", O_RDWR | O_CREAT);
  const auto take = [](int which) { return ::flock(which, LOCK_EX | LOCK_NB) == 0 ? 0 : errno; };
  const int directory = take(folder.descriptor()), file = take(fd);
  if (directory == EWOULDBLOCK || file == EWOULDBLOCK) {
    char holder[300] = {};
    const ssize_t n = ::pread(fd, holder, sizeof(holder) - 1, 0);
    throw Error(Exit::usage,
                fmt::format("{} is in use by process {}", folder.path().string(), n > 0 ? holder : "of unknown id"),
                "wait for it, stop it, or give this run another --out");
  }
  if (file != 0) disk_error("lock", folder.path() / "LOCK", file);
  const std::string text = fmt::format("{}:{}", host_name(), ::getpid());
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, text.data(), text.size(), 0) != ssize_t(text.size()))
    disk_error("write", folder.path() / "LOCK", errno);
  return fd;
}

// state.json; null if it cannot be read.
Json read_state(const fs::path& run) try {
  return Json::parse_or_null(read_text(run / kState, 1 << 20, Exit::usage), true);
} catch (const Error&) {
  return {};
}

// The end of an attempt, as run.json records it.
Json end_in(const Json& state, const char* status) {
  Json out = Json::ordered({{"status", status}});
  for (const char* key : {"exit_code", "step", "last_checkpoint", "updated"}) out[key] = state.get(key);
  if (const std::string why = state.text_at("why"); !why.empty()) out["why"] = why;
  return out;
}

// state.json tells it as well, so that run.json may be missing or damaged.
void record_end(const fs::path& run, const Json& state) noexcept try {
  Json record = read_run_json(run);
  if (!record.is_object()) return;
  record["ended"] = end_in(state, state.text_at("status").c_str());
  write_atomic(run / kRecord, record.dump(2, true) + "\n");
} catch (...) {
}

}  // namespace

Json read_run_json(const fs::path& run) {
  try {
    return Json::parse_or_null(read_text(run / kRecord, 64 << 20, Exit::usage), true);
  } catch (const Error&) {
    return {};
  }
}

Json earlier_attempts(const fs::path& run) {
  Json last = read_run_json(run);
  if (!last.is_object()) return Json::array();
  Json all = last.get("earlier").is_array() ? last.get("earlier") : Json::array();
  if (!last.get("ended").is_object()) last["ended"] = end_in(read_state(run), "killed");
  last.erase("earlier");
  all.push_back(std::move(last));
  return all;
}

void set_aside_newer(const fs::path& checkpoints, int64_t step) {
  std::vector<fs::path> newer;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints, error))
    if (checkpoint_step(entry.path()).value_or(-1) > step) newer.push_back(entry.path());
  for (const fs::path& path : newer) {
    const fs::path aside = checkpoints / (aside_prefix + path.filename().string());
    fs::remove_all(aside, error);
    fs::rename(path, aside, error);
    if (error) disk_error("rename", path, error.value());
  }
}

RunDir::RunDir(fs::path path)
    : folder_(std::move(path)), lock_(lock(folder_)), checkpoints_(folder_, checkpoints_folder) {
  const HeldFolder logs(folder_, logs_folder);
  if (is_run(this->path())) {
    // The file is only informative, so damage to it is not an error; the position of the run is in the checkpoints.
    const Json state = read_state(this->path());
    const Json& attempt = state.get("attempt");
    attempt_ = attempt.is_integer() ? attempt.integer() + 1 : 2;
  } else {
    write_state("running", 0, "", 0);
  }
  open_regular(logs.path() / log_name(0), O_WRONLY | O_CREAT | O_APPEND);
}

RunDir RunDir::create(const fs::path& root, const std::string& name) {
  make_directories(root / name);
  std::random_device random;
  for (;;) {
    const fs::path path = root / name / fmt::format("{}-{:04x}", utc_now(false), random() & 0xffff);
    std::error_code error;
    if (fs::create_directory(path, error)) return RunDir(path);
    if (error) disk_error("create directory", path, error.value());
  }
}

RunDir RunDir::at(const fs::path& directory) {
  make_directories(directory);
  if (!is_run(directory) && !is_blank(directory))
    throw Error(Exit::usage, fmt::format("{} is neither empty nor a run of this engine", directory.string()),
                "give --out a new directory, or the directory of a run to resume");
  return RunDir(directory);
}

RunDir RunDir::open(const fs::path& directory) {
  if (!is_run(directory))
    throw Error(Exit::usage, fmt::format("{} is not a run: it has no {}", directory.string(), kState),
                "name a directory such as runs/NAME/20261120-132005-7f3a");
  return RunDir(directory);
}

bool RunDir::is_run(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / kState, ignored);
}

void RunDir::write_state(const char* status, int64_t step, const std::string& last_checkpoint, int exit_code,
                         const std::string& why) const {
  Json state = Json::ordered({{"status", status},
                              {"step", step},
                              {"last_checkpoint", nullptr},
                              {"exit_code", nullptr},
                              {"attempt", attempt_},
                              {"updated", utc_now(true)}});
  if (!last_checkpoint.empty()) state["last_checkpoint"] = last_checkpoint;
  if (std::string(status) != "running") state["exit_code"] = exit_code;
  if (!why.empty()) state["why"] = why;
  write(kState, state.dump(2) + "\n");
  if (std::string(status) != "running") record_end(folder_.inside(), state);
}

std::string settle(const fs::path& run, int exit_code) noexcept try {
  std::string newest;
  for (const auto& entry : fs::directory_iterator(own_folder(run, checkpoints_folder))) {
    const std::string name = entry.path().filename();  // renamed to this when it was complete
    if (name.rfind("step-", 0) == 0 && fs::exists(entry.path() / "manifest.json")) newest = std::max(newest, name);
  }
  Json state = read_state(run);
  // A rank that saw another one end may have written this already, without the newest checkpoint.
  if (const std::string status = state.text_at("status"); status == "running" || status == "failed") {
    state["status"] = "failed";
    state["exit_code"] = exit_code;
    if (!newest.empty()) state["last_checkpoint"] = newest;
    state["updated"] = utc_now(true);
    write_atomic(run / kState, state.dump(2) + "\n");
    record_end(run, state);
  }
  return newest;
} catch (...) {
  return "";
}

}  // namespace eng
