// SPDX-License-Identifier: Apache-2.0
// `engine analyse` with a small curvature job, and what it measured.
#pragma once

#include "../cli/harness.hpp"

namespace curvature_analysis {

using namespace cli;

inline const Args small = {"job.probes=4",        "job.windows=4",     "job.held_windows=4",
                           "job.train_windows=4", "job.noise_seeds=2", "job.noise=[0.0, 0.01]"};

inline Args words(const std::string& target, const std::string& out, const Args& more = {}) {
  Args all = {"analyse", target};
  if (target != out) {  // else it is resumed
    all.insert(all.end(), {"--out", out});
    all.insert(all.end(), small.begin(), small.end());
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

inline Json results(const fs::path& analysis) {
  return Json::parse(read(analysis / "results.json"));
}
// The measured values: without times, memory and how they were computed.
inline Json measured(const fs::path& analysis) {
  Json r = results(analysis);
  for (const char* of_the_run : {"timestamp", "memory", "engine", "device"}) r.erase(of_the_run);
  return r;
}
inline Json analysed(const Scratch& scratch, const std::string& out, const Args& more = {},
                     const std::string& target = "config.toml") {
  const Result done = engine(scratch, words(target, out, more));
  INFO(done.err);
  REQUIRE(done.exit == 0);
  CHECK(state(scratch / out).at("status") == "done");
  return measured(scratch / out);
}

}  // namespace curvature_analysis
