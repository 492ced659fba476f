// SPDX-License-Identifier: Apache-2.0
// What the optimizer says of every parameter before memory is laid out, and what it is shown of them.
#pragma once

#include "core/plan/planner.hpp"

namespace eng {

// How a parameter has one state of the optimizer.
struct StateOf {
  uint32_t kind = ENG_STATE_NONE;
  uint32_t per = 1;  // elements that share a value: a block
  eng_desc desc{};   // of the state as a tensor
  bool cut() const { return kind == ENG_STATE_ELEMENTS || kind == ENG_STATE_BLOCKS; }
};

class Rules {
 public:
  // Asks the optimizer, if the request has one, and finds out which parameters belong to which group.
  explicit Rules(const PlanRequest& request);

  struct State {
    std::string name;
    int32_t dtype = 0;
  };
  const std::vector<State>& states() const { return states_; }
  // Of one parameter.
  struct Rule {
    uint32_t sort = 0;   // parameters of one sort can share a unit: all or none are frozen, and have the same states
    uint32_t group = 0;  // of Optimizer::groups
    bool whole = false;  // updated in three stages
    std::vector<StateOf> states;
    eng_parameter shown{};
  };
  const Rule& of(uint32_t parameter) const { return rules_[parameter]; }
  bool frozen(uint32_t parameter) const { return model_.params[parameter].frozen; }
  // Bytes that the states of a parameter have, or would have.
  uint64_t state_bytes(uint32_t parameter) const;

 private:
  void ask_states(const Optimizer& optimizer);
  void group(const Optimizer& optimizer);
  StateOf shape(const Optimizer& optimizer, size_t state, uint32_t parameter, bool& whole) const;

  const Model& model_;
  std::vector<State> states_;
  std::vector<eng_state_rule> given_;
  std::vector<Rule> rules_;
};

}  // namespace eng
