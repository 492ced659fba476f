// SPDX-License-Identifier: Apache-2.0
#include "session/report/progress.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace eng {
namespace {

std::string finite(double value, const char* form) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(form), value) : "-";
}

size_t columns(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 120;
}

}  // namespace

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  if (seconds >= 1e9) return "years";
  const auto s = int64_t(seconds + 0.5);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  const int64_t m = (s + 30) / 60;
  if (m < 48 * 60) return fmt::format("{}h{:02}m", m / 60, m % 60);
  return fmt::format("{}d{:02}h", m / 1440, m % 1440 / 60);
}

std::string size_text(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{}B", bytes);
  double value = double(bytes) / 1024;
  const char* unit = "KiB";
  for (const char* next : {"MiB", "GiB", "TiB"}) {
    if (value < 1023.95) break;
    value /= 1024;
    unit = next;
  }
  return fmt::format("{:.1f}{}", value, unit);
}

// " cross_entropy=5.12 z_loss=38.4": `loss: (\d+\.\d+)` must match the loss alone.
static std::string shown_text(const std::vector<Named>& values) {
  std::string out;
  for (const Named& one : values)
    if (one.on_line) out += fmt::format(" {}={}", one.name, finite(one.value, "{:.4g}"));
  return out;
}

std::string step_text(const Metrics& m, int64_t steps, double seconds_left) {
  const double waited = m.wait_seconds.data + m.wait_seconds.comm + m.wait_seconds.offload;
  const std::string skipped = m.skipped ? fmt::format(" skipped: overflow at loss scale {:g}", m.loss_scale) : "";
  const std::string padding = m.padding ? fmt::format(" pad: {:.1f}%", 100 * *m.padding) : "";
  // Of a device apart, its memory is what is scarce; the host's is told beside it.
  const std::string memory = m.own_memory ? size_text(m.device_peak_bytes) + " host: " + size_text(m.host_peak_bytes)
                                          : size_text(std::max(m.device_peak_bytes, m.host_peak_bytes));
  return fmt::format("step {}/{} loss: {}{} lr: {} grad_norm: {}{}{} tok/s: {}{} mfu: {} mem: {} wait: {} left: {}",
                     m.step, steps, finite(m.loss, "{:.4f}"), shown_text(m.terms), finite(m.lr, "{:.2e}"),
                     finite(m.grad_norm, "{:.2f}"), skipped, shown_text(m.observed),
                     finite(m.tokens_per_second, "{:.0f}"), padding, finite(m.mfu * 100, "{:.1f}%"), memory,
                     finite(waited / m.step_seconds * 100, "{:.0f}%"), duration_text(seconds_left));
}

std::string eval_text(int64_t step, const Evaluation& e) {
  std::string terms;
  for (const Named& one : e.terms) terms += fmt::format("  {} {}", one.name, finite(one.value, "{:.4g}"));
  return fmt::format("eval @{}  loss {}{}  ppl {}  ({} tokens, {})", step, finite(e.loss, "{:.4f}"), terms,
                     finite(std::exp(e.of_text()), "{:.2f}"), e.tokens, duration_text(e.seconds));
}

std::string saved_text(const Saved& s) {
  return fmt::format("saved {}  {} in {}", s.path.filename().string(), size_text(s.bytes), duration_text(s.seconds));
}

Progress::Progress(Outlet& out, int fd, bool terminal, int64_t every, int64_t steps)
    : out_(out), fd_(fd), terminal_(terminal), every_(std::max<int64_t>(1, every)), steps_(steps) {}

Progress::~Progress() {
  finish();
}

void Progress::step(const Metrics& m, double seconds_left) {
  const bool shown = first_ || m.step % every_ == 0 || m.step == steps_;
  first_ = false;
  const std::string text = step_text(m, steps_, seconds_left);
  if (terminal_) {
    live_ = text.substr(0, columns(fd_) - 1);  // a wrapped line could not be drawn over
    out_.put("\r\x1b[K" + live_);
  } else if (shown) {
    out_.put(text + "\n");
  }
}

void Progress::evaluated(int64_t step, const Evaluation& evaluation) {
  line(eval_text(step, evaluation));
}

void Progress::saved(const Saved& saved) {
  line(saved_text(saved));
}

void Progress::finish() {
  if (!live_.empty()) out_.put("\n");
  live_.clear();
}

void Progress::line(const std::string& text) {
  if (!terminal_ || live_.empty()) return out_.put(text + "\n");
  out_.put("\r\x1b[K" + text + "\n" + live_);
}

}  // namespace eng
