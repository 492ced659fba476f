// SPDX-License-Identifier: Apache-2.0
// Emits one micro-batch of a model: the forward of every block and, in training, the backward.
#pragma once

#include "core/plan/offloaded.hpp"
#include "core/trace/model.hpp"

namespace eng {

// The inputs of BlockEmitter for one micro-batch: all of them are set before the micro-batch is emitted. Members that
// the model or the program does not need stay absent or null.
struct MicroBatch {
  // Inputs.
  std::vector<View> fields;  // of the batch, (B, T); absent where the program has none
  View scalars, counters;    // the step's f32[32] and i64[8]
  int64_t seed = 0;          // of random ops, in training
  // Tables of views. Only *weights changes during emission: before_pass makes it right for the next pass.
  const std::vector<View>* weights = nullptr;                        // per parameter of the model
  const std::map<uint32_t, std::vector<View>>* constants = nullptr;  // template -> its constants
  const std::vector<std::vector<View>>* states = nullptr;            // block -> its states
  // For activations between forward and backward, in training; null: they stay. Those of the last `stay` blocks stay
  // all the same: their backward begins before a copy could go and return.
  OffloadedActivations* offloaded = nullptr;
  uint32_t stay = 2;
  // Output.
  View output;  // receives the output of the last block in `forward`; absent: a new transient does. Absent for a
                // model with terms

  // Callbacks; the planner may emit actions in them.
  // Before each pass over a block, in the order of BlockEmitter::reads. May be empty.
  std::function<void()> before_pass;
  // In training: the outputs of a block exist, when its forward runs first. May be empty.
  std::function<void(uint32_t block, const std::vector<View>& outputs)> after_forward;
  // The outputs of a node of a block's forward exist, when it runs first. May be empty.
  std::function<void(uint32_t block, size_t node, const std::vector<View>& outputs)> after_node;
  // In training: returns the buffer for the gradient of parameter p. Called each time a block starts to write to it.
  std::function<View(uint32_t p)> gradient;
  // In training: the backward of this block is complete. Called from the last block to the first.
  std::function<void(uint32_t block)> after_backward;
};

class BlockEmitter {
 public:
  BlockEmitter(const Model& model, Span blocks, Emitter& emitter);
  // A pass over a block, and the parameters that it reads.
  struct Reads {
    uint32_t block;
    bool backward;
    std::vector<uint32_t> params;
  };
  // In the order of the passes: its blocks forward; then, in training, its blocks backward from the last one, each
  // after the forward passes that are repeated for it.
  std::vector<Reads> reads(bool training) const;
  struct Pass {
    const MicroBatch& batch;
    bool training;
    std::vector<char> contributed;  // per parameter: whether something is written to its gradient
    bool again = false;             // every block had its forward
  };
  using Env = std::vector<View>;  // value of a block's template -> its view
  // A micro-batch between its forward and its backward.
  struct Flight {
    Pass pass;
    std::vector<Env> envs, inputs;  // per block
    std::vector<View> values;  // the outputs of the last block; after the backward, the gradients of the first one's
                               // inputs
  };
  // Emits the micro-batch. `values`: the inputs of the first of its blocks, if that is not the model's. Returns the
  // terms of the loss, (1) each, in the order of Template::terms. Without the last block of the model, or of a model
  // without terms, the outputs of the last of its blocks: of the model's, the loss (1), or what replaced it.
  std::vector<View> forward(const MicroBatch& batch, std::vector<View> values = {}) const;
  // In training, the forward, then the backward. `seeds`: without the last block of the model, the gradients of its
  // outputs. Returns the terms of the loss as above, or nothing. `batch` outlives the flight.
  std::unique_ptr<Flight> begin(const MicroBatch& batch, std::vector<View> values = {}) const;
  std::vector<View> end(Flight& flight, std::vector<View> seeds = {}) const;
  // The values of its forward that the backward of block b reads: its own, and the input of the run that it ends.
  std::vector<View> kept(size_t b, const std::vector<Env>& envs, const std::vector<std::vector<View>>& inputs) const;

 private:
  struct Storage;  // per template: which values share memory, which are parameter gradients
  // An Env with the views of the block's inputs, parameters and other given values.
  Env enter(uint32_t block, const std::vector<View>& inputs, const MicroBatch& batch) const;
  std::vector<View> forward(uint32_t block, const std::vector<View>& inputs, Env& env, Pass& pass) const;
  // The gradient buffer to which value `o` of block b is written first; absent for all other values.
  View buffer_of(uint32_t b, Id o, const Pass& pass) const;
  // Emits nodes [from, to) of a block and sets the views of their outputs in `env`.
  void run(uint32_t block, size_t from, size_t to, Env& env, Pass& pass) const;
  void add_apart(uint32_t b, size_t k, const Env& env, Pass& pass) const;
  size_t made_again(size_t b) const;
  size_t run_before(size_t b) const;
  const Model& model_;
  const Span blocks_;
  Emitter& emitter_;
  std::map<uint32_t, std::shared_ptr<const Storage>> storage_;
};

}  // namespace eng
