// SPDX-License-Identifier: Apache-2.0
// The end of a step: the global norm, and the update of what this rank keeps.
#pragma once

#include "core/plan/moves.hpp"
#include "core/plan/observe.hpp"

namespace eng {

class Update {
 public:
  Update(const PlanRequest& request, Plan& plan, Emitter& emitter, const Homes& homes, OwnTensors& own, Moves& moves,
         Observing& observing)
      : r_(request),
        model_(request.model),
        plan_(plan),
        emit_(emitter),
        homes_(homes),
        own_(own),
        moves_(moves),
        observing_(observing),
        leases_(moves.leases()) {}
  void emit();
  // Program k of a job.
  void emit_program(uint32_t k);

 private:
  void update_units(uint32_t stage);
  View norm_partials();
  bool is_here(const View& view) const { return plan_.in_tier(view) == (at_ != 0) && !plan_.in_storage(view); }
  View room(const char* what, const View& view);
  View here(const View& view, bool give_back);
  Home here(const Home& home);
  void give_back();
  void turn();
  void scale_rates();
  uint32_t place_of(size_t u, uint64_t first = 0) const;
  void read_here();
  View weight_here(const View& weight);
  void drop(const View& unwritten);
  void bring(size_t u, const Home& grad);
  uint64_t each_run(size_t u, uint32_t stage, const Home& grad);
  bool run(size_t u, const Range& piece, Range range, uint32_t leader, uint32_t stage, const Home& grad);
  void whole(size_t u, uint32_t p);
  void ask_update(EmittingBuilder& builder, uint32_t leader, uint32_t stage, Id master, Id grad, Id weight,
                  const std::vector<eng_id>& states, const std::vector<eng_range>& ranges);

  const PlanRequest& r_;
  const Model& model_;
  Plan& plan_;
  Emitter& emit_;
  const Homes& homes_;
  OwnTensors& own_;
  Moves& moves_;
  Observing& observing_;
  bool writes_ = true;  // the update at hand may write masters
  uint32_t at_ = 0;     // the arena in which the update at hand computes: a tier's, or 0
  struct Reads {
    std::vector<View> scalars;  // per group of the optimizer
    View counters;
  };
  std::map<uint32_t, Reads> reads_;            // per arena in which updates compute
  std::vector<std::pair<View, View>> copies_;  // of what the next update changes, and where they go back to
  std::vector<View> brought_;                  // by the piece at hand
  std::deque<std::vector<View>> before_;       // by the pieces before it
  std::map<size_t, Home> whole_;               // per unit that is updated whole: what its first stage left
  Leases leases_;
};

}  // namespace eng
