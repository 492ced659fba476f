// SPDX-License-Identifier: Apache-2.0
// The view that an op's gradient rule has: a node, the gradients of its outputs, and where to put those of its inputs.
#pragma once

#include <map>

#include "core/trace/graph.hpp"

namespace eng {

class Gradient {
 public:
  struct State {
    Template& block;
    Id scalars = 0;                     // the step's scalars
    std::vector<Id> of = {};            // value -> its gradient so far
    std::vector<char> pending = {};     // value -> its producer is not differentiated yet
    std::vector<char> wants = {};       // value -> depends on a parameter or a differentiable input
    std::map<Id, Id> replaced = {};     // forward output -> the backward value that replaces it
    std::map<Id, double> weights = {};  // of what is summed to the loss

    void grow();  // resizes the vectors to the number of values
    // Appends a node to the block and grows.
    std::vector<Id> emit(const Op& op, std::vector<Id> in, Attrs attrs);
  };
  Gradient(State& state, Node node) : state_(state), node_(std::move(node)) {}

  const Node& node() const { return node_; }
  Id in(uint32_t k) const { return k < node_.in.size() ? node_.in[k] : 0; }
  Id out(uint32_t k) const { return k < node_.out.size() ? node_.out[k] : 0; }
  const eng_desc& desc(uint32_t k) const { return state_.block.graph.value(in(k)).desc; }
  const Graph& graph() const { return state_.block.graph; }
  const Attrs& attrs() const { return node_.attrs; }
  bool wants(uint32_t k) const { return wanted(in(k)); }

  // For any value, or 0: whether its gradient is wanted, and its gradient so far (0: none).
  bool wanted(Id value) const { return value && state_.wants[value]; }
  Id so_far(Id value) const { return value ? state_.of[value] : 0; }

  // Gradient of output k; 0 if nothing depends on the output.
  Id d_out(uint32_t k) const { return k < node_.out.size() ? state_.of[node_.out[k]] : 0; }
  // The gradient of output k if the rule may overwrite it, otherwise 0.
  Id own_d_out(uint32_t k) const { return d_out(k) && exclusive(out(k)) ? d_out(k) : 0; }
  // The gradient of input k so far, for accumulating in place; 0 if there is none or another value still needs it.
  // The rule passes the sum to `give`.
  Id take(uint32_t k);
  // Sets the gradient of input k: adds it to the gradient so far, unless the rule took that.
  void give(uint32_t k, Id gradient);

  std::vector<Id> emit(const char* name, std::vector<Id> in, Attrs attrs) {
    return state_.emit(op(name), std::move(in), std::move(attrs));
  }
  Id scalars() const { return state_.scalars; }
  // The weight with which output k is a part of the loss; 0 if it is none.
  double weight(uint32_t k) const {
    const auto it = state_.weights.find(out(k));
    return it == state_.weights.end() ? 0 : it->second;
  }
  // The backward also computes forward output k (Op::fused_grad).
  void replaces(uint32_t k, Id value) { state_.replaced[node_.out[k]] = value; }

 private:
  bool exclusive(Id value) const;
  State& state_;
  Node node_;
  std::vector<uint32_t> taken_;
};

}  // namespace eng
