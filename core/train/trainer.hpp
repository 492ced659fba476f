// SPDX-License-Identifier: Apache-2.0
// The training loop: batches in, programs run, metrics out, checkpoints between steps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/execute/executor.hpp"
#include "core/train/loader.hpp"
#include "core/train/run_dir.hpp"
#include "core/train/schedule.hpp"
#include "core/train/setup.hpp"

namespace eng {

struct Evaluation {
  double loss = 0;      // mean over valid tokens
  uint64_t tokens = 0;  // valid labels
  double seconds = 0;
};

// Told what happens, between steps.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void step(const Metrics& metrics, double seconds_left) = 0;
  virtual void evaluated(int64_t step, const Evaluation& evaluation) = 0;
  virtual void saved(const Saved& saved) = 0;
};

class Trainer {
 public:
  struct Options {
    bool (*stop)() = nullptr;  // asked between micro-batches: finish the micro-batch, save, leave
    std::optional<double> max_seconds;
    std::string config_hash;  // of the resolved configuration, kept with every checkpoint
  };
  Trainer(const Config& config, Registry& registry, const Setup& setup, const Data& data);

  // Parameters from the model's initialisation rules; step 0.
  void initialise();
  // Parameters, optimizer state and position from a checkpoint directory. Throws Error(Exit::checkpoint).
  void load(const std::filesystem::path& checkpoint);
  int64_t step() const { return step_; }

  // Trains to the configured number of steps, into the run directory. Returns Exit::done or Exit::stopped.
  // Throws Error(Exit::numerics) naming step and tensor when loss or gradient norm is not finite.
  Exit train(const RunDir& run, Listener& listener, const Options& options);
  // The first `batches` micro-batches of the validation split.
  Evaluation evaluate(int64_t batches);

 private:
  Exit loop(const RunDir& run, Listener& listener, const Options& options);
  // One step; nullopt if it was stopped inside, and so did not happen.
  std::optional<Metrics> train_step(Loader& loader, bool (*stop)());
  Saved save(const RunDir& run, const Options& options);
  void upload_counters(int64_t step);
  [[noreturn]] void not_finite(double loss, double norm);
  Staging staging();
  uint64_t samples() const { return static_cast<uint64_t>(step_ * accumulate_ * batch_); }  // taken so far

  const Config& config_;
  Registry& registry_;
  const Setup& setup_;
  const Data& data_;
  Schedule schedule_;
  Device device_;
  Executor executor_;
  std::vector<float> losses_;
  int64_t steps_, batch_, length_, accumulate_;
  int64_t step_ = 0;
  std::string last_checkpoint_;  // its name; "" if there is none
};

}  // namespace eng
