// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/restarts.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "session/checkpoint/checkpoint.hpp"
#include "session/json.hpp"
#include "session/ranks/signals.hpp"
#include "session/report/outlet.hpp"
#include "session/report/pace.hpp"
#include "session/stamp.hpp"
#include "tools/engine/command.hpp"
#include "tools/engine/mpirun.hpp"

namespace eng {
namespace {

using Clock = std::chrono::steady_clock;

// Seconds within which what mpirun leaves behind must have ended; then it is killed.
constexpr double time_to_end = 10;
// Steps after which the rate of an attempt is told.
constexpr int64_t steps_to_tell = 10;

std::string rate_text(double tokens_per_second) {
  return tokens_per_second > 0 ? fmt::format("{:.0f} tokens/s", tokens_per_second) : "an unknown rate";
}

Json known(double rate) {
  return rate > 0 ? Json(std::round(rate * 10) / 10) : Json();
}

// The GPUs of the ranks, if they are numbered by ranks: rank 1 of places {0, 2} has the GPU that rank 2 had. "" if all
// ranks have their places, or the variable does not name a GPU for each.
std::string visible_devices(const std::vector<uint32_t>& places, uint32_t ranks) {
  if (places.size() == ranks) return "";
  const char* given = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<std::string> all;
  std::stringstream text(given ? given : "");
  for (std::string one; std::getline(text, one, ',');) all.push_back(one);
  for (uint32_t n = 0; !given && n < ranks; ++n) all.push_back(std::to_string(n));
  if (all.size() < ranks) return "";
  std::string out;
  for (const uint32_t place : places) out += (out.empty() ? "" : ",") + all[place];
  return out;
}

class Attempts {
 public:
  Attempts(Launch what, const Relaunch& how) : what_(std::move(what)), how_(how), restarts_(how.policy) {
    what_.failed = [this](const LaunchEnd& end) { return failed(end); };
    what_.watch = [this](const std::string& run) { return told_rate(run, steps_to_tell); };
  }
  int run();

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }
  std::string failed(const LaunchEnd& end);
  std::string told_rate(const std::string& run, int64_t least);
  void prepare();
  void record(Json line) const noexcept;
  bool clean(const OwnSignals& signals) const;

