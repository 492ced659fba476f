// SPDX-License-Identifier: Apache-2.0
// What a run leaves in its directory: who it is, and what happens to it.
#pragma once

#include "session/report/trace.hpp"
#include "session/run.hpp"
#include "session/run_dir.hpp"

namespace eng {

// A configuration as it is written beside a run, made once.
struct ResolvedConfig {
  explicit ResolvedConfig(const Config& config);
  std::string text, hash;
};

// run.json: what would have to be the same for the run to be the same; config.toml, config.resolved.toml and plan.txt.
// `again`: the run goes on by its resolved configuration, and what the user wrote stays what the user wrote.
// `plugin_folders`: see Opened.
void write_identity(const RunDir& run, const Member& member, const Registry& registry, const RunStart& start,
                    const ResolvedConfig& resolved, const std::vector<std::filesystem::path>& plugin_folders,
                    bool again);

// Keeps the run directory up to date, then passes on what happened.
class Recorder final : public Listener {
 public:
  Recorder(const RunDir& run, const Trainer& trainer, TraceFile& trace, Listener& next);
  void step(const Metrics& metrics, double seconds_left) override;
  void evaluated(int64_t step, const Evaluation& evaluation) override { next_.evaluated(step, evaluation); }
  void saving() override {
    metrics_.sync();
    next_.saving();
  }
  void saved(const Saved& saved) override;
  // How it ended: in state.json. `failed` never throws.
  void ended(Exit exit) const;
  void failed(Exit exit) const noexcept;

 private:
  void state(const char* status, int exit_code) const;
  const RunDir& run_;
  const Trainer& trainer_;
  TraceFile& trace_;
  Listener& next_;
  MetricsFile metrics_;
};

// Of ranks other than the first: their own trace.
class Silent final : public Listener {
 public:
  explicit Silent(TraceFile& trace) : trace_(trace) {}
  void step(const Metrics& metrics, double) override { trace_.step(metrics.step); }
  void evaluated(int64_t, const Evaluation&) override {}
  void saving() override {}
  void saved(const Saved&) override {}

 private:
  TraceFile& trace_;
};

}  // namespace eng
