// SPDX-License-Identifier: Apache-2.0
// The files that a run writes: its identity and its progress.
#pragma once

#include "session/report/events.hpp"
#include "session/report/trace.hpp"
#include "session/run/changes.hpp"
#include "session/run/run.hpp"
#include "session/run/run_dir.hpp"
#include "session/run/second_place.hpp"

namespace eng {

// Writes run.json (what must be equal to reproduce the run, with the records of its earlier attempts), config.toml,
// config.resolved.toml and plan.txt into the directory of the opening, on rank 0. A run that is resumed from its
// resolved configuration keeps the user's text in config.toml. `changes`: since the attempt before.
void write_identity(const Opening& opening, const RunStart& start, const std::vector<Change>& changes);

// Updates the run directory, then forwards each event.
class Recorder final : public Listener {
 public:
  // `tensorboard`: also as files of events, in the run's folder of this name.
  // `monitor` is read when a line of metrics is written. `second`, or null: saved checkpoints are copied there.
  Recorder(const RunDir& run, const Trainer& trainer, TraceFile& trace, Listener& next, SecondPlace* second,
           bool tensorboard, DeviceMonitor monitor);
  void step(const Metrics& metrics, double seconds_left) override;
  void evaluated(int64_t step, const Evaluation& evaluation) override { next_.evaluated(step, evaluation); }
  void alert(int64_t step, const std::string& text) override;
  // Throws Error(Exit::disk) if the run directory was removed.
  void saving() override;
  // Throws Error(Exit::disk) if the run directory was moved: the checkpoint is in it, but others look for it elsewhere.
  void saved(const Saved& saved) override;
  // Write into state.json how the run ended. `over`: see TrainingLoop. `failed` never throws.
  void ended(Exit exit, const std::string& over) const;
  void failed(Exit exit) const noexcept;
  // Throws Error(Exit::disk) if the run's directory was removed.
  void check_there() const;

 private:
  void state(const char* status, int exit_code, const std::string& why = "") const;
  const RunDir& run_;
  const Trainer& trainer_;
  TraceFile& trace_;
  Listener& next_;
  SecondPlace* const second_;
  MetricsFile metrics_;
  std::optional<HeldFolder> curves_;  // where the events are
  DeviceMonitor monitor_;
  std::optional<EventFile> events_;
};

// Without a run directory, or on other ranks than the first: records only their trace, and forwards events if somebody
// listens.
class Silent final : public Listener {
 public:
  explicit Silent(TraceFile& trace, Listener* next = nullptr) : trace_(trace), next_(next) {}
  void step(const Metrics& metrics, double seconds_left) override {
    if (next_) next_->step(metrics, seconds_left);
    trace_.step(metrics.step);
  }
  void evaluated(int64_t step, const Evaluation& evaluation) override {
    if (next_) next_->evaluated(step, evaluation);
  }
  void alert(int64_t step, const std::string& text) override {
    if (next_) next_->alert(step, text);
  }
  void saving() override {
    if (next_) next_->saving();
  }
  void saved(const Saved& saved) override {
    if (next_) next_->saved(saved);
  }

 private:
  TraceFile& trace_;
  Listener* next_;
};

}  // namespace eng
