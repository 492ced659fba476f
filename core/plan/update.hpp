// SPDX-License-Identifier: Apache-2.0
// The end of a step: the global norm, and the update of what this rank keeps.
#pragma once

#include "core/plan/states.hpp"

namespace eng {

class Update {
 public:
  Update(const PlanRequest& request, Plan& plan, Emitter& emitter, States& states)
      : r_(request), model_(request.model), plan_(plan), emit_(emitter), s_(states) {}
  void emit();

 private:
  const Homes& homes() const { return s_.homes(); }
  View norm_partials();
  void unit(size_t u);
  void run(size_t u, const Range& piece, uint32_t flags, uint64_t first, uint64_t n);

  const PlanRequest& r_;
  const Model& model_;
  Plan& plan_;
  Emitter& emit_;
  States& s_;
};

}  // namespace eng
