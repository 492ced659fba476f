// SPDX-License-Identifier: Apache-2.0
// Steps with a loss of the caller: each micro-batch finds the gradient that the caller gave for it.
#include "session/train/trainer.hpp"

namespace eng {
namespace {

// The gradients of the caller's loss that are still to come, while a step runs on this thread.
struct Feeding {
  Executor& executor;
  const View& to;
  std::span<const std::span<const float>> rest;
  bool (*stop)();
  void next() {
    executor.upload(to, rest.front().data());
    rest = rest.subspan(1);
  }
};
thread_local Feeding* feeding = nullptr;

// Before a further micro-batch.
bool feed() {
  if (feeding->stop && feeding->stop()) return true;
  if (!feeding->rest.empty()) feeding->next();
  return false;
}

}  // namespace

// Runs the program of a step. With the caller's loss, each micro-batch finds its gradient.
bool Trainer::run_step(const Batch& batch, bool (*stop)()) {
  if (!own_gradient_.buffer) return executor_.run("train", stop);
  Feeding mine{executor_, own_gradient_, batch.logit_gradients, stop};
  feeding = &mine;
  mine.next();
  const bool done = executor_.run("train", feed);
  if (done && !mine.rest.empty())
    throw Error(Exit::bug, "a micro-batch had no gradient of the caller's loss of its own");
  return done;
}

void Trainer::check_loss(const Batch& batch) const {
  const size_t wanted = own_gradient_.buffer ? static_cast<size_t>(cut_.accumulate) : 0;
  if (batch.logit_gradients.size() == wanted) return;
  if (!wanted)
    throw Error(Exit::usage, "the loss of this run is its own, and the step was given another one",
                "open the run with loss.plugin=caller");
  throw Error(
      Exit::usage, "loss.plugin = \"caller\": this step was given no gradients of a loss by the logits",
      "in Python: run.step(tokens=..., loss=...); in C: eng_session_step_with_loss. Else choose another loss, such "
      "as loss.plugin=cross_entropy");
}

}  // namespace eng
