// SPDX-License-Identifier: Apache-2.0
#include "core/plan/own.hpp"

#include <fmt/format.h>

#include <set>

namespace eng {

OwnTensors::OwnTensors(const PlanRequest& request, Plan& plan, Emitter& emitter, const Homes& homes)
    : plan_(plan), emit_(emitter) {
  std::vector<std::string> names;
  const auto make = [&](const std::string& name, const char* role, const View& view) {
    plan_.tensors.push_back(tensor_at(name, role, view));
    names.push_back(name + "." + role);
    return view;
  };
  for (const Policy* policy :
       {static_cast<const Policy*>(&request.precision), static_cast<const Policy*>(request.sharding)}) {
    if (!policy) continue;
    std::vector<View>& views = own_.emplace_back(policy, std::vector<View>{}).second;
    for (const Policy::State& state : policy->states())
      views.push_back(make(policy->kind + "." + policy->name + "." + state.name, "policy",
                           emit_.persistent(policy->who() + " " + state.name, Line::step, state.desc, true)));
  }
  for (size_t v = 0; request.job && v < request.job->values.size(); ++v) {
    const Policy::State& value = request.job->values[v];
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
  for (const auto& [of, views] : own_)
    for (const View& view : of == &policy ? views : std::vector<View>{}) out.push_back(builder.add(view, writable));
  return out;
}

// At the beginning of a step policies write the scalars, after the norm their own states.
void OwnTensors::run_hooks(decltype(eng_axis::update) eng_axis::*hook, Phase phase, bool at_begin) {
  for (const auto& one : own_) {
    const Policy* policy = one.first;
    const auto call = policy->table.*hook;
    if (!call) continue;
    emit_.label(phase, policy->kind);
    EmittingBuilder builder(emit_, plan_.ranks, "update " + policy->kind, Line::update);
    const std::vector<eng_id> states = add(builder, *policy, !at_begin);
    const eng_policy_update update{sizeof(eng_policy_update), static_cast<uint32_t>(states.size()), states.data(),
                                   builder.add(plan_.scalars, at_begin), 0};
    ask(policy->who(), builder, Exit::environment, call, policy->self.get(), &builder, &update);
  }
}

}  // namespace eng
