// SPDX-License-Identifier: Apache-2.0
// Forwards of other lengths than that of the configuration, as further programs of its plan: they read the same weights
// and use the same memory, so that a plan counts them before anything runs.
#pragma once

#include <map>
#include <tuple>

#include "core/plan/plan.hpp"

namespace eng {

// The forward of a micro-batch (B, T) up to its logits, with another T.
struct Shape {
  int64_t length = 0;         // T
  std::string program = {};   // "logits 256"; also the name of the tensor, of role "activation"
  std::vector<Input> fields;  // of the batch, in the model's order, (1, B, T) each; no view for the labels
  View logits;                // (B, T, V). Other shapes write theirs there.
};

// Adds programs to a plan that has no places yet.
class Shapes {
 public:
  explicit Shapes(Plan& plan);
  // Adds program "logits" of a plan that was emitted for another length by an otherwise equal request.
  Shape add(const Plan& from, int64_t length);

 private:
  Id buffer(const Plan& from, Id id);
  View view(const Plan& from, View of);
  void put(const Plan& from, const Action& action, Segment& into);
  Plan& plan_;
  // Persistent buffers, as equal plans make them in the same order: line, arena, name, and the number among those of
  // these. A block has several units, for example, if it has parameters of several types.
  using Key = std::tuple<Line, uint32_t, std::string, size_t>;
  static std::vector<Key> keys(const Plan& plan);  // by number of the buffer
  std::map<Key, Id> kept_;                         // buffers of the plan
  std::map<Key, Id> exchanged_;                    // of all shapes: batches and results
  std::vector<Key> keys_;                          // of the plan that is being added
  std::vector<Id> ids_;                            // likewise: the number of a buffer here
  std::vector<uint32_t> calls_, labels_;
};

}  // namespace eng
