// SPDX-License-Identifier: Apache-2.0
// The training loop: step after step to the end of the run, or until it is stopped.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "session/checkpoint/best.hpp"
#include "session/train/after_step.hpp"
#include "session/train/loader.hpp"
#include "session/train/trace_events.hpp"
#include "session/train/trainer.hpp"

namespace eng {

// Called between steps.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void step(const Metrics& metrics, double seconds_left) = 0;
  virtual void evaluated(int64_t step, const Evaluation& evaluation) = 0;
  virtual void alert(int64_t step, const std::string& text) = 0;  // a line that an observer gives, on rank 0
  virtual void saving() = 0;  // all events before this one belong to the next checkpoint
  virtual void saved(const Saved& saved) = 0;
};

struct Training {
  std::filesystem::path checkpoints;  // the folder for checkpoints; "": none are saved
  bool (*stop)() = nullptr;           // called between micro-batches; true: finish the micro-batch, save, exit
  std::optional<double> max_seconds;
  std::string config_hash;            // of the resolved configuration, kept with every checkpoint
  std::filesystem::path copies = {};  // the folder for copies in memory; "": there are none
  Trace* trace = nullptr;             // records when the actions of some steps ran
};

// The loop of a run, one step at a time. All ranks call its functions together.
class TrainingLoop {
 public:
  // Borrows all of them.
  TrainingLoop(Trainer& trainer, const Config& config, const Data& data, Listener& listener, const Training& options);
  // True if there is a step to make: not after the last one, nor after a stop.
  bool more() const { return !stopped_ && trainer_.step() < steps_ && over().empty(); }
  // The reason why the run ends before its last step without being stopped; "" otherwise.
  std::string over() const {
    if (trainer_.step() >= steps_) return "";
    return ended_.empty() ? progression_.over() : ended_;
  }
  // Makes one, with what is due after it: evaluation, checkpoint. A stop may leave the step out. With `given`, this
  // rank's batch, the data are not read; their position moves on by a step all the same. A batch without tokens is for
  // a step that Training::stop leaves out. Throws as Trainer::train does.
  void step(const Batch* given = nullptr);
  // Saves a checkpoint of the last step, unless there is one, and waits for it.
  void save();
  // Waits for a checkpoint that is being written. Exit::stopped before the last step, unless it is `over`.
  Exit end();

 private:
  bool due(int64_t every) const { return every > 0 && trainer_.step() % every == 0; }
  const Batch& next();
  void begin_save();
  void end_save(bool wait);
  void copy();
  Trainer& trainer_;
  const Data& data_;
  Listener& listener_;
  const Training options_;
  const int64_t eval_every_, eval_batches_, first_, steps_, save_every_, copy_every_;
  const bool saves_, saves_last_, asynchronous_;  // whether anything is saved, and the last step
  Progression progression_;
  AfterStep after_;
  std::string ended_;  // why an observer ends the run
  int64_t saved_at_;
  bool stopped_ = false;
  const SteadyClock::time_point started_;
  std::unique_ptr<MemoryCopies> copies_;
  std::optional<Loader> loader_;  // where the last step's batch was the data's
};

}  // namespace eng
