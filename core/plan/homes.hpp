// SPDX-License-Identifier: Apache-2.0
// The home of every state of the step between its uses: the arena, the part of a unit, and the type. Nothing moves
// here.
#pragma once

#include <set>

#include "core/plan/emitter.hpp"
#include "core/plan/units.hpp"

namespace eng {

class Homes : public Units {
 public:
  // Makes the units, the buffers of their states, and the logical tensors in these.
  Homes(const PlanRequest& request, Plan& plan, Emitter& emitter);
  // Its parameters are frozen: it has no gradient and no optimizer state, and a step does not publish it.
  bool frozen(size_t u) const { return r_.train && rules().frozen(unit(u).params[0]); }
  bool trains(size_t u) const { return held(u) && !frozen(u); }
  const Rules::Rule& rule(size_t u) const { return rules().of(unit(u).params[0]); }  // but for the group
  // True if the host keeps what sums of gradients leave out, for the next ones.
  bool keeps_residuals() const {
    return r_.sharding && (r_.sharding->table.flags & ENG_AXIS_RESIDUAL) && r_.train && r_.optimizer && !r_.job;
  }
  // The type in which the model reads a unit's parameters.
  int32_t computed(size_t u) const { return computed_[u]; }
  // The type in which ranks sum their gradients.
  int32_t partial(size_t u) const { return partial_[u]; }
  // The type in which it makes their gradients: sums are made in f32 if the policy asks for that.
  int32_t made(size_t u) const { return partial_[u] == wide(computed_[u]) ? partial_[u] : computed_[u]; }
  // Each use needs a lease: a copy of the weight that is whole, or of the type that compute reads.
  bool leased(size_t u) const { return weight[u].where() != Where{0, 0, computed_[u]}; }
  // The backward writes a unit's gradient directly into its home.
  bool direct(size_t u) const {
    return plan_.ranks.single() && made(u) == grad[u].view.desc.dtype && made(u) == partial_[u] && !grad[u].place;
  }
  // The home of the weight, as far as it is made from the master that this rank keeps: all of it, or that part in place
  // in a whole weight on the device. If a part has no such place, or would be wider than the master, the master's home.
  Home own(size_t u) const {
    Home out = weight[u];
    if (out.part == master[u].part) return out;
    out.part = master[u].part, out.nested = true;
    const bool wider = dtype_size(out.view.desc.dtype) > dtype_size(master[u].view.desc.dtype);
    return weight[u].part || out.place || wider ? master[u] : out;
  }
  // Weights that ranks gather from their parts may come beside the next step's forward instead of after the update.
  bool publishes_late(size_t u) const {
    return r_.overlap && r_.train && !r_.job && !r_.offload.update_late && trains(u) && !plan_.ranks.single() &&
           master[u].part != weight[u].part;
  }
  // The ranges of a unit whose squares the global norm adds: spare ones would only move the others.
  std::vector<Range> counted(size_t u) const { return frozen(u) ? std::vector<Range>() : outside(u, &Homes::spare); }
  // The bytes of the whole gradient that the update of a unit leases: where ranks have parts of it, and either all keep
  // the whole master, or the optimizer updates whole parameters.
  uint64_t update_lease(size_t u) const {
    const bool whole = grad[u].part && trains(u) && r_.optimizer && (!master[u].part || rule(u).whole);
    return whole ? unit(u).count * dtype_size(grad[u].view.desc.dtype) : 0;
  }
  // The piece that begins at element `first` comes to the device from its tier to be updated, unlike others.
  bool visits(size_t u, uint64_t first) const { return visits_.count({u, first}) != 0; }
  // Its update begins as soon as its gradient is final, before the norm is known.
  bool early(size_t u) const { return unit(u).block >= r_.offload.early_from && trains(u) && !rule(u).whole; }
  // The arena in which a role of unit u lives, of what begins at element `first`: [offload].
  uint32_t place(int32_t role, size_t u, uint64_t first = 0) const;

  std::vector<Home> weight, master, grad, residual;  // per unit; without keeps_residuals() the last are absent
  std::vector<int32_t> initial;              // per unit: the type in which values are made that its home then rounds
  std::vector<std::vector<Home>> optimizer;  // per state of the optimizer and unit; absent where it has none
  std::vector<std::map<uint32_t, View>> shaped;  // per state of the optimizer: those of parameters that are whole

 private:
  eng_unit unit_view(size_t u) const;
  Id part_of(int32_t role, size_t u) const;
  Home persistent(const std::string& what, Line line, int32_t role, int32_t dtype, size_t u, uint32_t per = 1,
                  const Home* weight = nullptr);
  void choose_kept();
  void make_homes(size_t u);
  void make_optimizer();
  View keep(size_t u, const std::string& name, Line line, const eng_desc& desc, uint32_t at) {
    return held(u) ? emit_.persistent(name, line, desc, true, at) : View{0, 0, desc};
  }
  eng_desc state_of(size_t state, uint32_t p) const;
  Home make_state(size_t state, size_t u);
  void make_tensors();

  const PlanRequest& r_;
  Emitter& emit_;
  std::vector<int32_t> computed_, partial_;  // per unit: dtypes
  std::vector<uint64_t> kept_;  // per unit: the elements whose masters and optimizer states stay; offload.ratio
  std::set<std::pair<size_t, uint64_t>> visits_;  // unit and first element; Offload::device_share
};

}  // namespace eng
