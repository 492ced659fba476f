// SPDX-License-Identifier: Apache-2.0
#include "core/plan/own.hpp"

#include <set>

namespace eng {

OwnTensors::OwnTensors(const PlanRequest& request, Plan& plan, Emitter& emitter, const Homes& homes)
    : of_blocks(request.model.blocks.size()), plan_(plan), emit_(emitter) {
  std::vector<std::string> names;
  const auto make = [&](const std::string& name, const char* role, const View& view) {
    plan_.tensors.push_back(tensor_at(name, role, view));
    names.push_back(name + "." + role);
    return view;
  };
  for (const Policy* policy :
       {static_cast<const Policy*>(&request.precision), static_cast<const Policy*>(request.sharding)}) {
    if (!policy) continue;
    Own& own = own_.emplace_back(Own{*policy, {}, plan.ranks.data()});
    for (const OwnState& state : policy->states())
      own.states.push_back(make(policy->kind + "." + policy->name + "." + state.name, "policy",
                                emit_.persistent(policy->who() + " " + state.name, Line::step, state.desc, true)));
  }
  // All states of a transform lie behind each other: one value for its `update`, slices for the blocks.
  for (size_t t = 0; t < request.model.transformed.size(); ++t) {
    const Transformed& by = request.model.transformed[t];
    uint64_t n = 0;
    const auto each = [&](auto use) {
      for (size_t b = 0; b < of_blocks.size(); ++b)
        for (const OwnState& state : request.model.blocks[b].states)
          if (state.by == t) use(b, state, static_cast<uint64_t>(count(state.desc)));
    };
    each([&](size_t, const OwnState&, uint64_t size) { n += size; });
    if (!n) continue;
    const View all = emit_.persistent("transform " + by.name, Line::step, flat(ENG_F32, n), true);
    own_.push_back({{"transform", by.name, {}, by.self}, {all}, 1});
    own_.back().policy.table.update = by.update;
    each([&, at = uint64_t{0}](size_t b, const OwnState& state, uint64_t size) mutable {
      of_blocks[b].push_back(make("transform." + by.name + "." + state.name, "policy",
                                  reshape(slice(all, std::exchange(at, at + size), size), state.desc)));
    });
  }
  for (size_t v = 0; request.job && v < request.job->values.size(); ++v) {
    const OwnState& value = request.job->values[v];
    make(request.job->value_name(v), "value", emit_.persistent("value " + value.name, Line::job, value.desc, true));
  }
  check_names(request.model, homes.rules(), names);
}

// `more`: the names of the tensors that are not of parameters.
void OwnTensors::check_names(const Model& model, const Rules& rules, const std::vector<std::string>& more) {
  std::set<std::string> stored{"__metadata__"};  // as files name them
  const auto check = [&](const std::string& name) {
    if (!stored.insert(name).second)
      throw fault("model {}: two tensors would be stored as `{}`, or a parameter as what files have for themselves",
                  model.plugin, name);
  };
  for (const Parameter& p : model.params) {
    check(p.name);
    for (const auto& state : rules.states()) check(p.name + "." + state.name);
  }
  for (const std::string& name : more) check(name);
}

std::vector<eng_id> OwnTensors::add(EmittingBuilder& builder, const Policy& policy, bool writable) const {
  std::vector<eng_id> out;
  for (const Own& own : own_)
    for (const View& view : own.policy.who() == policy.who() ? own.states : std::vector<View>{})
      out.push_back(builder.add(view, writable));
  return out;
}

// At the beginning of a step policies write the scalars, after the norm their own states.
void OwnTensors::run_hooks(decltype(eng_axis::update) eng_axis::*hook, Phase phase, bool at_begin) {
  for (const Own& own : own_) {
    const Policy& policy = own.policy;
    const auto call = policy.table.*hook;
    if (!call) continue;
    emit_.label(phase, policy.kind);
    EmittingBuilder builder(emit_, plan_.ranks, "update " + policy.kind, Line::update);
    builder.everyone = own.everyone;
    const std::vector<eng_id> states = add(builder, policy, !at_begin);
    const eng_policy_update update{sizeof(eng_policy_update), static_cast<uint32_t>(states.size()), states.data(),
                                   builder.add(plan_.scalars, at_begin), 0};
    ask(policy.who(), builder, Exit::environment, call, policy.self.get(), &builder, &update);
  }
}

}  // namespace eng
