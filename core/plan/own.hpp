// SPDX-License-Identifier: Apache-2.0
// The tensors that policies and a job have for themselves, and the hooks in which policies write them.
#pragma once

#include "core/plan/homes.hpp"

namespace eng {

class OwnTensors {
 public:
  // Makes their buffers and logical tensors. Throws Error if two tensors of the plan would be stored under one name.
  OwnTensors(const PlanRequest& request, Plan& plan, Emitter& emitter, const Homes& homes);
  // Let policies update their own states at the beginning of a step, and after the norm.
  void begin() { run_hooks(&eng_axis::begin, Phase::begin, true); }
  void refresh() { run_hooks(&eng_axis::update, Phase::update, false); }
  // The states of a policy, added to a builder that emits for it.
  std::vector<eng_id> add(EmittingBuilder& builder, const Policy& policy, bool writable) const;
  std::vector<std::vector<View>> of_blocks;  // the states of transforms

 private:
  static void check_names(const Model& model, const Rules& rules, const std::vector<std::string>& more);
  void run_hooks(decltype(eng_axis::update) eng_axis::*hook, Phase phase, bool at_begin);

  struct Own {
    Policy policy;  // or a transform
    std::vector<View> states;
    Id everyone;  // the group of ranks that it calls `data_group`
  };
  Plan& plan_;
  Emitter& emit_;
  std::vector<Own> own_;
};

}  // namespace eng
