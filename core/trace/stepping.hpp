// SPDX-License-Identifier: Apache-2.0
// Derives models for generating from the forward of a traced one: logits of whole sequences, and the next positions of
// running ones. Works op by op, like the backward: Stepping is what an op's step rule sees.
#pragma once

#include "core/trace/model.hpp"

namespace eng {

class Stepping {
 public:
  struct State {
    Template& block;
    int64_t length;      // the most positions of a sequence
    std::vector<Id> of;  // traced value -> the value that replaces it
    Id counters = 0;
    const Graph* traced = nullptr;  // the graph that the nodes are of
  };
  Stepping(State& state, const Node& node) : state_(state), node_(node) {}

  const Node& node() const { return node_; }
  Id in(uint32_t k) const;
  const eng_desc& desc(uint32_t k) const { return state_.block.graph.value(in(k)).desc; }
  const eng_desc& traced(uint32_t k) const { return state_.traced->value(node_.in.at(k)).desc; }
  const Attrs& attrs() const { return node_.attrs; }
  const Graph& graph() const { return state_.block.graph; }
  int64_t length() const { return state_.length; }

  // A tensor that each block keeps from step to step, zero before the first position. An emitted op must write it in
  // place.
  Id state(const eng_desc& desc);
  // The step's counters: ENG_C_POSITION is the first position of the step, the same for every sequence.
  Id counters();
  std::vector<Id> emit(const char* op, std::vector<Id> in, Attrs attrs);
  // Sets the value that replaces output k.
  void give(uint32_t k, Id value) { state_.of[node_.out[k]] = value; }

 private:
  State& state_;
  const Node& node_;
};

// The rule of ops that compute each position independently: emits the same op.
void by_position(Stepping& stepping);

// The model with its loss replaced by the logits (B, T, V). It has no backward, and uses the constants of `model`.
Model with_logits(const Model& model);
// The nodes of a block's forward that it keeps, in their order: those on which the outputs depend. A block that names
// terms of the loss leaves the others out.
std::vector<uint32_t> nodes_with_logits(const Template& block);

// The model for the next `positions` positions of running sequences of at most model.sequence_length. Outputs their
// logits (B, positions, V); without `logits`, its output is unused and it only updates the states. Throws Error if an
// op has no step rule.
Model next_positions(const Model& model, int64_t positions, bool logits);

}  // namespace eng
