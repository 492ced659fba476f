// SPDX-License-Identifier: Apache-2.0
// Units and their pieces, and a home: which elements of them lie where in memory.
#pragma once

#include "core/plan/route.hpp"
#include "core/plan/rules.hpp"

namespace eng {

// The home of one state of one unit: the whole unit, flat, or this rank's part of it, piece after piece. Elements from
// `cut` on, where a piece begins, may live elsewhere.
struct Home {
  View view;
  Id part = 0;                // 0: the whole
  bool nested = false;        // the part lies where it belongs in a whole unit: the master of a whole weight
  uint32_t per = 1;           // elements of the unit that share a value of this state
  uint32_t place = 0;         // index into Plan::arenas
  int32_t packed = 0;         // ENG_PACKED_* of what lies in `view` as u8
  uint64_t cut = UINT64_MAX;  // elements of the unit
  std::shared_ptr<const Home> back = {};  // of what begins there, as of a unit of its own
  // The place of the piece that begins at element `first` of the unit.
  Where where(uint64_t first = 0) const {
    return first < cut ? Where{place, part, packed ? packed : view.desc.dtype} : back->where(first - cut);
  }
  // The values of `view` that hold n elements.
  uint64_t values(uint64_t n) const { return packed ? (n + chunk - 1) / chunk * eng_packed_bytes(packed) : n / per; }
};

class Units {
 public:
  // Cuts the model into plan.units, each padded to a multiple of world x chunk elements, and these into pieces of at
  // most `bucket` bytes of f32. A unit holds parameters of one block, one weight dtype and one sort.
  Units(const PlanRequest& request, Plan& plan);
  const Rules& rules() const { return rules_; }
  size_t units() const { return plan_.units.size(); }
  const Unit& unit(size_t u) const { return plan_.units[u]; }
  size_t unit_of(uint32_t p) const { return unit_of_[p]; }
  // The units with this block as Unit::user: after its backward their gradients are complete.
  std::vector<size_t> units_of(uint32_t block) const;
  // A block that this rank computes reads parameters of the unit. If one of another stage does so, too, both stages
  // keep it; that of its block counts and saves it.
  bool held(size_t u) const { return unit(u).user != UINT32_MAX; }
  // The pieces of a unit; of a state that lives whole at one place, the unit is one.
  std::vector<Range> pieces(size_t u, bool whole = false) const;
  // The range of a piece that this rank keeps, as elements of the unit.
  Range kept(const Home& home, Range piece) const;
  View view(const Home& home, Range piece) const;
  // The part of a piece that lies whole at `piece`, in its place there.
  View part(const View& piece, Id part) const;

  // Parameter p in a unit that lies whole at `unit`, with `held` all of its rows in memory; and what a home holds of
  // it.
  View parameter(const View& unit, uint32_t p, bool held = false) const;
  // Ranges of the whole parameter or, if `own`, of what this rank has of one that ranks divide.
  std::vector<HeldRange> ranges(const Home& home, uint32_t p, bool own = false) const;
  // The parameters in a range of the elements of unit u, as plugins see them.
  std::vector<eng_range> shown(size_t u, Range range) const;
  // The range of parameter p in its unit, with and without the padding that follows it.
  Range padded(uint32_t p) const;
  Range elements(uint32_t p) const { return {offset_of_[p], static_cast<uint64_t>(count(model_.params[p].desc))}; }
  // The ranges of a unit that belong to no parameter that this rank computes with.
  std::vector<Range> padding(size_t u) const { return outside(u, &Units::read); }

 protected:
  // Memory for rows of zeros behind the chunks of parameter p: whole chunks, as many for each rank.
  Range spare(uint32_t p) const;
  // The ranges of a unit that are in no range `of` its parameters.
  std::vector<Range> outside(size_t u, Range (Units::*of)(uint32_t) const) const;
  const Model& model_;
  Plan& plan_;

 private:
  Range read(uint32_t p) const { return user_[p] != UINT32_MAX ? elements(p) : Range{}; }
  uint64_t grid() const { return chunk * plan_.ranks.data_size(); }
  const Rules rules_;
  std::vector<size_t> unit_of_;      // per parameter
  std::vector<uint64_t> offset_of_;  // per parameter: elements, in its unit
  std::vector<uint32_t> user_;       // per parameter: as Unit::user
};

}  // namespace eng
