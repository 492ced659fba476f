// SPDX-License-Identifier: Apache-2.0
// The training loop: batches in, programs run, metrics out, checkpoints between steps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/exchange.hpp"
#include "core/execute/executor.hpp"
#include "core/train/loader.hpp"
#include "core/train/schedule.hpp"
#include "core/train/setup.hpp"

namespace eng {

// What is known of one step. The first group is a pure function of configuration, data and seeds; the second
// depends on the machine and the moment.
struct Metrics {
  int64_t step = 0;
  uint64_t tokens = 0;  // of all steps so far
  double loss = 0, grad_norm = 0, lr = 0, loss_scale = 1;
  std::optional<double> eval_loss;  // of an evaluation right after this step

  double tokens_per_second = 0, mfu = 0, step_seconds = 0;
  struct {
    double data = 0, comm = 0, offload = 0;
  } wait_seconds;
  uint64_t device_peak_bytes = 0, host_peak_bytes = 0;
};

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
  virtual void saving() = 0;  // what was told so far belongs to the checkpoint that comes
  virtual void saved(const Saved& saved) = 0;
};

class Trainer {
 public:
  struct Options {
    std::filesystem::path checkpoints;  // the folder they are saved into
    bool (*stop)() = nullptr;           // asked between micro-batches: finish the micro-batch, save, leave
    std::optional<double> max_seconds;
    std::string config_hash;  // of the resolved configuration, kept with every checkpoint
    Trace* trace = nullptr;   // of which steps it wants: when their actions ran
  };
  // `comm` where the plan is one of several ranks'; all call everything below together.
  Trainer(const Config& config, Registry& registry, const Setup& setup, const Data& data, Communicator* comm = nullptr);

  // Step 0: parameters from the model's initialisation rules, or `weights` that exist already (weights_source).
  void initialise(const std::filesystem::path& weights = {}, const WeightsProgress& progress = {});
  // Parameters, optimizer state and position from a checkpoint directory. Throws Error(Exit::checkpoint).
  void load(const std::filesystem::path& checkpoint);
  int64_t step() const { return step_; }
  const std::string& last_checkpoint() const { return last_checkpoint_; }  // its name; "" if there is none

  // Trains to the configured number of steps. Returns Exit::done or Exit::stopped, saved either way.
  // Throws Error(Exit::numerics) naming step and tensor when loss or gradient norm is not finite.
  Exit train(Listener& listener, const Options& options);
  // The first `batches` micro-batches of the validation split.
  Evaluation evaluate(int64_t batches);

 private:
  // What the ranks tell each other before a step.
  struct Agreed {
    int64_t valid = 0;  // labels of the whole batch
    bool stop = false;  // somebody was asked to
  };
  Agreed agree(int64_t valid, bool stop) const;
  // One step; nullopt if it was stopped inside, and so did not happen.
  std::optional<Metrics> train_step(const Batch& batch, const Agreed& agreed, double data_wait, bool (*stop)());
  void begin_save(const Options& options);
  void saved(std::optional<Saved> saved, Listener* listener);
  void upload_counters(int64_t step);
  [[noreturn]] void not_finite(double loss, double norm);
  std::span<char> staging();
  Fill fill();
  uint64_t samples() const { return static_cast<uint64_t>(step_) * cut_.step(); }  // taken so far, by all ranks
  bool alone() const { return cut_.world == 1; }
  Peers peers() const { return {cut_.rank, cut_.world, exchange_}; }

  const Config& config_;
  Registry& registry_;
  const Setup& setup_;
  const Data& data_;
  Schedule schedule_;
  Device device_;
  Executor executor_;
  Exchange exchange_;
  Cut cut_;
  std::vector<float> losses_;  // of all micro-batches, of all ranks
  int64_t steps_, length_;
  int64_t step_ = 0;
  std::string last_checkpoint_;
  std::optional<Saver> saver_;  // while it trains
};

}  // namespace eng
