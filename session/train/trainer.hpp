// SPDX-License-Identifier: Apache-2.0
// A run, step by step: batches in, programs run, metrics out, checkpoints between steps. With the setup of an
// evaluation it only initialises, loads and evaluates.
#pragma once

#include <functional>

#include "core/execute/executor.hpp"
#include "session/checkpoint/memory_copies.hpp"
#include "session/checkpoint/packed.hpp"
#include "session/clock.hpp"
#include "session/data/data.hpp"
#include "session/planning/schedule.hpp"
#include "session/planning/setup.hpp"
#include "session/train/device_use.hpp"
#include "session/train/results.hpp"

namespace eng {

// The results of one step. The first group is a pure function of configuration, data and seeds; the second depends on
// the machine and the moment.
struct Metrics {
  int64_t step = 0;
  uint64_t tokens = 0;  // of all steps so far
  double loss = 0, grad_norm = 0, lr = 0, loss_scale = 1;
  bool skipped = false;         // the gradients were not finite, and nothing was updated
  bool updated_again = false;   // early updates were undone and made again: the step was clipped or skipped
  std::vector<Named> terms;     // of the loss, if it names them: means over labels, sequences or pairs
  std::vector<Named> observed;  // by observers whose turn it is
  // For each observer with `after_step`, all results of this step, by its own names; nothing for the others.
  std::vector<std::vector<Named>> own;
  std::optional<double> eval_loss;  // of an evaluation right after this step
  std::vector<Named> eval_sources;  // of the same, for each source of a mixture
  // The sources of a mixture: their samples in the step, the labels of these that count, and the loss of these, if each
  // micro-batch is of one source.
  struct Part {
    std::string name;
    int64_t samples, tokens;
    std::optional<double> loss = {};
  };
  std::vector<Part> sources;
  std::optional<double> padding;  // share of the positions without a token, where documents are packed

  double tokens_per_second = 0, mfu = 0, step_seconds = 0;
  struct {
    double data = 0, comm = 0, offload = 0;
  } wait_seconds;
  uint64_t device_peak_bytes = 0, host_peak_bytes = 0;
  bool own_memory = false;          // of the device: no part of the host's
  std::optional<DeviceUse> device;  // at most once a second, of a device that tells it
};

struct Evaluation {
  double loss = 0;      // mean over valid tokens
  uint64_t tokens = 0;  // valid labels
  double seconds = 0;
  std::vector<Named> terms = {};
  std::vector<Named> sources = {};  // the loss of each source of a mixture that has something held out
  // The term from which perplexity is computed, if that is not the loss: the first cross entropy among the terms; NaN
  // if there is none.
  std::optional<double> cross_entropy = {};
  double of_text() const { return cross_entropy.value_or(loss); }
};

// Fills this rank's part of the given parameters from existing weights. Throws the same error on all ranks.
using Weights = std::function<void(const std::vector<TensorShare>& parameters, const Fill& fill, const Peers& peers)>;

class Trainer {
 public:
  // `comm` if there are several ranks; all ranks call the functions below together. `choices`: on rank 0, of the run so
  // far (choices_of).
  Trainer(const Config& config, Registry& registry, const Setup& setup, const Data& data, Communicator* comm = nullptr,
          const std::string& choices = "");

  // For a plan with a reference model that has weights of its own, before the two functions below: whatever fills them,
  // or nothing if they begin as the model's parameters do. Checkpoints keep `hash`, of the weights that are filled in,
  // and a run goes on with equal ones only.
  void set_reference(Weights weights, std::string hash) { reference_ = {true, std::move(weights), std::move(hash)}; }
  // Step 0: parameters from the model's initialisation rules, or `weights`.
  void initialise(const Weights& weights = {});
  // Parameters, optimizer state and position from a checkpoint directory. Throws Error(Exit::checkpoint).
  void load(const std::filesystem::path& checkpoint);
  int64_t step() const { return step_; }
  const std::string& last_checkpoint() const { return last_checkpoint_; }  // its name; "" if there is none

  // Facts of the checkpoint that was loaded: RunPoint::extra.
  const std::map<std::string, std::string>& facts() const { return facts_; }
  // Algorithms of the device that were measured, as text; "" if nothing was.
  const std::string& choices() const { return choices_; }

  // This rank's part of every step, and how many samples all ranks have taken so far, in steps of any size.
  const Cut& cut() const { return cut_; }
  uint64_t samples() const { return samples_; }
  bool single_rank() const { return setup_.plan.ranks.world.size == 1; }
  bool trains() const { return setup_.plan.table.buffer != 0; }
  const Observers& observers() const { return setup_.observers; }
  const Config& config() const { return config_; }
  Registry& registry() const { return registry_; }
  const Setup& setup() const { return setup_; }

