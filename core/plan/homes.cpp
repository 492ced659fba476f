// SPDX-License-Identifier: Apache-2.0
#include "core/plan/homes.hpp"

namespace eng {

Homes::Homes(const PlanRequest& request, Plan& plan, Emitter& emitter)
    : Units(request, plan), r_(request), emit_(emitter) {
  computed_.resize(units());
  for (const Block& block : model_.blocks) {
    const Template& t = model_.templates.at(block.tmpl);
    for (size_t k = 0; k < block.params.size(); ++k)
      computed_[unit_of(block.params[k])] = t.graph.value(t.params[k]).desc.dtype;
  }
  choose_kept();
  residual.resize(units());
  for (size_t u = 0; u < units(); ++u) make_homes(u);
  if (r_.train && r_.optimizer) make_optimizer();
  make_tensors();
}

eng_unit Homes::unit_view(size_t u) const {
  const Unit& all = unit(u);
  return {sizeof(eng_unit), static_cast<eng_id>(u + 1), all.block, all.flags, all.count};
}

// The part of a state that a rank keeps, according to the sharding policy.
Id Homes::part_of(int32_t role, size_t u) const {
  const Id part = r_.sharding ? r_.sharding->part(role, unit_view(u)) : 0;
  if (part > plan_.ranks.parts.size())
    throw fault("zero {} keeps role {} as part {}, which it has not made", r_.sharding->name, role, part);
  return part;
}

// The first pieces of every unit stay, so that each side has work while the other has; of one that is updated early
// none do, and more of those before it. Of the others the device updates some, in turn with the host. Rounding is
// carried to the next unit. A unit that is updated whole is not cut.
void Homes::choose_kept() {
  double due = 0, visiting = 0;  // elements that stay, and that the device updates
  const auto stays = [&](size_t u) { return (1 - r_.offload.ratio) * static_cast<double>(unit(u).count); };
  for (size_t u = 0; u < units(); ++u) due += early(u) ? stays(u) : 0;
  for (size_t u = 0; u < units(); ++u) {
    uint64_t& kept = kept_.emplace_back(0);
    if (!trains(u) || early(u)) continue;
    due += stays(u);
    for (const Range& piece : pieces(u, rule(u).whole)) {
      const auto n = static_cast<double>(piece.count);
      if (kept == piece.first && due >= n / 2)
        kept += piece.count, due -= n;
      else if (!rule(u).whole && (visiting += r_.offload.device_share * n) >= n / 2)
        visits_.insert({u, piece.first}), visiting -= n;
    }
  }
}

uint32_t Homes::place(int32_t role, size_t u, uint64_t first) const {
  // Frozen weights are kept once: a master that the policy wants beside the weight lives with it.
  const auto it = r_.offload.roles.find(role == ENG_ROLE_MASTER && frozen(u) ? ENG_ROLE_WEIGHT : role);
  if (it == r_.offload.roles.end()) return 0;
  if ((role == ENG_ROLE_STATE || role == ENG_ROLE_MASTER) && first < kept_[u]) return 0;
  const auto& tiers = r_.offload.tiers;
  const auto tier = std::find_if(tiers.begin(), tiers.end(), [&](const auto& t) { return t.name == it->second; });
  return plan_.first_tier + static_cast<uint32_t>(tier - tiers.begin());
}

// Equal homes are one memory, and a part lies inside of a whole: the weight, if it is given, is its own master. That of
// a frozen weight, which is given, has its part.
Home Homes::persistent(const std::string& what, Line line, int32_t role, int32_t dtype, size_t u, uint32_t per,
                       const Home* weight) {
  const Id kept = weight && weight->part && frozen(u) ? weight->part : part_of(role, u);
  const uint64_t all = unit(u).count, cut = place(role, u) == place(role, u, all - 1) ? all : kept_[u];
  const int32_t packed = eng_packed_bytes(dtype) ? dtype : 0;
  const auto make = [&](uint64_t first, uint64_t n) -> Home {
    const uint32_t at = place(role, u, first);
    if (weight && weight->where() == Where{at, weight->part, dtype} && (kept == weight->part || !weight->part)) {
      const uint64_t parts = plan_.ranks.part(weight->part).count;
      const View view = slice(weight->view, weight->values(first / parts), weight->values(n / parts));
      return {view, kept, kept != weight->part, per, at, packed};
    }
    const eng_desc desc = flat(dtype, n / plan_.ranks.part(kept).count / per);
    return {keep(u, what + " " + unit(u).name, line, desc, at), kept, false, per, at, packed};
  };
  Home out = make(0, cut);
  if (cut < all) out.cut = cut, out.back = std::make_shared<const Home>(make(cut, all - cut));
  return out;
}

void Homes::make_homes(size_t u) {
  const eng_unit view = unit_view(u);
  const auto dtype = [&](int32_t role) { return r_.precision.dtype(role, &view); };
  const int32_t weight = dtype(ENG_ROLE_WEIGHT), wide = dtype(ENG_ROLE_MASTER), grad = dtype(ENG_ROLE_GRAD);
  // Without an update the weight is all there is, if whoever fills it may round it as the policy does.
  const bool only = (!r_.train || frozen(u)) && (r_.precision.table.flags & ENG_AXIS_CASTS);
  const int32_t master = only ? weight : wide;
  initial.push_back(eng_packed_bytes(wide) ? ENG_F32 : r_.train ? wide : master);
  partial_.push_back(dtype(ENG_ROLE_PARTIAL));
  const Line line = model_.params[unit(u).params[0]].flags & of_reference ? Line::reference : Line::weights;
  this->weight.push_back(persistent("weight", line, ENG_ROLE_WEIGHT, weight, u));
  const Home& w = this->weight.back();
  this->master.push_back(only && !r_.train ? w : persistent("master", line, ENG_ROLE_MASTER, master, u, 1, &w));
  if (!r_.gradients()) return void(this->grad.emplace_back());
  if (frozen(u)) {
    this->grad.emplace_back();
    for (uint32_t p : line == Line::reference ? std::vector<uint32_t>() : unit(u).params) {
      const auto n = static_cast<uint64_t>(count(model_.params[p].desc));
      plan_.frozen.parameters += n, plan_.frozen.gradients += n * dtype_size(grad);
      for (size_t s = 0; s < rules().states().size(); ++s) plan_.frozen.states += bytes(state_of(s, p));
    }
    return;
  }
  // Without an update gradients stay for whoever reads them; else they last from the backward to the update, which may
  // be in the next step.
  const Id reduced = part_of(ENG_ROLE_GRAD, u);
  const eng_desc desc = flat(grad, unit(u).count / plan_.ranks.part(reduced).count);
  const std::string name = "gradient " + unit(u).name;
  const uint32_t at = place(ENG_ROLE_GRAD, u);
  const bool late = r_.offload.update_late || early(u), passing = r_.optimizer && !r_.keep_gradients && !late;
  this->grad.push_back({!held(u)  ? View{0, 0, desc}
                        : passing ? emit_.transient(name, Line::gradients, desc, at)
                                  : emit_.persistent(name, Line::gradients, desc, r_.job || late, at),
                        reduced, false, 1, at});
  if (keeps_residuals()) residual[u] = persistent("residual", Line::residuals, ENG_ROLE_RESIDUAL, ENG_F32, u);
}

void Homes::make_optimizer() {
  for (size_t s = 0; s < rules().states().size(); ++s) {
    optimizer.emplace_back(), shaped.emplace_back();
    for (size_t u = 0; u < units(); ++u) optimizer.back().push_back(make_state(s, u));
  }
  if (r_.job) return;
  int64_t columns = 1 + static_cast<int64_t>(r_.optimizer->scalars(1).size());
  plan_.table = emit_.persistent("schedule", Line::step, make_desc(ENG_F32, {r_.steps, columns}), true);
}

// A state of a parameter as a tensor, which is empty if it has none. One f32 for each element is kept in the type that
// the precision policy says.
eng_desc Homes::state_of(size_t state, uint32_t p) const {
  const StateOf& has = rules().of(p).states[state];
  eng_desc desc = has.desc;
  if (has.kind == ENG_STATE_NONE) return make_desc(desc.dtype, {0});
  const eng_unit unit = unit_view(unit_of(p));
  if (has.kind == ENG_STATE_ELEMENTS && desc.dtype == ENG_F32 && !r_.job)
    desc.dtype = r_.precision.dtype(ENG_ROLE_STATE, &unit);
  return desc;
}

// A state of elements or blocks is one flat value per unit; other states are one value per parameter.
Home Homes::make_state(size_t state, size_t u) {
  const std::string& name = rules().states()[state].name;
  const StateOf& has = rule(u).states[state];
  if (frozen(u) || has.kind == ENG_STATE_NONE) return {};
  if (has.kind == ENG_STATE_SHAPED) {
    for (uint32_t p : unit(u).params)
      shaped[state][p] = keep(u, fmt::format("{} {}", name, model_.params[p].name), Line::optimizer,
                              rules().of(p).states[state].desc, place(ENG_ROLE_STATE, u));
    return {};
  }
  const int32_t dtype = state_of(state, unit(u).params[0]).dtype;
  return persistent(name, r_.job ? Line::job : Line::optimizer, ENG_ROLE_STATE, dtype, u, has.per);
}

void Homes::make_tensors() {
  const Ranks& all = plan_.ranks;
  if (keeps_residuals()) plan_.ranks.parts.push_back({all.data_size(), all.data_rank(), data_group});
  for (uint32_t p = 0; p < model_.params.size(); ++p) {
    const size_t u = unit_of(p);
    const Parameter& param = model_.params[p];
    const auto add = [&](const std::string& role, const Home& home, const eng_desc& mine) {
      eng_desc desc = param.whole(mine);
      desc.dtype = home.packed ? ENG_F32 : home.view.desc.dtype;
      plan_.tensors.push_back(
          {param.name, role, desc, home.part, ranges(home, p), param.flags, home.packed, param.cut});
    };
    add("parameter", master[u], param.desc);
    if (r_.gradients() && (!r_.optimizer || r_.keep_gradients) && !frozen(u)) add("gradient", grad[u], param.desc);
    for (size_t s = 0; s < optimizer.size(); ++s) {
      const std::string& state = rules().states()[s].name;
      if (optimizer[s][u].view.desc.dtype) add(state, optimizer[s][u], rules().of(p).states[s].desc);
      if (const auto it = shaped[s].find(p); it != shaped[s].end())
        plan_.tensors.push_back(tensor_at(param.name, state, it->second));
    }
    if (!residual[u].view.desc.dtype) continue;
    // One tensor, a row for each group of ranks that together hold one. No other rank holds what this one does. Ranks
    // that divide the parameter, and both stages that have gradients of it, have rows of their own.
    const uint32_t n = all.part(residual[u].part).count, own = all.data_size() / n,
                   rows = param.two_stages ? 2 * own : own;
    std::vector<HeldRange> held = ranges(residual[u], p, true);
    const uint32_t row = all.tensor_rank() * rows + (all.stage() > 0 ? rows - own : 0) + all.data_rank() / n;
    for (HeldRange& range : held) range.first += row * elements(p).count;
    const std::string more = all.tensor * rows > own ? fmt::format("x{}x{}", rows / own, all.tensor) : "";
    plan_.tensors.push_back({fmt::format("zero.residual.{}{}.{}", own, more, param.name),
                             "policy",
                             make_desc(ENG_F32, {all.tensor * rows, static_cast<int64_t>(elements(p).count)}),
                             static_cast<Id>(all.parts.size()),
                             held,
                             0,
                             0,
                             {0, all.tensor_rank(), all.tensor}});
  }
}

}  // namespace eng
