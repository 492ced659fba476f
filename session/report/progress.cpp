// SPDX-License-Identifier: Apache-2.0
#include "session/report/progress.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace eng {
namespace {

std::string finite(double value, const char* form) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(form), value) : "-";
}

size_t columns(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 120;
}

// "[=====>    ]", of `width` characters.
std::string bar(int64_t step, int64_t steps, size_t width) {
  const double part = steps > 0 ? std::clamp(double(step) / double(steps), 0.0, 1.0) : 1;
  const auto filled = static_cast<size_t>(part * double(width - 2));
  std::string inside(width - 2, ' ');
  inside.replace(0, filled, filled, '=');
  if (filled < inside.size()) inside[filled] = '>';
  return "[" + inside + "]";
}

// Terminals have these eight in every palette.
constexpr int bold = 1, dim = 2, green = 32, yellow = 33, cyan = 36;

std::string painted(const std::string& text, int how) {
  return fmt::format("\x1b[{}m{}\x1b[0m", how, text);
}

// Paints what lies between `begin` and the first of `ends` after it, if it is there.
void paint(std::string& text, const char* begin, const char* ends, bool with_begin, int how) {
  size_t from = text.find(begin);
  if (from == text.npos) return;
  const size_t to = std::min(text.find_first_of(ends, from + std::string(begin).size()), text.size());
  if (!with_begin) from += std::string(begin).size();
  text.replace(from, to - from, painted(text.substr(from, to - from), how));
}

}  // namespace

Look look_of(int fd) {
  const char *term = std::getenv("TERM"), *plain = std::getenv("NO_COLOR");
  const bool moves = isatty(fd) != 0 && term && *term && std::string(term) != "dumb";
  return {moves, moves && !(plain && *plain)};
}

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

// " gpu: 96% 78C 352W 40.1GiB"
static std::string use_text(const DeviceUse& use) {
  std::string out;
  if (use.utilisation) out += fmt::format(" {:.0f}%", *use.utilisation * 100);
  if (use.celsius) out += fmt::format(" {:.0f}C", *use.celsius);
  if (use.watts) out += fmt::format(" {:.0f}W", *use.watts);
  if (use.used_bytes) out += " " + size_text(*use.used_bytes);
  return out.empty() ? "" : " gpu:" + out;
}

std::string step_text(const Metrics& m, int64_t steps, double seconds_left) {
  const double waited = m.wait_seconds.data + m.wait_seconds.comm + m.wait_seconds.offload;
  const std::string skipped = m.skipped ? fmt::format(" skipped: overflow at loss scale {:g}", m.loss_scale) : "";
  const std::string padding = m.padding ? fmt::format(" pad: {:.1f}%", 100 * *m.padding) : "";
  // If the device has memory of its own, that is what is scarce; the host's is printed beside it.
  const std::string memory = m.own_memory ? size_text(m.device_peak_bytes) + " host: " + size_text(m.host_peak_bytes)
                                          : size_text(std::max(m.device_peak_bytes, m.host_peak_bytes));
  const std::string mfu = std::isfinite(m.mfu) ? fmt::format(" mfu: {:.1f}%", m.mfu * 100) : "";
  return fmt::format("step {}/{} loss: {}{} lr: {} grad_norm: {}{}{} tok/s: {}{}{} mem: {}{} wait: {} left: {}", m.step,
                     steps, finite(m.loss, "{:.4f}"), shown_text(m.terms), finite(m.lr, "{:.2e}"),
                     finite(m.grad_norm, "{:.2f}"), skipped, shown_text(m.observed),
                     finite(m.tokens_per_second, "{:.0f}"), padding, mfu, memory, m.device ? use_text(*m.device) : "",
                     finite(waited / m.step_seconds * 100, "{:.0f}%"), duration_text(seconds_left));
}

// A wrapped line could not be drawn over, so the bar has what is left of the line, and the text is cut.
std::string live_text(std::string text, int64_t step, int64_t steps, size_t columns, bool colour) {
  constexpr size_t least = 10, most = 32;
  // Values that other tools show as well go first.
  if (const size_t at = text.find(" gpu: "), end = text.find(" wait: ");
      text.size() > columns && at < end && end != text.npos)
    text.erase(at, end - at);
  const size_t left = columns > text.size() ? columns - text.size() : 0;
  if (const size_t at = text.find(" loss: "); left > least && at != text.npos)
    text.insert(at, " " + bar(step, steps, std::min(left - 1, most)));
  text = text.substr(0, columns);
  if (!colour) return text;
  paint(text, "[", "]", true, cyan);
  paint(text, " loss: ", " ", false, bold);
  paint(text, "skipped: ", "", true, yellow);
  return text;
}

std::string eval_text(int64_t step, const Evaluation& e) {
  std::string terms;
  for (const Named& one : e.terms) terms += fmt::format("  {} {}", one.name, finite(one.value, "{:.4g}"));
  for (const Named& one : e.sources) terms += fmt::format("  {} {}", one.name, finite(one.value, "{:.4f}"));
  return fmt::format("eval step {}  loss: {}{}  ppl {}  ({} tokens, {})", step, finite(e.loss, "{:.4f}"), terms,
                     finite(std::exp(e.of_text()), "{:.2f}"), e.tokens, duration_text(e.seconds));
}

std::string saved_text(const Saved& s) {
  return fmt::format("saved {}  {} in {}{}", s.path.filename().string(), size_text(s.bytes), duration_text(s.seconds),
                     s.best ? "  best" : "");
}

Progress::Progress(Outlet& out, int fd, const Look& look, int64_t every, int64_t steps)
    : out_(out), fd_(fd), look_(look), every_(std::max<int64_t>(1, every)), steps_(steps) {}

Progress::~Progress() {
  finish();
}

void Progress::step(const Metrics& m, double seconds_left) {
  const bool shown = first_ || m.step % every_ == 0 || m.step == steps_;
  first_ = false;
  if (m.device) use_ = m.device;
  Metrics now = m;
  now.device = use_;
  const std::string text = step_text(now, steps_, seconds_left);
  if (look_.terminal) {
    live_ = live_text(text, m.step, steps_, columns(fd_) - 1, look_.colour);
    out_.put("\r\x1b[K" + live_);
  } else if (shown) {
    out_.put(text + "\n");
  }
}

void Progress::evaluated(int64_t step, const Evaluation& evaluation) {
  const std::string text = eval_text(step, evaluation);
  line(look_.colour ? painted(text, green) : text);
}

void Progress::alert(int64_t step, const std::string& text) {
  const std::string whole = fmt::format("alert step {}  {}", step, text);
  line(look_.colour ? painted(whole, yellow) : whole);
}

void Progress::saved(const Saved& saved) {
  const std::string text = saved_text(saved);
  line(look_.colour ? painted(text, dim) : text);
}

void Progress::finish() {
  if (!live_.empty()) out_.put("\n");
  live_.clear();
}

void Progress::line(const std::string& text) {
  if (!look_.terminal || live_.empty()) return out_.put(text + "\n");
  out_.put("\r\x1b[K" + text + "\n" + live_);
}

}  // namespace eng
