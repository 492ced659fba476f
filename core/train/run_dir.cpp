// SPDX-License-Identifier: Apache-2.0
#include "core/train/run_dir.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "core/base/error.hpp"
#include "core/checkpoint/file.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLock = "LOCK";
constexpr const char* kState = "state.json";

std::string host() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "?";
}

// Nothing in it but what a start that died at once may leave.
bool is_blank(const fs::path& directory) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    const bool empty_folder =
        (name == "checkpoints" || name == "logs") && entry.is_directory() && fs::is_empty(entry.path());
    if (name != kLock && name != std::string(kState) + ".tmp" && !empty_folder) return false;
  }
  return true;
}

RunState read_state(const fs::path& path) {
  RunState state;
  try {
    const auto json = nlohmann::json::parse(read_text(path, 1 << 20, Exit::usage));
    state.status = json.at("status").get<std::string>();
    state.step = json.at("step").get<int64_t>();
    state.last_checkpoint = json.at("last_checkpoint").is_null() ? "" : json.at("last_checkpoint").get<std::string>();
    state.exit_code = json.at("exit_code").is_null() ? 0 : json.at("exit_code").get<int>();
    state.attempt = json.at("attempt").get<int64_t>();
    state.updated = json.at("updated").get<std::string>();
  } catch (const nlohmann::json::exception&) {
    // It only tells people; the checkpoints say where the run stands.
    state = RunState();
    state.status = "unknown";
  }
  return state;
}

}  // namespace

std::string utc_now(bool full) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), full ? "%Y-%m-%dT%H:%M:%SZ" : "%Y%m%d-%H%M%S", &utc);
  return text;
}

RunDir::RunDir(fs::path path) : path_(std::move(path)) {
  lock();
  try {
    make_directories(path_ / "checkpoints");
    make_directories(path_ / "logs");
    if (fs::exists(path_ / kState)) {
      previous_ = read_state(path_ / kState);
    } else {
      write_state(RunState());
    }
    log_ = ::open((path_ / "logs" / "rank-00000.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_ < 0) {
      throw Error(Exit::disk, fmt::format("cannot open {}: {}", (path_ / "logs" / "rank-00000.log").string(),
                                          std::strerror(errno)));
    }
  } catch (...) {
    ::close(std::exchange(lock_, -1));
    throw;
  }
}

RunDir::RunDir(RunDir&& other) noexcept
    : path_(std::move(other.path_)),
      previous_(std::move(other.previous_)),
      lock_(std::exchange(other.lock_, -1)),
      log_(std::exchange(other.log_, -1)) {}

RunDir::~RunDir() {
  if (log_ >= 0) ::close(log_);
  if (lock_ >= 0) ::close(lock_);  // the kernel lets go of the lock, as it does when the process dies
}

RunDir RunDir::create(const fs::path& root, const std::string& name) {
  if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos) {
    throw Error(Exit::usage, fmt::format("[run] name = \"{}\" cannot name a directory", name),
                "use letters, digits, `-`, `_` and `.`");
  }
  make_directories(root / name);
  std::random_device random;
  for (int tries = 0; tries < 100; ++tries) {
    const fs::path path = root / name / fmt::format("{}-{:04x}", utc_now(false), random() & 0xffff);
    if (::mkdir(path.c_str(), 0755) == 0) return RunDir(path);
    if (errno != EEXIST) {
      throw Error(Exit::disk, fmt::format("cannot create directory {}: {}", path.string(), std::strerror(errno)));
    }
  }
  throw Error(Exit::disk, fmt::format("no free name for a run in {}", (root / name).string()));
}

RunDir RunDir::at(const fs::path& directory) {
  make_directories(directory);
  if (!is_run(directory) && !is_blank(directory)) {
    throw Error(Exit::usage, fmt::format("{} is neither empty nor a run of this engine", directory.string()),
                "give --out a new directory, or one that holds a run to go on with");
  }
  return RunDir(directory);
}

RunDir RunDir::open(const fs::path& directory) {
  if (!is_run(directory)) {
    throw Error(Exit::usage, fmt::format("{} is not a run: it has no {}", directory.string(), kState),
                "name a directory such as runs/NAME/20261120-132005-7f3a");
  }
  return RunDir(directory);
}

bool RunDir::is_run(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / kState, ignored);
}

void RunDir::lock() {
  const fs::path path = path_ / kLock;
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) throw Error(Exit::disk, fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    char holder[300] = {};
    const ssize_t n = ::pread(lock_, holder, sizeof(holder) - 1, 0);
    ::close(std::exchange(lock_, -1));
    if (error != EWOULDBLOCK) {
      throw Error(Exit::environment, fmt::format("cannot lock {}: {}", path.string(), std::strerror(error)));
    }
    std::string who(holder, n > 0 ? size_t(n) : 0);
    while (!who.empty() && who.back() == '\n') who.pop_back();
    throw Error(Exit::usage, fmt::format("{} is in use by process {}", path_.string(), who.empty() ? "?" : who),
                "wait for it, stop it, or give this run another --out");
  }
  const std::string text = fmt::format("{}:{}\n", host(), ::getpid());
  if (::ftruncate(lock_, 0) != 0 || ::pwrite(lock_, text.data(), text.size(), 0) != ssize_t(text.size())) {
    const int error = errno;
    ::close(std::exchange(lock_, -1));
    throw Error(Exit::disk, fmt::format("cannot write {}: {}", path.string(), std::strerror(error)));
  }
}

void RunDir::write_config(const std::string& given, const std::string& resolved) const {
  write_atomic(path_ / "config.toml", given);
  write_atomic(path_ / "config.resolved.toml", resolved);
}

void RunDir::write_plan(const std::string& text) const {
  write_atomic(path_ / "plan.txt", text);
}

void RunDir::write_identity(const RunIdentity& r) const {
  Json plugins = Json::array();
  for (const auto& p : r.plugins) plugins.push_back({{"id", p.id}, {"version", p.version}, {"sha256", p.sha256}});
  const Json json{{"version", r.version},
                  {"commit", r.commit},
                  {"build", r.build},
                  {"command", r.command},
                  {"plugins", std::move(plugins)},
                  {"data_hash", r.data_hash},
                  {"model_hash", r.model_hash},
                  {"config_hash", r.config_hash},
                  {"seeds", r.seeds},
                  {"ranks", r.ranks},
                  {"hosts", r.hosts},
                  {"attempt", attempt()},
                  {"started", utc_now(true)},
                  {"extra", r.extra}};
  // A command line or host name need not be UTF-8.
  write_atomic(path_ / "run.json", json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void RunDir::write_state(RunState s) const {
  s.updated = utc_now(true);
  const Json json{{"status", s.status},
                  {"step", s.step},
                  {"last_checkpoint", s.last_checkpoint.empty() ? Json(nullptr) : Json(s.last_checkpoint)},
                  {"exit_code", s.status == "running" ? Json(nullptr) : Json(s.exit_code)},
                  {"attempt", attempt()},
                  {"updated", s.updated}};
  write_atomic(path_ / kState, json.dump(2) + "\n");
}

void RunDir::log(const std::string& line) const noexcept {
  try {
    const std::string text = utc_now(true) + " " + line + "\n";
    if (log_ >= 0 && ::write(log_, text.data(), text.size()) < 0) return;
  } catch (...) {
  }
}

}  // namespace eng
