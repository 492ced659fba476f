// SPDX-License-Identifier: Apache-2.0
#include "core/plan/states.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/ops.h"

namespace eng {

States::States(const PlanRequest& request, Plan& plan, Emitter& emitter)
    : r_(request),
      model_(request.model),
      plan_(plan),
      emit_(emitter),
      rules_(request),
      homes_(model_, plan, request.bucket, [this](uint32_t p) { return rules_.of(p).sort; }) {
  computed_.resize(homes_.units());
  for (const Block& block : model_.blocks) {
    const Template& t = model_.templates.at(block.tmpl);
    for (size_t k = 0; k < block.params.size(); ++k)
      computed_[homes_.unit_of(block.params[k])] = t.graph.value(t.params[k]).desc.dtype;
  }
  choose_kept();
  for (size_t u = 0; u < homes_.units(); ++u) make_homes(u);
  if (r_.train && r_.optimizer) make_optimizer();
  for (uint32_t p = 0; p < model_.params.size(); ++p) {
    const size_t u = homes_.unit_of(p);
    weights.push_back(leased(u) ? View{} : homes_.parameter(weight[u].view, p));
  }
  make_step();
  make_own(r_.precision);
  if (r_.sharding) make_own(*r_.sharding);
  if (r_.job)
    for (const Policy::State& value : r_.job->values)
      values_.push_back(emit_.persistent("value " + value.name, Line::job, value.desc, true));
  make_tensors();
}

eng_unit States::unit_view(size_t u) const {
  const Unit& unit = homes_.unit(u);
  return {sizeof(eng_unit), static_cast<eng_id>(u + 1), unit.block, unit.flags, unit.count};
}

// The part of a state that a rank keeps, according to the sharding policy.
Id States::part(int32_t role, size_t u) const {
  const Id part = r_.sharding ? r_.sharding->part(role, unit_view(u)) : 0;
  if (part > plan_.ranks.parts.size())
    throw Error(Exit::environment,
                fmt::format("zero {} keeps role {} as part {}, which it has not made", r_.sharding->name, role, part));
  return part;
}

// The first pieces of every unit stay, so that each side has work while the other has. Rounding is carried to the next
// unit. A unit that is updated whole is not cut.
void States::choose_kept() {
  double due = 0;  // elements that stay
  for (size_t u = 0; u < homes_.units(); ++u) {
    due += (1 - r_.offload.ratio) * static_cast<double>(homes_.unit(u).count);
    uint64_t& kept = kept_.emplace_back(0);
    for (const Range& piece : homes_.pieces(u, rule(u).whole)) {
      const auto n = static_cast<double>(piece.count);
      if (due < n / 2) break;
      kept += piece.count, due -= n;
    }
  }
}

uint32_t States::place(int32_t role, size_t u, uint64_t first) const {
  const auto it = r_.offload.roles.find(role);
  if (it == r_.offload.roles.end()) return 0;
  if ((role == ENG_ROLE_STATE || role == ENG_ROLE_MASTER) && first < kept_[u]) return 0;
  const auto& tiers = r_.offload.tiers;
  const auto tier = std::find_if(tiers.begin(), tiers.end(), [&](const auto& t) { return t.name == it->second; });
  return plan_.first_tier + static_cast<uint32_t>(tier - tiers.begin());
}

// Equal homes are one memory, and a part lies inside of a whole: the weight, if it is given, is its own master.
Home States::persistent(const std::string& what, Line line, int32_t role, int32_t dtype, size_t u, uint32_t per,
                        const Home* weight) {
  const Id kept = part(role, u);
  const uint64_t all = homes_.unit(u).count, cut = place(role, u) == place(role, u, all - 1) ? all : kept_[u];
  const auto make = [&](uint64_t first, uint64_t n) -> Home {
    const uint32_t at = place(role, u, first);
    if (weight && weight->place == at && weight->view.desc.dtype == dtype && (kept == weight->part || !weight->part)) {
      const uint64_t parts = plan_.ranks.part(weight->part).count;
      return {slice(weight->view, first / parts, n / parts), kept, kept != weight->part, per, at};
    }
    const eng_desc desc = flat(dtype, n / plan_.ranks.part(kept).count / per);
    return {emit_.persistent(what + " " + homes_.unit(u).name, line, desc, true, at), kept, false, per, at};
  };
  Home out = make(0, cut);
  if (cut < all) out.cut = cut, out.back = std::make_shared<const Home>(make(cut, all - cut));
  return out;
}

void States::make_homes(size_t u) {
  const eng_unit view = unit_view(u);
  const auto dtype = [&](int32_t role) { return r_.precision.dtype(role, &view); };
  const int32_t weight = dtype(ENG_ROLE_WEIGHT), master = dtype(ENG_ROLE_MASTER), grad = dtype(ENG_ROLE_GRAD);
  partial_.push_back(dtype(ENG_ROLE_PARTIAL));
  const bool reference = (model_.params[homes_.unit(u).params[0]].flags & of_reference) != 0;
  const Line line = reference ? Line::reference : Line::weights;
  this->weight.push_back(persistent("weight", line, ENG_ROLE_WEIGHT, weight, u));
  const Home& w = this->weight.back();
  // Without training the weight is all there is, if whoever fills it may round it as the policy does.
  const bool only = !r_.train && (r_.precision.table.flags & ENG_AXIS_CASTS);
  this->master.push_back(only ? w : persistent("master", line, ENG_ROLE_MASTER, master, u, 1, &w));
  if (!r_.train) return;
  if (frozen(u)) {
    this->grad.emplace_back();
    for (uint32_t p : reference ? std::vector<uint32_t>() : homes_.unit(u).params) {
      const auto n = static_cast<uint64_t>(count(model_.params[p].desc));
      plan_.frozen.parameters += n, plan_.frozen.gradients += n * dtype_size(grad);
      for (size_t s = 0; s < rules_.states().size(); ++s) plan_.frozen.states += bytes(state_of(s, p));
    }
    return;
  }
  // Without an update gradients stay for whoever reads them; else they last from the backward to the update.
  const Id reduced = part(ENG_ROLE_GRAD, u);
  const eng_desc desc = flat(grad, homes_.count(u, reduced));
  const std::string name = "gradient " + homes_.unit(u).name;
  const uint32_t at = place(ENG_ROLE_GRAD, u);
  const bool passing = r_.optimizer && !r_.keep_gradients;
  this->grad.push_back({passing ? emit_.transient(name, Line::gradients, desc, at)
                                : emit_.persistent(name, Line::gradients, desc, r_.job != nullptr, at),
                        reduced, false, 1, at});
}

void States::make_optimizer() {
  for (size_t s = 0; s < rules_.states().size(); ++s) {
    optimizer.emplace_back(), shaped.emplace_back();
    for (size_t u = 0; u < homes_.units(); ++u) optimizer.back().push_back(make_state(s, u));
  }
  if (r_.job) return;
  int64_t columns = 1 + static_cast<int64_t>(r_.optimizer->scalars(1).size());
  plan_.table = emit_.persistent("schedule", Line::step, make_desc(ENG_F32, {r_.steps, columns}), true);
}

// A state of a parameter as a tensor, which is empty if it has none. One f32 for each element is kept in the type that
// the precision policy says.
eng_desc States::state_of(size_t state, uint32_t p) const {
  const StateOf& has = rules_.of(p).states[state];
  eng_desc desc = has.desc;
  if (has.kind == ENG_STATE_NONE) return make_desc(desc.dtype, {0});
  const eng_unit unit = unit_view(homes_.unit_of(p));
  if (has.kind == ENG_STATE_ELEMENTS && desc.dtype == ENG_F32 && !r_.job)
    desc.dtype = r_.precision.dtype(ENG_ROLE_STATE, &unit);
  return desc;
}

// A state of elements or blocks is one flat value per unit; other states are one value per parameter.
Home States::make_state(size_t state, size_t u) {
  const std::string& name = rules_.states()[state].name;
  const StateOf& has = rule(u).states[state];
  if (frozen(u) || has.kind == ENG_STATE_NONE) return {};
  if (has.kind == ENG_STATE_SHAPED) {
    for (uint32_t p : homes_.unit(u).params)
      shaped[state][p] = emit_.persistent(fmt::format("{} {}", name, model_.params[p].name), Line::optimizer,
                                          rules_.of(p).states[state].desc, true, place(ENG_ROLE_STATE, u));
    return {};
  }
  const int32_t dtype = state_of(state, homes_.unit(u).params[0]).dtype;
  return persistent(name, r_.job ? Line::job : Line::optimizer, ENG_ROLE_STATE, dtype, u, has.per);
}

void States::make_step() {
  for (const auto& [tmpl, t] : model_.templates) {
    auto& list = constants[tmpl];
    for (const auto& c : t.constants) {
      list.push_back(emit_.persistent(fmt::format("constant {} of template {}", list.size(), tmpl), Line::constants,
                                      c->desc, true));
      plan_.constants.push_back(list.back());
      plan_.constant_data.push_back(c);
    }
  }
  const auto make = [&](const std::string& name, Line line, const eng_desc& desc, View& host) {
    const Shared both = shared(name, line, desc, true);
    host = both.host;
    return both.device;
  };
  if (!r_.traits.collectives_on_device && !single_rank()) emit_.stage_collectives(1);
  const int64_t a = r_.accumulate, b = model_.micro_batch, t = model_.sequence_length;
  for (const Field& field : model_.fields) {
    plan_.fields.push_back({field.name, {}});
    fields.push_back(make(field.name, Line::batch, make_desc(field.dtype, {a, b, t}), plan_.fields.back().view));
  }
  inputs = make("inputs", Line::step, make_desc(ENG_F32, {8}), plan_.inputs);
  plan_.counters = make("counters", Line::step, make_desc(ENG_I64, {ENG_C_COUNT}), plan_.host_counters);
  plan_.scalars = make("scalars", Line::step, make_desc(ENG_F32, {ENG_S_COUNT}), plan_.results);
  // The loss is f32, or f64 where the compute is f64 (gradient checks).
  const Template& head = model_.templates.at(model_.blocks.back().tmpl);
  const int32_t wide = head.graph.value(head.outputs[0]).desc.dtype;
  const int64_t row = plan_.row;
  losses = make("losses", Line::step, row == 1 ? make_desc(wide, {a}) : make_desc(wide, {a, row}), plan_.losses);
  if (single_rank() || !r_.train) return;
  const Shared all =
      shared("losses of all ranks", Line::step, flat(wide, uint64_t(a) * plan_.row * plan_.ranks.data_size()), false);
  all_losses = all.device, plan_.all_losses = all.host;
}

void States::after_losses(uint64_t n) {
  const uint64_t mine = static_cast<uint64_t>(count(losses.desc)) + n;
  const auto grow = [&](View& view, uint64_t values) {
    view.desc = flat(view.desc.dtype, values);
    plan_.buffer(view.buffer).bytes = std::max(plan_.buffer(view.buffer).bytes, bytes(view.desc));
  };
  for (View* view : {&losses, &plan_.losses}) grow(*view, mine);
  if (!single_rank())
    for (View* view : {&all_losses, &plan_.all_losses}) grow(*view, mine * plan_.ranks.data_size());
}

States::Shared States::shared(const std::string& name, Line line, const eng_desc& desc, bool initial) {
  const View device = emit_.persistent(name, line, desc, initial);
  return {device, r_.traits.discrete ? emit_.persistent(name + " for the host", line, desc, true, 1) : device};
}

void States::copy(Queue queue, const View& from, const View& to) {
  if (from.buffer == to.buffer) return;
  const Queue before = emit_.on(r_.traits.queues ? queue : Queue::compute);
  emit_.action(op(ENG_OP_COPY), {from}, {to});
  emit_.on(before);
}

void States::make_own(const Policy& policy) {
  Own& own = own_.emplace_back(Own{&policy, policy.states(), {}});
  for (const Policy::State& state : own.states)
    own.views.push_back(emit_.persistent(policy.who() + " " + state.name, Line::step, state.desc, true));
}

void States::make_tensors() {
  std::set<std::string> stored{"__metadata__"};  // as files name them
  const auto check = [&](const std::string& name) {
    if (!stored.insert(name).second)
      throw Error(Exit::environment,
                  fmt::format("model {}: two tensors would be stored as `{}`, or a parameter as what "
                              "files have for themselves",
                              model_.plugin, name));
  };
  const auto whole = [](const View& view) {
    return std::vector<HeldRange>{{{0, static_cast<uint64_t>(count(view.desc))}, view}};
  };
  for (uint32_t p = 0; p < model_.params.size(); ++p) {
    const size_t u = homes_.unit_of(p);
    const auto add = [&](const std::string& role, const Home& home, eng_desc desc) {
      desc.dtype = home.view.desc.dtype;
      plan_.tensors.push_back(
          {model_.params[p].name, role, desc, home.part, homes_.ranges(home, p), model_.params[p].flags});
    };
    const eng_desc& own = model_.params[p].desc;
    add("parameter", master[u], own);
    check(model_.params[p].name);
    for (const auto& state : rules_.states()) check(fmt::format("{}.{}", model_.params[p].name, state.name));
    if (r_.train && (!r_.optimizer || r_.keep_gradients) && !frozen(u)) add("gradient", grad[u], own);
    for (size_t s = 0; s < optimizer.size(); ++s) {
      const eng_desc& desc = rules_.of(p).states[s].desc;
      if (optimizer[s][u].view.buffer) add(rules_.states()[s].name, optimizer[s][u], desc);
      if (const auto it = shaped[s].find(p); it != shaped[s].end())
        plan_.tensors.push_back({model_.params[p].name, rules_.states()[s].name, desc, 0, whole(it->second)});
    }
  }
  for (const Own& own : own_)
    for (size_t s = 0; s < own.states.size(); ++s) {
      const std::string name = own.policy->kind + "." + own.policy->name + "." + own.states[s].name;
      check(name + ".policy");
      plan_.tensors.push_back({name, "policy", own.states[s].desc, 0, whole(own.views[s])});
    }
  for (size_t v = 0; v < values_.size(); ++v) {
    const std::string name = r_.job->value_name(v);
    check(name + ".value");
    plan_.tensors.push_back({name, "value", r_.job->values[v].desc, 0, whole(values_[v])});
  }
}

static std::vector<eng_id> ids_of(EmittingBuilder& builder, const std::vector<View>& views, bool writable) {
  std::vector<eng_id> out;
  for (const View& v : views) out.push_back(builder.add(v, writable));
  return out;
}

// At the beginning of a step policies write the scalars, after the norm their own states.
void States::run_hooks(decltype(eng_axis::update) eng_axis::*hook, Phase phase, bool at_begin) {
  for (const Own& own : own_) {
    const auto call = own.policy->table.*hook;
    if (!call) continue;
    emit_.label(phase, own.policy->kind);
    EmittingBuilder builder(emit_, plan_.ranks, "update " + own.policy->kind, Line::update);
    const std::vector<eng_id> states = ids_of(builder, own.views, !at_begin);
    const eng_policy_update update{sizeof(eng_policy_update), static_cast<uint32_t>(states.size()), states.data(),
                                   builder.add(plan_.scalars, at_begin), 0};
    ask(own.policy->who(), builder,
        [&](eng_error* error) { return call(own.policy->self.get(), &builder, &update, error); });
  }
}

// Has a policy write all of `to` from `from`: piece `piece` of a state of unit u.
void States::move(const Policy& policy, int32_t role, size_t u, size_t piece, const View& from, Id from_part,
                  const View& to, Id to_part) {
  EmittingBuilder builder(emit_, plan_.ranks, "move " + homes_.unit(u).name);
  const auto home = [](const View& v, Id part) {
    return eng_view{sizeof(eng_view), v.desc.dtype, part, 0, static_cast<uint64_t>(count(v.desc))};
  };
  const eng_view source = home(from, from_part), target = home(to, to_part);
  const eng_id src = builder.add(from), dst = builder.add(to, true);
  const auto own = std::find_if(own_.begin(), own_.end(), [&](const Own& o) { return o.policy == &policy; });
  const std::vector<eng_id> states = ids_of(builder, own->views, false);
  const eng_move m{sizeof(eng_move),
                   role,
                   static_cast<eng_id>(u + 1),
                   static_cast<uint32_t>(piece),
                   src,
                   dst,
                   &source,
                   &target,
                   states.data(),
                   static_cast<uint32_t>(states.size()),
                   0};
  const size_t before = emit_.segment().actions.size();
  ask(policy.who(), builder,
      [&](eng_error* error) { return policy.table.move(policy.self.get(), &builder, &m, error); });
  if (written(emit_.segment(), before, to) != Written::all)
    throw Error(Exit::environment, fmt::format("{}: its move of role {} leaves a part of dst unwritten ({}, piece {})",
                                               policy.who(), role, homes_.unit(u).name, piece));
}

static bool crosses(const std::vector<Move>& way, Axis axis = Axis::part) {
  return std::any_of(way.begin(), way.end(), [axis](const Move& m) { return m.axis == axis; });
}

// Takes a piece from `from`, which is at `at`, along a route to `to`. Where it moves between ranks, all of it runs
// beside the computation.
void States::carry(const std::vector<Move>& way, int32_t role, size_t u, size_t piece, View from, Where at,
                   const View& to) {
  const uint64_t all = static_cast<uint64_t>(count(from.desc)) * plan_.ranks.part(at.part).count;
  const bool far = crosses(way, Axis::place);
  const auto between = [&](const eng_desc& desc, uint32_t place) {
    const std::string name = "move " + homes_.unit(u).name;
    return far ? emit_.passing(name, Line::communication, desc, place)
               : emit_.transient(name, Line::communication, desc, place);
  };
  const auto moves = [&] {
    for (size_t k = 0; k < way.size(); ++k) {
      const Where& next = way[k].to;
      View target = to;
      if (k + 2 == way.size() && way[k + 1].axis == Axis::part && next.part && !way[k + 1].to.part)
        target = homes_.part(to, next.part);  // the rest comes around it
      else if (k + 1 < way.size())
        target = between(flat(next.dtype, all / plan_.ranks.part(next.part).count), next.place);
      switch (way[k].axis) {
        case Axis::part:
          move(*r_.sharding, role, u, piece, from, at.part, target, next.part);
          break;
        case Axis::dtype:
          move(r_.precision, role, u, piece, from, at.part, target, next.part);
          break;
        case Axis::place:
          emit_.action(op(ENG_OP_COPY), {from}, {target});
      }
      from = target, at = next;
    }
  };
  if (crosses(way))
    between_ranks(moves);
  else
    moves();
}

void States::publish(size_t u, uint64_t first) {
  const Home &from = master[u], &to = weight[u];
  const auto way = [&](uint64_t at) { return route(plan_, from.where(at), to.where()); };
  const auto pieces = homes_.pieces(u, !from.part && !to.part && !from.back && !crosses(way(0), Axis::place));
  for (size_t k = 0; k < pieces.size(); ++k) {
    const uint64_t at = pieces[k].first;
    if (one(u, at) || at + pieces[k].count <= first) continue;
    emit_.label(Phase::publish, homes_.unit(u).name);
    carry(way(at), ENG_ROLE_WEIGHT, u, k, homes_.view(from, pieces[k]), from.where(at), homes_.view(to, pieces[k]));
  }
}

bool States::publishes_late(size_t u) const {
  return r_.overlap && r_.train && !r_.job && !frozen(u) && !single_rank() && master[u].part != weight[u].part;
}

View States::gather(Leases& leases, const std::string& what, Line line, int32_t role, size_t u, const Home& home,
                    int32_t dtype) {
  const View whole = leases.acquire({role, u}, fmt::format("{} {}", what, homes_.unit(u).name), line,
                                    flat(dtype ? dtype : home.view.desc.dtype, homes_.unit(u).count));
  const auto way = route(plan_, home.where(), {0, 0, whole.desc.dtype});
  const auto pieces = homes_.pieces(u, !home.part && !crosses(way, Axis::place));
  emit_.label(Phase::gather, homes_.unit(u).name);
  for (size_t k = 0; k < pieces.size(); ++k)
    carry(way, role, u, k, homes_.view(home, pieces[k]), home.where(), slice(whole, pieces[k].first, pieces[k].count));
  return whole;
}

void States::reduce(size_t u, const View& own, bool store) {
  emit_.label(Phase::reduce, homes_.unit(u).name);
  Where to = grad[u].where();
  if (!store) to.place = plan_.memory_of(to.place);
  add(u, route_of_sum(plan_, {0, 0, own.desc.dtype}, to, partial_[u], single_rank()), own, grad[u], store);
}

// Stores or adds what comes along a route. Sums are made in memory.
void States::add(size_t u, const std::vector<Move>& way, const View& from, const Home& home, bool store) {
  const bool far = crosses(way, Axis::place) || plan_.stores(home.place);
  const auto pieces = homes_.pieces(u, !crosses(way) && !far);
  const Where at{0, 0, from.desc.dtype};
  for (const Range& piece : pieces) {
    const View to = homes_.view(home, piece);
    View value = slice(from, piece.first, piece.count);
    if (!way.empty()) {
      const std::string name = "reduced " + homes_.unit(u).name;
      const View arrived = store ? to
                           : far ? emit_.passing(name, Line::communication, to.desc, plan_.memory_of(home.place))
                                 : emit_.transient(name, Line::communication, to.desc);
      carry(way, ENG_ROLE_GRAD, u, static_cast<size_t>(&piece - pieces.data()), value, at, arrived);
      value = arrived;
    }
    const auto sum = [&] {
      const View here = emit_.in_memory(to, "gradient " + homes_.unit(u).name, Line::communication);
      emit_.action(op(ENG_OP_ADD), {here, value}, {here});
      if (here.buffer != to.buffer) emit_.copy(here, to);
    };
    if (store) continue;
    if (crosses(way))
      between_ranks(sum);
    else
      sum();
  }
}

View States::collective(const char* id, const View& from, const View& to) {
  EmittingBuilder builder(emit_, plan_.ranks, "exchange");
  const Id in = builder.add(from);
  const Id out = builder.emit(op(id), {in}, {builder.add(to, true)}, {{{"group", data_group, 0}}})[0];
  return builder.view(out);
}

}  // namespace eng
