// SPDX-License-Identifier: Apache-2.0
// The training loop: batches in, programs run, metrics out, checkpoints between steps.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/error.hpp"
#include "core/checkpoint/checkpoint.hpp"
#include "core/execute/executor.hpp"
#include "core/train/loader.hpp"
#include "core/train/metrics.hpp"
#include "core/train/progress.hpp"
#include "core/train/run_dir.hpp"
#include "core/train/schedule.hpp"
#include "core/train/setup.hpp"

namespace eng {

Schedule make_schedule(const Config& config);

struct Evaluation {
  double loss = 0;      // mean over valid tokens
  uint64_t tokens = 0;  // valid labels
  double seconds = 0;
};

class Trainer {
 public:
  struct Options {
    bool (*stop)() = nullptr;  // asked between micro-batches: finish the micro-batch, save, leave
    std::optional<double> max_seconds;
  };
  Trainer(const Config& config, Registry& registry, const Setup& setup, const Data& data);

  // Parameters from the model's initialisation rules; step 0.
  void initialise();
  // Parameters, optimizer state and position from a checkpoint directory. Throws Error(Exit::checkpoint).
  void load(const std::filesystem::path& checkpoint);
  int64_t step() const { return step_; }

  // Trains to the configured number of steps, into the run directory. Returns Exit::done or Exit::stopped.
  // Throws Error(Exit::numerics) naming step and tensor when loss or gradient norm is not finite.
  Exit train(RunDir& run, Progress& progress, const Options& options);
  // The first `batches` micro-batches of the validation split.
  Evaluation evaluate(int64_t batches);

 private:
  struct Result {
    bool complete = true;
    double loss = 0, grad_norm = 0, data_wait = 0;
  };
  Result train_step(Loader& loader, bool (*stop)());
  Saved save(RunDir& run, Progress& progress);
  void save_state(RunDir& run, const char* status, Exit exit);
  void upload_counters(int64_t step, int64_t updates);
  [[noreturn]] void not_finite(const Result& result);
  std::vector<TensorRef> tensors() const;
  Staging staging();
  Metrics measure(const Result& result, double seconds) const;

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
  std::string last_checkpoint_;
};

}  // namespace eng
