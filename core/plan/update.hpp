// SPDX-License-Identifier: Apache-2.0
// The end of a step: the global norm, and the update of what this rank keeps.
#pragma once

#include "core/plan/states.hpp"

namespace eng {

class Update {
 public:
  Update(const PlanRequest& request, Plan& plan, Emitter& emitter, States& states)
      : r_(request), model_(request.model), plan_(plan), emit_(emitter), s_(states), leases_(states.leases()) {}
  void emit();

 private:
  const Homes& homes() const { return s_.homes(); }
  View norm_partials();
  void scale_rates();
  void bring(size_t u, const Home& grad);
  bool each_run(size_t u, uint32_t stage, const Home& grad);
  bool run(size_t u, const Range& piece, Range range, uint32_t leader, uint32_t stage, const Home& grad);
  void whole(size_t u, uint32_t p);
  void ask_update(EmittingBuilder& builder, uint32_t leader, uint32_t stage, Id master, Id grad, Id weight,
                  const std::vector<eng_id>& states, const std::vector<eng_range>& ranges);

  const PlanRequest& r_;
  const Model& model_;
  Plan& plan_;
  Emitter& emit_;
  States& s_;
  std::vector<View> scalars_;     // per group of the optimizer
  std::map<size_t, Home> whole_;  // per unit that is updated whole: what its first stage left
  Leases leases_;
};

}  // namespace eng
