// SPDX-License-Identifier: Apache-2.0
// Emits one micro-batch of a model: every block forward, then backward.
#pragma once

#include "core/plan/emitter.hpp"
#include "core/trace/model.hpp"

namespace eng {

// Where the micro-batch finds and leaves things.
struct MicroBatch {
  View tokens, labels, scalars, counters;
  int64_t seed = 0;                                                  // of random ops
  const std::vector<View>* weights = nullptr;                        // per parameter, as they are during a pass
  const std::map<uint32_t, std::vector<View>>* constants = nullptr;  // per template
  const std::vector<std::vector<View>>* states = nullptr;            // per block, of a running sequence
  // Where the gradient of parameter p goes; called when its first contribution is written.
  std::function<View(uint32_t p)> gradient;
  // Called before each pass over a block: forward through all, then, in training, backward through all, with runs of
  // blocks that keep nothing forward again before that.
  std::function<void()> before_pass;
  // The backward of block b is complete.
  std::function<void(uint32_t block)> after_backward;
  View output;  // where forward puts what the last block puts out; absent: a transient
};

class BlockEmitter {
 public:
  BlockEmitter(const Model& model, Emitter& emitter);
  // The parameters that each pass reads, in the order of the passes.
  std::vector<std::vector<uint32_t>> reads(bool training) const;
  // Both return what the last block puts out: the loss (1).
  View forward(const MicroBatch& batch) const;
  View train(const MicroBatch& batch) const;

 private:
  struct Storage;  // per template: which values share memory, which are parameter gradients
  using Env = std::vector<View>;
  Env enter(uint32_t block, const std::vector<View>& inputs, const MicroBatch& batch) const;
  struct Pass {
    const MicroBatch& batch;
    bool training;
    std::vector<char> contributed;  // per parameter: its gradient holds something
  };
  std::vector<View> forward(uint32_t block, const std::vector<View>& inputs, Env& env, Pass& pass) const;
  void run(uint32_t block, size_t from, size_t to, Env& env, Pass& pass) const;
  size_t made_again(size_t b) const;
  size_t run_before(size_t b) const;
  uint32_t first_user(uint32_t parameter) const;
  const Model& model_;
  Emitter& emitter_;
  std::map<uint32_t, std::shared_ptr<const Storage>> storage_;
};

}  // namespace eng
