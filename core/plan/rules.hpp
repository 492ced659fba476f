// SPDX-License-Identifier: Apache-2.0
// The optimizer's requirements for each parameter, asked before memory is laid out.
#pragma once

#include "core/plan/request.hpp"

namespace eng {

// One state of the optimizer, for one parameter.
struct StateOf {
  uint32_t kind = ENG_STATE_NONE;
  uint32_t per = 1;  // elements of the parameter per element of the state
  eng_desc desc{};   // of the state as a tensor
  // True if the state is divided among ranks with its parameter.
  bool cut() const { return kind == ENG_STATE_ELEMENTS || kind == ENG_STATE_BLOCKS; }
};

class Rules {
 public:
  // Asks the optimizer, if the request has one, and assigns parameters to groups. Throws Error naming the optimizer,
  // the state and the parameter.
  explicit Rules(const PlanRequest& request);

  struct State {
    std::string name;
    int32_t dtype = 0;
  };
  const std::vector<State>& states() const { return states_; }
  // The rule for one parameter.
  struct Rule {
    uint32_t sort = 0;   // parameters of one sort may share a unit: same states, all or none of them frozen
    uint32_t group = 0;  // index into Optimizer::groups
    bool whole = false;  // the optimizer needs it whole: it is updated in three stages
    std::vector<StateOf> states;
    eng_parameter shown{};  // what the optimizer sees of it
  };
  const Rule& of(uint32_t parameter) const { return rules_[parameter]; }
  bool frozen(uint32_t parameter) const { return model_.params[parameter].frozen; }

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
