// SPDX-License-Identifier: Apache-2.0
// From the forward of a traced model to programs for generating: logits of whole sequences, and the next positions of
// a running one. Derived op by op, as the backward is: Stepping is what an op's step rule sees.
#pragma once

#include "core/trace/model.hpp"

namespace eng {

class Stepping {
 public:
  struct State {
    Template& block;
    int64_t length;      // positions that a sequence can have
    std::vector<Id> of;  // value as traced -> the value that stands for it
    Id counters = 0;
  };
  Stepping(State& state, const Node& node) : state_(state), node_(node) {}

  const Node& node() const { return node_; }
  Id in(uint32_t k) const;
  const eng_desc& desc(uint32_t k) const { return state_.block.graph.value(in(k)).desc; }
  const Attrs& attrs() const { return node_.attrs; }
  const Graph& graph() const { return state_.block.graph; }
  int64_t length() const { return state_.length; }

  // A tensor that each block has for itself from step to step; zero before the first position. What is emitted must
  // write it in place.
  Id state(const eng_desc& desc);
  // The step's counters: ENG_C_POSITION is the first position of the step, the same for every sequence.
  Id counters();
  std::vector<Id> emit(const char* op, std::vector<Id> in, Attrs attrs);
  // What stands for output k.
  void give(uint32_t k, Id value) { state_.of[node_.out[k]] = value; }

 private:
  State& state_;
  const Node& node_;
};

// The rule of an op that computes each position by itself: the op as it is.
void by_position(Stepping& stepping);

// The model with its loss replaced by the logits (B, T, V) that it is of. Shares the constants of `model` and has no
// backward.
Model with_logits(const Model& model);

// The model at the next `positions` positions of running sequences, which may come to model.sequence_length. Puts out
// their logits (B, positions, V), or, without `logits`, nothing of use: it only moves the states on. Throws Error if
// an op has no step rule.
Model next_positions(const Model& model, int64_t positions, bool logits);

}  // namespace eng
