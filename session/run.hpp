// SPDX-License-Identifier: Apache-2.0
// A training run, from its configuration to its files, as one of its ranks does it. Prints nothing: a RunListener is
// told what there is to tell.
#pragma once

#include <optional>

#include "session/open.hpp"
#include "session/ranks/member.hpp"
#include "session/train/training.hpp"
#include "session/weights.hpp"

namespace eng {

struct RunRequest {
  OpenRequest open;             // a configuration, or a run to go on with
  std::filesystem::path out;    // the run directory itself: new, empty or a run; "": a new one below [run] out
  std::string resume = "auto";  // "auto", "never", "must", or the step of a checkpoint
  std::string trace;            // see TraceFile
  std::optional<double> max_seconds;
  bool (*stop)() = nullptr;  // asked between micro-batches: finish the micro-batch, save, leave
  // Makes the file that the data source wants, before Data is constructed; empty: it must be there.
  std::function<void(const Config& config, Registry& registry, int64_t vocabulary)> build_data;
};

// How a rank begins: what it has trained, from where, and for how long.
struct RunStart {
  const std::filesystem::path& directory;
  const Config& config;
  const Setup& setup;
  const Data& data;
  std::optional<std::filesystem::path> from;  // the checkpoint that it goes on from
  int64_t step = 0;                           // done before
};

// Told on the thread of run_rank, and on rank 0 only, in this order; then, between steps, as a Listener.
class RunListener : public Listener {
 public:
  virtual void note(const std::string& text) = 0;                 // something has no effect
  virtual void passed_over(const CheckpointRow& checkpoint) = 0;  // it is damaged
  virtual void reading(const std::filesystem::path& weights, uint64_t done, uint64_t all) = 0;  // bytes
  virtual void started(const RunStart& start) = 0;
};

struct RunEnd {
  Exit exit = Exit::done;           // or Exit::stopped, with a complete checkpoint
  std::filesystem::path directory;  // "" on ranks other than the first
  bool held_out = false;            // there is data to evaluate on
};

// Trains from the first step to the last, or until it is asked to stop. All ranks of `member` call it. Throws Error; by
// then `member` and state.json have been told.
// Thread: one; a process has one run at a time for each Member.
RunEnd run_rank(const RunRequest& request, Member& member, RunListener& listener);

// Throws Error(Exit::usage) for what RunRequest::resume cannot be.
void check_resume(const std::string& resume);

// A line for each: "step-00000100  1.5 MiB  12 tensors  complete".
std::string checkpoint_table(const std::vector<CheckpointRow>& rows);

}  // namespace eng
