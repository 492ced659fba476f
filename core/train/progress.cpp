// SPDX-License-Identifier: Apache-2.0
#include "core/train/progress.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

std::string step_text(const StepLine& s) {
  return fmt::format("step {}/{} loss: {} lr: {} grad_norm: {} tok/s: {} mfu: {} mem: {} wait: {} left: {}", s.step,
                     s.steps, finite(s.loss, "{:.4f}"), finite(s.lr, "{:.2e}"), finite(s.grad_norm, "{:.2f}"),
                     finite(s.tokens_per_second, "{:.0f}"), finite(s.mfu * 100, "{:.1f}%"), size_text(s.memory),
                     finite(s.wait * 100, "{:.0f}%"), duration_text(s.seconds_left));
}

std::string eval_text(int64_t step, double loss, uint64_t tokens, double seconds) {
  return fmt::format("eval @{}  loss {}  ppl {}  ({} tokens, {})", step, finite(loss, "{:.4f}"),
                     finite(std::exp(loss), "{:.2f}"), tokens, duration_text(seconds));
}

std::string saved_text(const std::string& name, uint64_t bytes, double seconds) {
  return fmt::format("saved {}  {} in {}", name, size_text(bytes), duration_text(seconds));
}

Progress::Progress(int fd, bool terminal, int64_t every)
    : fd_(fd), terminal_(terminal), every_(std::max<int64_t>(1, every)) {}

Progress::~Progress() {
  if (!live_.empty()) put("\n");
}

void Progress::put(const std::string& text) const {
  // A closed pipe or a full disk behind stderr is no reason to stop training.
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(fd_, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    at += size_t(n);
  }
}

void Progress::step(const StepLine& s) {
  const bool shown = first_ || s.step % every_ == 0 || s.step == s.steps;
  first_ = false;
  if (terminal_) {
    live_ = step_text(s).substr(0, columns(fd_) - 1);  // a wrapped line could not be drawn over
    put("\r\x1b[K" + live_);
  } else if (shown) {
    put(step_text(s) + "\n");
  }
}

void Progress::line(const std::string& text) {
  if (!terminal_ || live_.empty()) return put(text + "\n");
  put("\r\x1b[K" + text + "\n" + live_);
}

}  // namespace eng
