// SPDX-License-Identifier: Apache-2.0
// The ways of a state from its home to its uses and back: leases, casts, copies from and to tiers, collectives.
#pragma once

#include "core/plan/leases.hpp"
#include "core/plan/own.hpp"

namespace eng {

class Moves {
 public:
  Moves(const PlanRequest& request, Plan& plan, Emitter& emitter, const Homes& homes, const OwnTensors& own)
      : r_(request), plan_(plan), emit_(emitter), homes_(homes), own_(own) {}
  // Makes the new weight from its master where the two have different homes: what this rank has to give, but for pieces
  // that end at element `first` or before, and if `whole`, what comes from other ranks.
  void publish(size_t u, uint64_t first = 0, bool whole = true);
  // The bytes for leases on the device at a time; UINT64_MAX: no limit.
  uint64_t live_limit() const {
    return r_.live_limit && (!plan_.ranks.single() || plan_.has_tiers()) ? r_.live_limit : UINT64_MAX;
  }
  // The leases of a segment.
  Leases leases() const {
    Leases leases(emit_);
    leases.limit(live_limit());
    return leases;
  }
  // Leases unit u whole, as `role`, and fills it from its home. `dtype`: of what is leased; 0: that of the home.
  View gather(Leases& leases, const std::string& what, Line line, int32_t role, size_t u, const Home& home,
              int32_t dtype = 0);
  // Sums the `own` gradients of all ranks of a unit, in the dtype of ENG_ROLE_PARTIAL. Stores the sum in the gradient,
  // or adds it to the gradient.
  void reduce(size_t u, const View& own, bool store);
  // Stores this rank's fresh gradient in `own`, or adds it. Both are whole.
  void accumulate(size_t u, const View& fresh, const View& own, bool store) {
    add(u, route(plan_, {0, 0, fresh.desc.dtype}, {0, 0, own.desc.dtype}), fresh, {own}, store);
  }
  // Packs or rounds initial values of unit u.
  void narrow(size_t u, const View& from, const View& to) { move(r_.precision, ENG_ROLE_WEIGHT, u, 0, from, 0, to, 0); }
  // A collective over the data ranks, or over `all`. Returns `to`, or a new value if `to` is absent.
  View collective(const char* id, const View& from, const View& to, bool all = false);
  // Puts the actions that `emit` emits on the communication queue, beside the computation, if ranks take part in them.
  template <class F>
  void between_ranks(F emit, bool take_part = true) {
    if (!take_part) return emit();
    const Queue before = emit_.on(emit_.between_ranks);
    emit();
    emit_.on(before);
  }

 private:
  void add(size_t u, const std::vector<Move>& way, const View& from, const Home& home, bool store);
  void carry(const std::vector<Move>& way, int32_t role, size_t u, size_t piece, View from, Where at, const View& to);
  void move(const Policy& policy, int32_t role, size_t u, size_t piece, const View& from, Id from_part, const View& to,
            Id to_part);

  const PlanRequest& r_;
  Plan& plan_;
  Emitter& emit_;
  const Homes& homes_;
  const OwnTensors& own_;
};

}  // namespace eng
