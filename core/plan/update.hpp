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
      : r_(request), plan_(plan), emit_(emitter), homes_(homes), own_(own), moves_(moves), observing_(observing) {
    // Two units' gradients at a time: one is gathered while the other is used. Of what first stages left the table
    // holds the unit at hand, so that with the one that was released last they are two as well.
    leases_.pace(ENG_ROLE_GRAD, {UINT64_MAX, 2});
    leases_.pace(ENG_ROLE_STATE, {UINT64_MAX, 1});
  }
  // With offload.update_late, it only leaves behind what the update needs.
  void emit();
  // In the next step, or another program: the update of blocks [first, end), before others write the gradients.
  void emit_late(uint32_t first, uint32_t end);
  // Before the last micro-batch: the scalars of a step that is neither clipped nor skipped.
  void assume();
  // An early update copies first what it changes.
  void update_unit(size_t u, uint32_t stage);
  void emit_again();
  // Program k of a job.
  void emit_program(uint32_t k) { writes_ = r_.job->info.writes >> k & 1U, update_units(k); }

 private:
  void update_units(uint32_t stage, bool early = false);
  View norm_partials();
  void prepare(const View& scalars, const View& counters, bool early);
  uint32_t place_of(size_t u, uint64_t first = 0) const;
  void read_at(uint32_t arena);
  Brought brought(uint32_t arena) { return {plan_, emit_, slots_.try_emplace(arena, emit_).first->second, arena}; }
  void bring(size_t u, const Home& grad);
  uint64_t each_run(size_t u, uint32_t stage, const Home& grad);
  bool run(size_t u, const Range& piece, Range range, uint32_t leader, uint32_t stage, const Home& grad);
  void whole(size_t u, uint32_t p);
  // Copies to their homes what the last piece but one of each place has left to be copied, or if `all`, of the last
  // one: such a copy waits in its queue for the end of an update, so those that other pieces begin with come before it.
  void give(bool all = false) {
    for (auto& [arena, given] : given_)
      if (all || !given.empty())
        for (const auto& [copy, home] : std::exchange(owed_[arena], std::exchange(given, {}))) emit_.copy(copy, home);
  }
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
  bool writes_ = true;                       // the program may write masters
  std::vector<std::pair<View, View>> kept_;  // what early updates change: a copy of it, and where it lives
  struct Reads {
    std::vector<View> scalars;  // per group of the optimizer
    View counters;
  };
  const Reads& reads(uint32_t arena, uint32_t leader);
  // Per arena in which updates compute: a tier's, or 0. Of a step, and what it leaves to the next one.
  std::map<uint32_t, Reads> reads_, left_;
  std::map<size_t, Home> whole_;     // per unit that is updated whole: what its first stage left
  std::map<uint32_t, Slots> slots_;  // likewise: each has pieces of its own on their way
  // Likewise, of the last piece and of the one before: copies, and where they go.
  std::map<uint32_t, std::vector<std::pair<View, View>>> given_, owed_;
  Leases leases_ = moves_.leases();
};

}  // namespace eng
