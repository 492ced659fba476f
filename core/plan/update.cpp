// SPDX-License-Identifier: Apache-2.0
#include "core/plan/update.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "engine/ops.h"

namespace eng {

void Update::emit() {
  const View partials = norm_partials();
  emit_.label(Phase::norm);
  emit_.action(op(ENG_OP_FINISH), {partials, plan_.table, plan_.scalars, plan_.counters},
               {plan_.scalars, plan_.counters}, {{{"max_norm", 0, r_.grad_clip}}});
  own_.refresh();
  if (!r_.offload.update_late) return update_units(ENG_STAGE_UPDATE);
  prepare(plan_.scalars, plan_.counters, false);
  for (auto& [arena, left] : left_) {
    for (size_t g = 0; g < left.scalars.size(); ++g) emit_.copy(reads_[0].scalars[g], left.scalars[g]);
    emit_.copy(plan_.counters, left.counters);
  }
}

// With scalars[OK] = 0 it changes nothing.
void Update::emit_late(uint32_t first, uint32_t end) {
  for (uint32_t b = first; b < end; ++b)
    for (size_t u : homes_.units_of(b))
      if (!homes_.early(u)) update_unit(u, ENG_STAGE_UPDATE), give(true);
  if (first == end || end < model_.blocks.size()) return;
  whole_.clear();
  emit_.label(Phase::step, "the update has been made");
  for (const View& scalars : plan_.left) emit_.zero(scalars);
}

void Update::assume() {
  emit_.label(Phase::norm, "assumed");
  const View counters = emit_.transient("assumed counters", Line::step, plan_.counters.desc);
  const View scalars = plan_.assumed = emit_.persistent("assumed scalars", Line::step, plan_.scalars.desc, true);
  emit_.copy(plan_.scalars, scalars), emit_.copy(plan_.counters, counters);
  emit_.action(op(ENG_OP_FINISH), {slice(plan_.scalars, ENG_S_INV_TOKENS, 1), plan_.table, scalars, counters},
               {scalars, counters}, {{{"max_norm", 0, 0.0}}});
  prepare(scalars, counters, true);
}

void Update::emit_again() {
  emit_.label(Phase::update, "undone");
  for (const auto& [kept, home] : kept_) emit_.copy(kept, home);
  update_units(ENG_STAGE_UPDATE, true);
}

const Update::Reads& Update::reads(uint32_t arena, uint32_t leader) {
  if (!r_.offload.update_late || homes_.early(homes_.unit_of(leader))) return reads_.at(arena);
  Reads& left = left_[arena];
  if (left.counters.buffer) return left;
  const auto make = [&](const View& like) {
    return emit_.persistent("of the last update", Line::step, like.desc, true, arena);
  };
  for (size_t g = 0; g < r_.optimizer->groups.size(); ++g)
    plan_.left.push_back(left.scalars.emplace_back(make(plan_.scalars)));
  left.counters = make(plan_.counters);
  return left;
}

void Update::update_units(uint32_t stage, bool early) {
  whole_.clear();
  prepare(plan_.scalars, plan_.counters, early);
  for (size_t u = 0; u < homes_.units(); ++u)
    if (homes_.early(u) == early) update_unit(u, stage);
  give(true);
}

void Update::update_unit(size_t u, uint32_t stage) {
  if (!homes_.held(u) && !homes_.frozen(u) && observing_.any()) each_run(u, ENG_STAGE_UPDATE, homes_.grad[u]);
  if (!homes_.trains(u)) return;
  // A whole update needs the whole gradient.
  Home grad = homes_.grad[u];
  if (grad.part && !homes_.master[u].part)
    grad = {moves_.gather(leases_, "whole gradient", Line::gradients, ENG_ROLE_GRAD, u, grad)};
  if (homes_.rule(u).whole) {
    bring(u, grad);
    // The next one comes while this one is computed; not where it is still to be gathered for the lines above.
    size_t next = u + 1;
    while (next < homes_.units() && (!homes_.trains(next) || !homes_.rule(next).whole)) ++next;
    if (next < homes_.units() && homes_.grad[next].part && homes_.master[next].part &&
        leases_.fits(homes_.update_lease(next)))
      bring(next, homes_.grad[next]);
  }
  emit_.label(Phase::update, homes_.unit(u).name);
  const bool stages = homes_.rule(u).whole;
  if (stages)
    for (uint32_t p : homes_.unit(u).params) whole(u, p);
  const uint64_t published = stages ? each_run(u, ENG_STAGE_AFTER, whole_[u]) : each_run(u, stage, grad);
  for (int32_t role : {ENG_ROLE_GRAD, ENG_ROLE_STATE})
    if (leases_.find({role, u}).buffer) leases_.release({role, u}), leases_.turn(role);
  if (!plan_.ranks.single() || published < homes_.unit(u).count) give(true);
  if (writes_) moves_.publish(u, published, !homes_.publishes_late(u));
}

// Brings what updates read, of those that are early or are not. The scalars of groups that have a scale of their own
// are the step's, but for the learning rate.
void Update::prepare(const View& scalars, const View& counters, bool early) {
  reads_.clear();
  const auto scale = [&](const View& from, const View& to, double factor) {
    emit_.action(op(ENG_OP_SCALE), {from}, {to}, {{{"factor", 0, factor}}});
  };
  std::map<double, View> made{{1.0, scalars}};
  for (const auto& group : r_.optimizer->groups) {
    View& mine = made[group->rate_scale];
    if (!mine.buffer) {
      mine = emit_.transient("scalars of a group", Line::step, scalars.desc);
      scale(scalars, mine, 1.0);
      const View rate = slice(mine, ENG_S_LR, 1);
      scale(rate, rate, group->rate_scale);
    }
    reads_[0].scalars.push_back(mine);
  }
  reads_[0].counters = counters;
  for (size_t u = 0; u < homes_.units() && (early || !r_.offload.update_late); ++u)
    for (const Range& piece : homes_.pieces(u, homes_.rule(u).whole))
      if (homes_.early(u) == early) read_at(place_of(u, piece.first));
}

// The arena in which that piece of a unit is updated that begins at element `first`.
uint32_t Update::place_of(size_t u, uint64_t first) const {
  if (!r_.offload.update_on_host || homes_.visits(u, first)) return 0;
  const uint32_t home = homes_.place(ENG_ROLE_STATE, u, first);
  return plan_.stores(home) ? plan_.first_memory() : home;
}

// Brings the inputs of every update to an arena. They stay there: their memory has no slot.
void Update::read_at(uint32_t arena) {
  if (reads_.count(arena)) return;
  Slots aside(emit_);
  Brought here(plan_, emit_, aside, arena);
  Reads mine = reads_[0];
  for (View& scalars : mine.scalars) scalars = here.read(scalars);
  mine.counters = here.read(mine.counters);
  reads_[arena] = std::move(mine);
}

// The first stage of a unit whose parameters are updated whole, and what it leaves, brought together.
void Update::bring(size_t u, const Home& grad) {
  if (whole_.count(u)) return;
  emit_.label(Phase::update, homes_.unit(u).name);
  Brought here = brought(place_of(u));
  const auto home_of = [&](Home home) {
    home.view = here.read(home.view), home.place = plan_.buffer(home.view.buffer).arena;
    return home;
  };
  const Home mine = home_of(grad);
  each_run(u, ENG_STAGE_BEFORE, mine);
  whole_[u] =
      mine.part ? home_of({moves_.gather(leases_, "whole gradient", Line::update, ENG_ROLE_STATE, u, mine)}) : mine;
}

// The sum of squares of every chunk, in the order of the units. Where gradients live in parts each rank brings its
// own chunks and zeros for the others': x + 0 is x in any order. The ranks of a tensor group have chunks of their own
// of the units that they divide; of others the first one brings them. A stage brings those of its blocks.
View Update::norm_partials() {
  emit_.label(Phase::norm);
  uint64_t chunks = 0;
  const Ranks& ranks = plan_.ranks;
  const auto own_chunks = [&](size_t u) { return model_.params[homes_.unit(u).params[0]].cut.count > 1; };
  bool parts = ranks.tensor * ranks.pipeline > 1;
  for (size_t u = 0; u < homes_.units(); ++u) {
    for (const Range& all : homes_.counted(u)) chunks += all.count / chunk * (own_chunks(u) ? ranks.tensor : 1);
    parts = parts || homes_.grad[u].part;
  }
  chunks = up(chunks, ranks.world.size);  // every rank can fold as many
  View partials = emit_.transient("norm partials", Line::step, flat(ENG_F32, chunks));
  if (parts) emit_.zero(partials);
  uint64_t at = 0;
  for (size_t u = 0; u < homes_.units(); ++u) {
    const Home& home = homes_.grad[u];
    const bool own = own_chunks(u), counts = !parts || (ranks.counts(home.part) && (own || !ranks.tensor_rank()));
    for (const Range& all : homes_.counted(u)) {
      const uint64_t n = all.count / chunk, mine = at + (own ? n * ranks.tensor_rank() : 0);
      for (const Range& piece : homes_.pieces(u, !home.part && !plan_.stores(home.place))) {
        const Range kept = homes_.kept(home, piece), some = overlap(kept, all);
        if (!some.count || !counts || !model_.owns(homes_.unit(u).block)) continue;
        const View sums = slice(partials, mine + (some.first - all.first) / chunk, some.count / chunk);
        const View here = slice(homes_.view(home, piece), some.first - kept.first, some.count);
        const View grad = emit_.in_memory(here, "gradient", Line::update);
        const bool far = plan_.in_tier(grad);
        const View there =
            far ? emit_.passing("norm partials", Line::step, sums.desc, plan_.buffer(grad.buffer).arena) : sums;
        emit_.action(op(ENG_OP_SUM_SQUARES), {grad}, {there});
        if (far) emit_.copy(there, sums);
      }
      at += n * (own ? ranks.tensor : 1);
    }
  }
  if (!parts) return partials;
  View all = emit_.transient("norm partials", Line::step, partials.desc);
  moves_.between_ranks([&] {
    const View own = emit_.transient("norm partials", Line::step, flat(ENG_F32, chunks / ranks.world.size));
    const View rows = moves_.collective(ENG_OP_ALL_TO_ALL, partials, {}, true);
    emit_.action(op(ENG_OP_FOLD), {rows}, {own}, {{{"rows", int64_t{ranks.world.size}, 0}}});
    moves_.collective(ENG_OP_ALL_GATHER, own, all, true);
  });
  return all;
}

// One update per run of parameters with equal flags and options, padding included, as far as this rank keeps it. Before
// the element that it returns, what this rank gives of the new weight is written as well.
uint64_t Update::each_run(size_t u, uint32_t stage, const Home& grad) {
  const Unit& unit = homes_.unit(u);
  uint64_t published = r_.job ? 0 : unit.count;
  const auto kind = [&](uint32_t p) { return std::pair(model_.params[p].flags, homes_.rules().of(p).group); };
  for (const Range& piece : homes_.pieces(u, !homes_.master[u].part && !plan_.has_tiers())) {
    const Range kept = homes_.kept(homes_.master[u], piece);
    bool all = true;
    for (size_t k = 0; k < unit.params.size();) {
      const uint32_t leader = unit.params[k];
      Range like = homes_.padded(leader);  // it and those that follow and are updated with it
      for (; k < unit.params.size() && kind(unit.params[k]) == kind(leader); ++k)
        like.count = homes_.padded(unit.params[k]).end() - like.first;
      if (const Range mine = overlap(like, kept); mine.count && homes_.held(u))
        all = run(u, piece, mine, leader, stage, grad) && all;
      else if (r_.job || stage != ENG_STAGE_BEFORE)
        observing_.no_update(u);
    }
    if (!all) published = std::min(published, piece.first);
    for (auto& [arena, slots] : slots_) slots.turn();
    give();
  }
  return published;
}

// Elements `range` of the unit, which this rank keeps of a piece; `leader` is one of their parameters.
bool Update::run(size_t u, const Range& piece, Range range, uint32_t leader, uint32_t stage, const Home& grad) {
  EmittingBuilder builder(emit_, plan_.ranks, "update " + homes_.unit(u).name, Line::update);
  Brought here = brought(place_of(u, piece.first));
  const bool keeps = homes_.early(u) && reads_.at(0).counters.buffer != plan_.counters.buffer;
  const auto add = [&](const Home& home, bool changes) -> Id {
    if (!home.view.buffer) return 0;
    const uint64_t skip = range.first - homes_.kept(home, piece).first;
    const View value = slice(homes_.view(home, piece), skip / home.per, range.count / home.per);
    const View at = changes ? here.change(value) : here.read(value);
    if (keeps && changes) {
      const View kept = emit_.persistent("old " + homes_.unit(u).name, Line::undo, at.desc, true, here.arena());
      emit_.copy(at, kept), kept_.emplace_back(kept, value);
    }
    return builder.add(at, changes || !(r_.job || keeps));
  };
  std::vector<eng_id> states;
  for (const auto& state : homes_.optimizer) states.push_back(add(state[u], true));
  const std::vector<eng_range> ranges = homes_.shown(u, range);
  const bool last = r_.job || stage != ENG_STAGE_BEFORE;
  const Id master = add(homes_.master[u], last && writes_), own = add(grad, false);
  // The new weight is made while the new master is in memory, as far as this rank gives it.
  const Home gives = homes_.own(u);
  const Where from = homes_.master[u].where(piece.first), to = gives.where(piece.first);
  const bool casts = from.dtype != to.dtype, follows = last && !r_.job && from != to;
  const View new_weight = slice(homes_.view(gives, piece), range.first - homes_.kept(gives, piece).first, range.count);
  const Id weight =
      follows && casts && (r_.precision.table.flags & ENG_AXIS_CASTS) ? builder.add(here.write(new_weight), true) : 0;
  const size_t before = emit_.segment().actions.size();
  const View old =
      last ? observing_.before_update(u, homes_.master[u].part, builder.view(master), here.arena()) : View{};
  ask_update(builder, here.arena(), leader, stage, master, own, weight, states, ranges);
  if (last) observing_.after_update(u, homes_.master[u].part, ranges, builder.view(master), old);
  const Written made = weight ? written(emit_.segment(), before, builder.view(weight)) : Written::nothing;
  if (weight && made == Written::nothing) here.drop(builder.view(weight));
  if (follows && !casts) here.also(builder.view(master), new_weight);
  const bool later = r_.offload.device_share > 0 && stage == ENG_STAGE_UPDATE && !homes_.early(u);
  std::move(here).give_back(later ? &given_[here.arena()] : nullptr);
  if (made == Written::some)
    throw fault("optimizer {}: its update leaves a part of weight_out unwritten ({})", r_.optimizer->name,
                homes_.unit(u).name);
  return !casts || made == Written::all;
}

// One parameter, whole.
void Update::whole(size_t u, uint32_t p) {
  const auto n = static_cast<uint64_t>(count(model_.params[p].desc));
  if (!n) return;
  EmittingBuilder builder(emit_, plan_.ranks, "update " + homes_.unit(u).name, Line::update);
  Brought here = brought(place_of(u));
  std::vector<eng_id> states;
  for (const auto& state : homes_.shaped) {
    const auto it = state.find(p);
    states.push_back(it == state.end() ? 0 : builder.add(here.change(it->second), true));
  }
  ask_update(builder, here.arena(), p, ENG_STAGE_WHOLE, 0, builder.add(homes_.parameter(whole_[u].view, p), true), 0,
             states, {{&homes_.rules().of(p).shown, 0, n, 0}});
  std::move(here).give_back();
  for (auto& [arena, slots] : slots_) slots.turn();
}

void Update::ask_update(EmittingBuilder& builder, uint32_t arena, uint32_t leader, uint32_t stage, Id master, Id grad,
                        Id weight, const std::vector<eng_id>& states, const std::vector<eng_range>& ranges) {
  eng_update update{};
  update.struct_size = sizeof update, update.flags = model_.params[leader].flags, update.stage = stage;
  update.master = master, update.grad = grad, update.weight_out = weight;
  update.scalars = builder.add(reads(arena, leader).scalars[homes_.rules().of(leader).group]);
  update.counters = builder.add(reads(arena, leader).counters), update.seed = r_.seed;
  update.states = states.data(), update.n_states = static_cast<uint32_t>(states.size());
  update.ranges = ranges.data(), update.n_ranges = static_cast<uint32_t>(ranges.size());
  ask(r_.optimizer->who(), builder, Exit::usage, r_.optimizer->table.update, r_.optimizer->self.get(), &builder,
      &update);
}

}  // namespace eng
