// SPDX-License-Identifier: Apache-2.0
#include "core/train/metrics.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.hpp"
#include "core/checkpoint/file.hpp"

namespace eng {
namespace {

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

[[noreturn]] void fail(const char* what, const std::filesystem::path& path) {
  const int error = errno;
  throw Error(Exit::disk, fmt::format("cannot {} {}: {} ({} bytes free)", what, path.string(), std::strerror(error),
                                      free_bytes(path)));
}

// Bytes of the leading lines that are whole and of steps up to `keep_through`.
uint64_t kept_bytes(const std::filesystem::path& path, int64_t keep_through) {
  std::ifstream in(path, std::ios::binary);
  uint64_t kept = 0;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) break;
    const auto step = json.find("step");
    if (step == json.end() || !step->is_number_integer() || step->get<int64_t>() > keep_through) break;
    kept += line.size() + 1;
  }
  return kept;
}

}  // namespace

std::string metrics_line(const Metrics& m) {
  std::string line =
      fmt::format(R"({{"v":1,"step":{},"tokens":{},"loss":{},"grad_norm":{},"lr":{},"loss_scale":{})", m.step, m.tokens,
                  number(m.loss), number(m.grad_norm), number(m.lr), number(m.loss_scale));
  if (m.eval_loss) line += fmt::format(R"(,"eval_loss":{})", number(*m.eval_loss));
  line += fmt::format(R"(,"tokens_per_second":{},"mfu":{},"step_seconds":{})", number(m.tokens_per_second),
                      number(m.mfu), number(m.step_seconds));
  line += fmt::format(R"(,"wait_seconds":{{"data":{},"comm":{},"offload":{}}})", number(m.wait_seconds.data),
                      number(m.wait_seconds.comm), number(m.wait_seconds.offload));
  line += fmt::format(R"(,"device_peak_bytes":{},"host_peak_bytes":{}}})", m.device_peak_bytes, m.host_peak_bytes);
  return line + "\n";
}

MetricsFile::MetricsFile(std::filesystem::path path, int64_t keep_through) : path_(std::move(path)) {
  const uint64_t kept = kept_bytes(path_, keep_through);
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("open", path_);
  if (::ftruncate(fd_, off_t(kept)) != 0) {
    const int error = errno;
    ::close(std::exchange(fd_, -1));
    errno = error;
    fail("shorten", path_);
  }
}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

void MetricsFile::append(const Metrics& metrics) {
  const std::string line = metrics_line(metrics);
  struct stat before {};
  if (::fstat(fd_, &before) != 0) fail("write", path_);
  ssize_t n = 0;
  do {
    n = file_calls().write(fd_, line.data(), line.size());
  } while (n < 0 && errno == EINTR);
  if (n == ssize_t(line.size())) return;
  const int error = n < 0 ? errno : ENOSPC;
  if (::ftruncate(fd_, before.st_size) != 0) {
    // The torn line stays; the next opening removes it.
  }
  errno = error;
  fail("write", path_);
}

void MetricsFile::sync() {
  if (file_calls().sync(fd_) != 0) fail("flush", path_);
}

}  // namespace eng
