// SPDX-License-Identifier: Apache-2.0
#include "session/report/metrics.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "session/json.hpp"

namespace eng {
namespace {

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

std::string metrics_line(const Metrics& m, int64_t attempt) {
  Json line = Json::ordered({{"v", 1}, {"step", m.step}, {"tokens", m.tokens}, {"loss", m.loss}});
  line["grad_norm"] = m.grad_norm;
  line["lr"] = m.lr;
  line["loss_scale"] = m.loss_scale;
  if (m.skipped) line["skipped"] = true;
  if (m.updated_again) line["updated_again"] = true;
  if (m.eval_loss) line["eval_loss"] = *m.eval_loss;
  const auto put = [&](const char* key, const std::vector<Named>& values) {
    if (values.empty()) return;
    Json all = Json::ordered({});
    for (const Named& one : values) all[one.name] = one.value;
    line[key] = std::move(all);
  };
  put("eval_sources", m.eval_sources);
  put("terms", m.terms);
  put("observed", m.observed);
  if (!m.sources.empty()) {
    Json all = Json::ordered({});
    for (const auto& [name, samples, tokens, loss] : m.sources) {
      Json one = Json::ordered({{"samples", samples}, {"tokens", tokens}});
      if (loss) one["loss"] = *loss;
      all[name] = std::move(one);
    }
    line["sources"] = std::move(all);
  }
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