  Launch what_;
  const Relaunch& how_;
  Restarts restarts_;
  const Clock::time_point began_ = Clock::now();
  bool again_ = false, untold_ = false;  // whether it goes on; whether the rate after the last restart is not told yet
  std::string run_, newest_;
  RunPace before_;  // at the last failure
  uint32_t ranks_before_ = 0;
};

// Appends a line to restarts.jsonl. It informs, so a full disk does not end the run here.
void Attempts::record(Json line) const noexcept try {
  if (run_.empty()) return;
  const Fd file = open_regular(std::filesystem::path(run_) / "restarts.jsonl", O_WRONLY | O_CREAT | O_APPEND);
  const std::string text = line.dump() + "\n";
  [[maybe_unused]] const ssize_t n = ::write(file, text.data(), text.size());
} catch (const std::exception&) {
}

// The rate since the last restart, once so many steps were made.
std::string Attempts::told_rate(const std::string& run, int64_t least) {
  if (!untold_ || run.empty()) return "";
  const RunPace now = pace_of(run);
  if (now.attempt <= before_.attempt || now.steps < least) return "";
  untold_ = false;
  record(Json::ordered({{"v", 1},
                        {"time", utc_now(true)},
                        {"event", "rate"},
                        {"restart", restarts_.made()},
                        {"ranks", what_.ranks},
                        {"step", now.step},
                        {"tokens_per_second", known(now.tokens_per_second)}}));
  return fmt::format("restart {} of {}: {} rank{}: {}; before: {} rank{}, {}\n", restarts_.made(), how_.policy.most,
                     what_.ranks, what_.ranks == 1 ? "" : "s", rate_text(now.tokens_per_second), ranks_before_,
                     ranks_before_ == 1 ? "" : "s", rate_text(before_.tokens_per_second));
}

// Decides, and says so.
std::string Attempts::failed(const LaunchEnd& end) {
  if (!end.run.empty()) run_ = end.run;
  if (!end.newest.empty()) newest_ = end.newest;
  const std::string rate = told_rate(run_, 1);
  const RunPace now = run_.empty() ? RunPace() : pace_of(run_);
  const uint32_t ranks = what_.ranks;
  const std::string why =
      end.asked ? "a signal asked it to stop" : restarts_.after(*end.cause, !end.run.empty(), now.step + 1);
  const std::string& best = end.in_memory.empty() ? newest_ : end.in_memory;
  const int64_t from = best.empty() ? 0 : checkpoint_step(best).value_or(0);
  const int64_t lost = std::max<int64_t>(now.step - from, 0);
  Json line = Json::ordered({{"v", 1},
                             {"time", utc_now(true)},
                             {"event", why.empty() ? "restart" : "end"},
                             {"restart", restarts_.made()},
                             {"of", how_.policy.most},
                             {"why", end.cause->text},
                             {"exit_code", end.exit},
                             {"rank", nullptr},
                             {"signal", nullptr},
                             {"step", now.step},
                             {"checkpoint", nullptr},
                             {"steps_lost", lost},
                             {"ranks_before", ranks},
                             {"ranks", why.empty() ? restarts_.ranks() : 0},
                             {"tokens_per_second_before", known(now.tokens_per_second)}});
  if (end.cause->lost) line["rank"] = *end.cause->lost;
  if (end.cause->signal) line["signal"] = end.cause->signal;
  if (!best.empty()) line["checkpoint"] = best;
  if (!end.in_memory.empty()) line["in_memory"] = true;
  if (!why.empty()) line["ended"] = why;
  record(std::move(line));
  again_ = why.empty();
  if (!again_) {
    LaunchEnd last = end;
    last.run = run_, last.newest = newest_;
    return rate + failure_text(what_, last, "not started again: " + why);
  }
  before_ = now, ranks_before_ = ranks, untold_ = true;
  const Failure cause{end.exit, printable_lines(end.cause->text), printable_lines(end.cause->help)};
  return fmt::format(
      "{}{}restart {} of {}: {} rank{}{}, from {}; {} done before, {} of them again; so far {}\n", rate, text_of(cause),
      restarts_.made(), how_.policy.most, restarts_.ranks(), restarts_.ranks() == 1 ? "" : "s",
      restarts_.ranks() == ranks ? "" : fmt::format(" instead of {}", ranks),
      best.empty() ? std::string("the beginning") : best + (end.in_memory.empty() ? "" : " (in memory)"),
      now.step == 1 ? "1 step" : fmt::format("{} steps", now.step), lost, rate_text(now.tokens_per_second));
}

// The next attempt.
void Attempts::prepare() {
  what_.ranks = restarts_.ranks();
  what_.arguments = how_.words(run_, what_.ranks != how_.policy.ranks, seconds());
  what_.variables.clear();
  if (const std::string devices = visible_devices(restarts_.places(), how_.policy.ranks); !devices.empty())
    what_.variables.emplace_back("CUDA_VISIBLE_DEVICES", devices);
}

// Waits until the ranks of an attempt, which hold the run's directory and its devices, have ended. Returns true if a
// signal asks to stop.
bool Attempts::clean(const OwnSignals& signals) const {
  const auto end = Clock::now() + std::chrono::duration<double>(time_to_end);
  for (std::vector<pid_t> left; !(left = own_children()).empty();) {
    if (Clock::now() > end)
      for (const pid_t one : left) ::kill(one, SIGKILL);
    ::poll(nullptr, 0, 20);
  }
  return signals.next() != 0;
}

int Attempts::run() {
  // A process that mpirun leaves behind becomes a child of this process.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  OwnSignals signals;
  Outlet shown(STDERR_FILENO, "stderr");
  for (;;) {
    again_ = false;
    const LaunchEnd end = launch(what_, signals);
    if (!end.run.empty()) run_ = end.run;
    if (!end.cause) shown.put(told_rate(run_, 1));
    const bool stop = clean(signals) || end.asked;
    if (!again_) return end.exit;
    if (stop) {
      shown.put("a signal came: not started again\n");
      return end.exit;
    }
    prepare();
  }
}

}  // namespace

int launch_again(Launch what, const Relaunch& how) {
  return Attempts(std::move(what), how).run();
}

}  // namespace eng