  // The result of the exchange before a step.
  struct Agreed {
    double divisor = 0;                   // Batch::divisor of the whole batch
    double own_loss = 0;                  // the caller's, of all ranks
    int64_t padding = 0;                  // its positions without a token
    bool stop = false;                    // some rank was asked to stop
    std::vector<Batch::Part> parts = {};  // of a mixture, by source
  };
  Agreed agree(const Batch& batch, bool stop) const;
  // Throws Error(Exit::usage) unless a batch has a gradient for each micro-batch with the caller's loss, else none.
  void check_loss(const Batch& batch) const;
  // One step. With the caller's loss, the batch has its gradients. With a single rank, `stop` is called between
  // micro-batches; if it ends the step, the result is nullopt and the step does not count. Throws Error(Exit::numerics)
  // naming step and tensor when loss or gradient norm is not finite.
  std::optional<Metrics> train(const Batch& batch, const Agreed& agreed, double data_wait, bool (*stop)());
  // The learning rate of the next steps, instead of the schedule's; none: the schedule's. Checkpoints do not keep it.
  void set_rate(std::optional<double> rate);
  // That of the next step.
  double rate() const { return rate_.value_or(schedule_.at(updates_ + 1)); }
  // This rank's rows of one micro-batch, (rows, T); they are the held-out data of no source. `program`: "eval", or
  // eval_with_sites, which keeps activations too.
  Evaluation evaluate(const Batch& batch, const char* program = "eval");
  // Computes `Plan::logits` of one micro-batch of tokens, with a setup that asks for logits; or those of a shape.
  void logits(const Batch& batch, const Shape* shape = nullptr);
  // For a plan with a job. The gradients of one batch of all ranks, of which this is the divisor: they stay. Returns
  // the mean loss. Random ops draw as in a first step.
  double gradients(const Batch& batch, double divisor);
  // The sum of the losses of this rank's rows of one micro-batch, by one of the programs that evaluate.
  double loss_of(const Batch& batch, const char* program);
  // Program k, which finds these ENG_S_COUNT scalars, and `counter` where the updates are counted.
  void job_program(uint32_t k, const float* scalars, int64_t counter);
  // The weights that compute reads, from their masters: after somebody else wrote these.
  void publish() { settle(), executor_.run("publish"); }
  // With offload.update_late: ends the update that the last step has left to the next one. Whatever reads or writes
  // states does this first.
  void settle();
  // See Executor.
  void record(ActionRecorder* recorder) { executor_.record(recorder); }
  // The first `batches` micro-batches of the validation split, of a mixture those of each source. `seen` is called with
  // each that this rank reads.
  Evaluation evaluate(int64_t batches, const std::function<void(const Batch&)>& seen = {},
                      const char* program = "eval");

  // Saves into this folder, as set by [checkpoint]; one checkpoint at a time. See Saver.
  void save_into(const std::filesystem::path& checkpoints);
  // `config_hash`: of the resolved configuration, kept with the checkpoint, as are `facts`.
  void begin_save(const std::string& config_hash, const std::map<std::string, std::string>& facts = {});
  // Keeps a copy in memory of what begin_save would save. Returns a text to tell, or "".
  std::string copy(MemoryCopies& copies, const std::string& config_hash,
                   const std::map<std::string, std::string>& facts);
  std::optional<Saved> end_save(bool wait);  // the checkpoint that became complete, if any

  // Between programs: elements of this rank's part of a tensor. What it does not hold is left as it is.
  Read reader() { return settle(), reader_of(setup_.plan, executor_); }
  Fill fill() { return settle(), fill_of(setup_.plan, executor_); }
  // Elements [first, first + n) of a tensor, which all ranks bring together if each holds a part.
  void gather(const TensorSpec& tensor, uint64_t first, uint64_t n, char* to);
  const Executor& executor() const { return executor_; }
  // From memory of the device, which need not be the plan's.
  void download(void* to, const void* from, uint64_t bytes) { machine_->device.download(to, from, bytes); }
  // Keeps the memory of the plan allocated, also beyond this object. Gives it back like an object of the device: in
  // [setup] of engine/base.h.
  std::shared_ptr<const void> memory() const;
  Peers peers() const {
    const World& world = setup_.plan.ranks.world;
    return {world.rank, world.size, exchange_, config_.section("comm").number("timeout")};
  }

 private:
  RunPoint point(const std::string& config_hash, const std::map<std::string, std::string>& facts) const;
  void upload_table(int64_t steps);
  bool run_step(const Batch& batch, bool (*stop)());
  bool update_again();
  void need_own_loss() const;
  void upload_rate();
  bool reference_begins() const;
  void fill_reference();
  void upload_counters(int64_t step, int64_t updates);
  [[noreturn]] void not_finite(double loss, double norm);
  std::span<char> staging();
  void stage(const Batch& batch) { stage(batch, setup_.plan.fields); }
  void stage(const Batch& batch, const std::vector<Input>& fields);
  struct Sums {
    uint64_t tokens = 0, sequences = 0;
    double divisor = 0;          // Batch::divisor
    std::vector<double> losses;  // one for each term
  };
  Sums together(Sums mine) const;
  void conclude(Evaluation& evaluation, const Sums& sums) const;
  void observe(const float* values, Metrics& metrics) const;
  void add_sources(const float* values, const Agreed& agreed, Metrics& metrics) const;

  const Config& config_;
  Registry& registry_;
  const Setup& setup_;
  const Data& data_;
  Schedule schedule_;
  // Made first, and destroyed last.
  struct Machine {
    Device device;
    Host host;
  };
  const std::shared_ptr<Machine> machine_;
  Exchange exchange_;
  std::string choices_;
  struct {
    bool set = false;
    Weights weights;
    std::string hash;
  } reference_;
  Executor executor_;
  Cut cut_;
  int64_t length_, step_ = 0, updates_ = 0;  // steps taken; updates that were not skipped
  View own_gradient_;                        // by the logits of a micro-batch, with the caller's loss; else none
  bool settled_ = true;                      // nothing is left of the last step's update
  double loss_scale_ = 1;                    // of the last step
  std::optional<double> rate_;               // set_rate
  uint64_t samples_ = 0, tokens_ = 0;        // of all steps so far
  double seconds_at_peak_;                   // of one device per token; 0: unknown
  std::string last_checkpoint_;
  std::map<std::string, std::string> facts_;
  std::optional<Saver> saver_;  // while it trains
};

// Algorithms that the device of a run had measured when it wrote this checkpoint; "" if there are none. Throws
// Error(Exit::checkpoint).
std::string choices_of(const std::filesystem::path& checkpoint);

}  // namespace eng
