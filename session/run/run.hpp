// SPDX-License-Identifier: Apache-2.0
// A training run on one of its ranks, from an opened configuration to its files. Prints nothing: a RunListener receives
// all messages.
#pragma once

#include <optional>

#include "session/objects.hpp"
#include "session/run/opening.hpp"
#include "session/train/training.hpp"

namespace eng {

struct RunRequest {
  OpenRequest open;             // a configuration, or a run to resume
  std::filesystem::path out{};  // the run directory itself: new, empty or a run; "": a new one below [run] out
  std::string resume = "auto";  // "auto", "never", "must", or the step of a checkpoint
  std::vector<std::string> allowed_changes;  // keys ("train.seed") that may change although a resumed run refuses it
  std::string trace;                         // see TraceFile
  std::optional<double> max_seconds;
  bool (*stop)() = nullptr;   // called between micro-batches; true: finish the micro-batch, save, exit
  bool files = true;          // false: no run directory, and no checkpoints; a run is read, and stays as it is
  Readable readable = {};     // what others read of it
  OpenStore open_store = {};  // for [checkpoint] second = "s3://..."
  bool tell_all = false;      // the listener hears of steps on each rank, with files or without
};

// The start of a rank: from which weights and at which step.
struct RunStart {
  const std::filesystem::path& directory;
  const Config& config;
  const Setup& setup;
  const Data& data;
  std::optional<std::filesystem::path> from;  // the checkpoint from which it resumes
  int64_t step = 0;                           // completed before
  std::string job = {};                       // of an analysis; "" for a run
};

// Called on the thread of the run, on rank 0 only (see RunRequest::tell_all): as an OpeningListener, then `started`,
// and between steps as a Listener.
class RunListener : public Listener, public OpeningListener {
 public:
  virtual void started(const RunStart& start) = 0;
};

struct RunEnd {
  Exit exit = Exit::done;           // or Exit::stopped, with a complete checkpoint if the run saves any
  std::filesystem::path directory;  // "" on ranks other than the first
  std::string last_checkpoint;      // its name; "" if the run has none
  bool held_out = false;            // there is held-out data
  std::string over = {};            // why it ended before its last step without a stop; "" otherwise
};

// A run on one of its ranks, step by step. All ranks call its functions together. If one of them throws, the failure
// was reported to `member` and written to state.json, and the run can only be destroyed. Thread: one at a time; a
// process may have several runs, but only one of several ranks.
class Run {
 public:
  // Joins the ranks, plans, makes or reads the weights, and makes the run directory, all by way of `opening`: that of
  // `request.open`, not joined yet. Borrows `opening` and `listener`. Throws Error.
  Run(const RunRequest& request, Opening& opening, RunListener& listener);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // See TrainingLoop.
  std::string over() const;
  // See TrainingLoop. Without [data], `step` must be given a batch.
  bool more() const;
  void step(const Batch* given = nullptr);
  // A checkpoint of the last step. Throws Error(Exit::usage) without a run directory.
  void save();
  // Waits for what is being written, and records how the run ended.
  RunEnd end();
  // Called if the maker of the steps cannot go on: reported and recorded as if a step had failed.
  void fail(const std::string& why);

 private:
  struct State;
  template <class Work>
  auto guarded(const Work& work);
  std::unique_ptr<State> state_;
};

// Opens the configuration, and trains from the first step to the last, or until it is asked to stop. All ranks of
// `member` call it. `build_data`: see OpeningOptions. Throws Error, after the failure was reported to `member` and
// written to state.json.
RunEnd run_rank(const RunRequest& request, Member& member, RunListener& listener, BuildData build_data = {});

// Throws Error(Exit::usage) for an invalid RunRequest::resume.
void check_resume(const std::string& resume);

// A line for each: "step-00000100  1.5 MiB  12 tensors  complete".
std::string checkpoint_table(const std::vector<CheckpointRow>& rows);

}  // namespace eng
