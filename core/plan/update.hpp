// SPDX-License-Identifier: Apache-2.0
// The end of a step: the global norm, and the update of what this rank keeps.
#pragma once

#include <array>

#include "core/plan/states.hpp"

namespace eng {

class Update {
 public:
  Update(const PlanRequest& request, Plan& plan, Emitter& emitter, States& states)
      : r_(request),
        model_(request.model),
        plan_(plan),
        emit_(emitter),
        s_(states),
        at_(request.offload.update_on_host ? states.place(ENG_ROLE_STATE) : 0),
        leases_(states.leases()) {}
  void emit();

 private:
  const Homes& homes() const { return s_.homes(); }
  View norm_partials();
  View here(const View& view, bool give_back);
  Home here(const Home& home);
  void give_back();
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
  const uint32_t at_;                          // the arena in which updates compute: a tier's, or 0
  std::vector<View> scalars_;                  // per group of the optimizer, where updates compute
  View counters_;                              // likewise
  std::vector<std::pair<View, View>> copies_;  // of what the next update changes, and where they go back to
  std::array<std::vector<View>, 2> brought_;   // by the update at hand, and by the one before
  std::map<size_t, Home> whole_;               // per unit that is updated whole: what its first stage left
  Leases leases_;
};

}  // namespace eng
