// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/plan/request.hpp"

namespace eng {
namespace {

Policy make_policy(const char* kind, const std::string& name, const eng_axis& table, const Section& section,
                   Ranks& ranks) {
  RanksBuilder builder(ranks);
  const std::string where = fmt::format("[{}] {}", kind, name);
  Policy out{kind, name, table, make_object(table, section, where, static_cast<eng_build*>(&builder))};
  builder.check(where);
  if (table.flags_of) call_plugin(Exit::environment, where, table.flags_of, out.self.get(), &out.table.flags);
  return out;
}

// The answer of `place` about a state. `own`: the one field that the policy may change.
template <class Field>
eng_view place(const Policy& policy, int32_t role, const eng_unit* unit, Field eng_view::*own,
               int32_t dtype = ENG_F32) {
  eng_view view{sizeof(eng_view), dtype, 0, 0, unit ? unit->count : 0};
  eng_view before = view;
  call_plugin(Exit::environment, policy.who(), policy.table.place, policy.self.get(), unit, role, &view);
  before.*own = view.*own;
  if (view.dtype != before.dtype || view.part != before.part || view.count != before.count)
    throw fault("{} changed another axis than its own of role {}", policy.who(), role);
  return view;
}

}  // namespace

Precision make_precision(const std::string& name, const eng_axis& table, const Section& section, const World& world) {
  Ranks ranks(world);
  Precision out{make_policy("precision", name, table, section, ranks)};
  if (ranks.groups.size() > 1 || !ranks.parts.empty())
    throw Error(Exit::environment, "[precision] " + name + " makes groups or parts, which only [zero] has a use for");
  return out;
}

Sharding make_sharding(const std::string& name, const eng_axis& table, const Section& section, Ranks& ranks) {
  return {make_policy("zero", name, table, section, ranks)};
}

Optimizer make_optimizer(const std::string& name, const eng_optimizer& table, const Section& section,
                         const RunFacts& training) {
  if (table.granularity && chunk % table.granularity)
    throw Error(Exit::environment,
                fmt::format("optimizer {} wants {} elements to stay together: an update may be cut at every {}th one",
                            name, table.granularity, chunk),
                "its granularity must divide that, or be 0: whole parameters");
  const Section all = section.with("train.steps", training.steps).with("train.peak_rate", training.peak_rate);
  Optimizer out{name, table, make_object(table, all, "[optimizer] " + name), {}};
  out.groups.push_back(std::make_shared<Optimizer::Group>(all));
  const auto groups = section.settings().find("groups");
  if (groups == section.settings().end()) return out;
  for (const Table& given : std::get<Tables>(groups->second.value)) {
    Section own = all;
    for (const auto& [key, value] : given.values) own = own.with(key, value);
    const auto scale = given.values.find("learning_rate_scale");
    // A group's options must satisfy `create`, as the section's do.
    make_object(table, own, fmt::format("[optimizer] {}, group {}", name, out.groups.size()));
    const auto group = std::make_shared<Optimizer::Group>(own);
    group->match = std::get<std::vector<std::string>>(given.values.at("match"));
    if (scale != given.values.end()) group->rate_scale = std::get<double>(scale->second);
    out.groups.push_back(group);
  }
  return out;
}

Observer make_observer(const std::string& name, const eng_observer& table, const Section& section) {
  return {name, table, make_object(table, section, "[[observers]] " + name)};
}

std::vector<OwnState> Policy::states() const {
  return own_states(who(), [&](auto... list) {
    if (table.states) call_plugin(Exit::environment, who(), table.states, self.get(), list...);
  });
}

int32_t Precision::dtype(int32_t role, const eng_unit* unit) const {
  static const char* const roles[] = {
      "", "weights", "masters", "states", "fresh gradients", "gradients", "activations", "", "the residual stream"};
  const int32_t usual = role == ENG_ROLE_STREAM ? this->dtype(ENG_ROLE_ACT) : ENG_F32;
  const int32_t out = place(*this, role, unit, &eng_view::dtype, usual).dtype;
  const std::string text = describe({out, 0, {}});
  if (unit && unit->flags & ENG_PARAM_FROZEN && role <= ENG_ROLE_MASTER && eng_packed_bytes(out)) return out;
  if (!is_float(out))
    throw fault("precision {} gives {} {}, which is no floating type", name, roles[role],
                text.substr(0, text.find(" (")));
  return out;
}

Id Sharding::part(int32_t role, const eng_unit& unit) const {
  return place(*this, role, &unit, &eng_view::part).part;
}

std::vector<float> Optimizer::scalars(uint64_t update) const {
  float out[7];
  uint32_t n = 0;
  call_plugin(Exit::environment, who(), table.scalars, self.get(), update, out, 7u, &n);
  if (n > 7) throw Error(Exit::environment, who() + " gave more than 7 scalars");
  return std::vector<float>(out, out + n);
}

}  // namespace eng
