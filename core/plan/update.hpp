// SPDX-License-Identifier: Apache-2.0
// The end of a step: the global norm, and the update of what this rank keeps.
#pragma once

#include "core/plan/brought.hpp"
#include "core/plan/moves.hpp"
#include "core/plan/observe.hpp"

namespace eng {

class Update {
 public:
  Update(const PlanRequest& request, Plan& plan, Emitter& emitter, const Homes& homes, OwnTensors& own, Moves& moves,
         Observing& observing)
      : r_(request), plan_(plan), emit_(emitter), homes_(homes), own_(own), moves_(moves), observing_(observing) {}
  void emit();
  // Program k of a job.
  void emit_program(uint32_t k) { writes_ = r_.job->info.writes >> k & 1U, update_units(k); }

 private:
  void update_units(uint32_t stage);
  View norm_partials();
  void scale_rates();
  uint32_t place_of(size_t u, uint64_t first = 0) const;
  void read_at(uint32_t arena);
  Brought brought(uint32_t arena) { return {plan_, emit_, slots_, arena}; }
  void bring(size_t u, const Home& grad);
  uint64_t each_run(size_t u, uint32_t stage, const Home& grad);
  bool run(size_t u, const Range& piece, Range range, uint32_t leader, uint32_t stage, const Home& grad);
  void whole(size_t u, uint32_t p);
  void ask_update(EmittingBuilder& builder, uint32_t arena, uint32_t leader, uint32_t stage, Id master, Id grad,
                  Id weight, const std::vector<eng_id>& states, const std::vector<eng_range>& ranges);

  const PlanRequest& r_;
  const Model& model_ = r_.model;
  Plan& plan_;
  Emitter& emit_;
  const Homes& homes_;
  OwnTensors& own_;
  Moves& moves_;
  Observing& observing_;
  bool writes_ = true;  // the program may write masters
  struct Reads {
    std::vector<View> scalars;  // per group of the optimizer
    View counters;
  };
  std::map<uint32_t, Reads> reads_;  // per arena in which updates compute: a tier's, or 0
  std::map<size_t, Home> whole_;     // per unit that is updated whole: what its first stage left
  Slots slots_{emit_};
  Leases leases_ = moves_.leases();
};

}  // namespace eng
