// SPDX-License-Identifier: Apache-2.0
// The training loop: step after step to the end of the run, or until it is stopped.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "session/report/trace_events.hpp"
#include "session/train/trainer.hpp"

namespace eng {

// Called between steps.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void step(const Metrics& metrics, double seconds_left) = 0;
  virtual void evaluated(int64_t step, const Evaluation& evaluation) = 0;
  virtual void saving() = 0;  // all events before this one belong to the next checkpoint
  virtual void saved(const Saved& saved) = 0;
};

struct Training {
  std::filesystem::path checkpoints;  // the folder for checkpoints
  bool (*stop)() = nullptr;           // called between micro-batches; true: finish the micro-batch, save, exit
  std::optional<double> max_seconds;
  std::string config_hash;  // of the resolved configuration, kept with every checkpoint
  Trace* trace = nullptr;   // records when the actions of some steps ran
};

// Trains to the configured number of steps. Returns Exit::done or Exit::stopped, saved either way. Throws as
// Trainer::train does.
Exit run_training(Trainer& trainer, const Config& config, const Data& data, Listener& listener,
                  const Training& options);

}  // namespace eng
