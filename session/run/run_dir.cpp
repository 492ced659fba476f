// SPDX-License-Identifier: Apache-2.0
#include "session/run/run_dir.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <random>

#include "session/json.hpp"
#include "session/run/failure.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

constexpr const char* kState = "state.json";
constexpr const char* kRecord = "run.json";

constexpr const char* kLogs = "logs";

std::string log_name(uint32_t rank) {
  return fmt::format("rank-{:05}.log", rank);
}

// True if it has only files that a run which died at its start may leave.
bool is_blank(const fs::path& directory) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    const bool folder = name == checkpoints_folder || name == kLogs;
    if (entry.is_symlink() || !(folder ? fs::is_empty(entry.path()) : name == "LOCK" || name == "state.json.tmp"))
      return false;
  }
  return true;
}

// A regular file in a run directory. Neither follows a link nor waits for the other end of a FIFO.
Fd open_regular(const fs::path& path, int flags) {
  Fd fd(::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644));
  struct stat info {};
  if (fd < 0 || ::fstat(fd, &info) != 0) disk_error("open", path, errno);
  if (!S_ISREG(info.st_mode)) throw Error(Exit::disk, path.string() + " is not a regular file", "remove it");
  return fd;
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

// Bytes of the leading lines that are complete and of steps up to `keep_through`.
uint64_t kept_bytes(const std::filesystem::path& path, int64_t keep_through) {
  std::ifstream in(path, std::ios::binary);
  uint64_t kept = 0;
  for (std::string line; read_line(*in.rdbuf(), line) == LineEnd::newline; kept += line.size() + 1) {
    const Json json = Json::parse_or_null(line);
    const Json& step = json.get("step");
    if (!step.is_integer() || step.integer() > keep_through) break;
  }
  return kept;
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

LineEnd read_line(std::streambuf& from, std::string& line) {
  using Char = std::char_traits<char>;
  for (line.clear(); line.size() < longest_metrics_line;) {
    const int c = from.sbumpc();
    if (c == Char::eof()) return LineEnd::file;
    if (c == '\n') return LineEnd::newline;
    line += static_cast<char>(c);
  }
  return LineEnd::none;
}

void write_atomic(const fs::path& path, std::string_view text) {
  const fs::path temporary = path.string() + ".tmp";
  try {
    write_text(temporary, text);
    rename_durably(temporary, path);
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
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

std::string utc_now(bool full) {
  return fmt::format(fmt::runtime(full ? "{:%Y-%m-%dT%H:%M:%SZ}" : "{:%Y%m%d-%H%M%S}"),
                     fmt::gmtime(std::time(nullptr)));
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "?";
}

RunDir::RunDir(fs::path path)
    : folder_(std::move(path)), lock_(lock(folder_)), checkpoints_(folder_, checkpoints_folder) {
  const HeldFolder logs(folder_, kLogs);
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

void log_line(const fs::path& run, uint32_t rank, const std::string& text) noexcept try {
  const HeldFolder logs(HeldFolder(run), kLogs);
  const Fd fd = open_regular(logs.inside() / log_name(rank), O_WRONLY | O_CREAT | O_APPEND);
  const std::string line = utc_now(true) + " " + for_terminal(text) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(fd, line.data(), line.size());
} catch (...) {  // there is no place left to report it
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

std::string metrics_line(const Metrics& m, int64_t attempt) {
  Json line = Json::ordered({{"v", 1}, {"step", m.step}, {"tokens", m.tokens}, {"loss", m.loss}});
  line["grad_norm"] = m.grad_norm;
  line["lr"] = m.lr;
  line["loss_scale"] = m.loss_scale;
  if (m.skipped) line["skipped"] = true;
  if (m.eval_loss) line["eval_loss"] = *m.eval_loss;
  const auto put = [&](const char* key, const std::vector<Named>& values) {
    if (values.empty()) return;
    Json all = Json::ordered({});
    for (const Named& one : values) all[one.name] = one.value;
    line[key] = std::move(all);
  };
  put("terms", m.terms);
  put("observed", m.observed);
  if (m.padding) line["padding"] = *m.padding;
  line["tokens_per_second"] = m.tokens_per_second;
  line["mfu"] = m.mfu;
  line["step_seconds"] = m.step_seconds;
  line["wait_seconds"] = Json::ordered(
      {{"data", m.wait_seconds.data}, {"comm", m.wait_seconds.comm}, {"offload", m.wait_seconds.offload}});
  line["device_peak_bytes"] = m.device_peak_bytes;
  line["host_peak_bytes"] = m.host_peak_bytes;
  if (m.device) {
    Json gauges = Json::ordered({});
    if (m.device->used_bytes) gauges["used_bytes"] = *m.device->used_bytes;
    if (m.device->utilisation) gauges["utilisation"] = *m.device->utilisation;
    if (m.device->celsius) gauges["celsius"] = *m.device->celsius;
    if (m.device->watts) gauges["watts"] = *m.device->watts;
    line["device"] = std::move(gauges);
  }
  line["attempt"] = attempt;
  return line.dump() + "\n";
}

MetricsFile::MetricsFile(std::filesystem::path path, int64_t keep_through, int64_t attempt)
    : path_(std::move(path)), attempt_(attempt), fd_(open_regular(path_, O_WRONLY | O_CREAT | O_APPEND)) {
  if (::ftruncate(fd_, off_t(kept_bytes(path_, keep_through))) != 0) disk_error("open", path_, errno);
}

void MetricsFile::append(const Metrics& metrics) {
  const std::string line = metrics_line(metrics, attempt_);
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  ssize_t n = 0;
  do {
    n = file_calls().write(fd_, line.data(), line.size());
  } while (n < 0 && errno == EINTR);
  if (n == ssize_t(line.size())) return;
  const int error = n < 0 ? errno : ENOSPC;
  // If this fails too, the incomplete line stays until the file is opened again.
  [[maybe_unused]] const int failed = ::ftruncate(fd_, before);
  disk_error("write", path_, error);
}

void MetricsFile::sync() {
  if (file_calls().sync(fd_) != 0) disk_error("flush", path_, errno);
}

}  // namespace eng
