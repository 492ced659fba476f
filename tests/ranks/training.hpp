// SPDX-License-Identifier: Apache-2.0
// A run of ranks that is disturbed.
#pragma once

#include <signal.h>

#include <regex>

#include "processes.hpp"

namespace cli {

inline bool all_gone(const std::string& word, double seconds) {
  const auto begin = Clock::now();
  while (!processes(word).empty()) {
    if (seconds_since(begin) > seconds * patience) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// As its log says; it may have just begun.
inline pid_t pid_of(const fs::path& run, int rank) {
  const fs::path log = run / "logs" / ("rank-0000" + std::to_string(rank) + ".log");
  for (const auto begin = Clock::now(); seconds_since(begin) < 10 * patience;
       std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
    const std::string text = read(log);
    std::smatch found;
    if (std::regex_search(text, found, std::regex(R"(as process (\d+);)"))) return std::stoi(found[1]);
  }
  throw std::runtime_error("no process in " + log.string());
}

// A run of ranks in `scratch`/run that would take minutes.
struct Training {
  explicit Training(const Args& more = {}, const std::string& ranks = "2", Limits limits = {}) {
    scratch.config();
    Args args = {"run",
                 "config.toml",
                 "--out",
                 run.string(),
                 "--ranks",
                 ranks,
                 "train.steps=100000",
                 "train.eval_every=0",
                 "train.accumulate=8",
                 "checkpoint.every=5",
                 "checkpoint.keep=2"};
    args.insert(args.end(), more.begin(), more.end());
    child.emplace(scratch, args, limits);
  }
  ~Training() {
    child.reset();
    for (const pid_t left : processes(run.string())) kill(left, SIGKILL);
  }
  // Goes on for two steps more than it has.
  void goes_on(const std::string& ranks = "2") {
    REQUIRE(engine(scratch, {"ckpt", "verify", run.string()}).exit == 0);
    const std::string last = state(run).at("last_checkpoint");
    const int64_t step = std::stoll(last.substr(5));
    const Result on =
        engine(scratch, {"run", run.string(), "--ranks", ranks, "train.steps=" + std::to_string(step + 2)});
    INFO(on.err);
    CHECK(on.exit == 0);
    CHECK(has(on.err, "resumes from " + last));
    CHECK(state(run).at("step") == step + 2);
  }
  Scratch scratch;
  fs::path run = scratch / "run";
  std::optional<Child> child;
};

}  // namespace cli
