// SPDX-License-Identifier: Apache-2.0
#include "session/planning/shares.hpp"

#include <algorithm>
#include <set>

#include "engine/build.h"

namespace eng {

bool is_saved(const Tensor& t) {
  return !(t.flags & of_reference) && t.role != "gradient" && t.role != "site" && t.role != "activation";
}

static Columns columns_of(const Tensor& t) {
  uint64_t row = 1;
  for (uint32_t k = t.cut.dim; k < t.desc.ndim; ++k) row *= static_cast<uint64_t>(t.desc.dims[k]);
  return {row / t.cut.count / t.cut.groups, t.cut.index, t.cut.count};
}

template <class Wanted>
static std::vector<TensorShare> shares_of(const Plan& plan, const Wanted& wanted) {
  std::vector<TensorShare> out;
  for (const Tensor& t : plan.tensors) {
    if (!wanted(t)) continue;
    const eng_desc& d = t.desc;
    const auto id = static_cast<uint32_t>(&t - plan.tensors.data());
    const bool exported = t.role != kParameterRole || !(t.flags & ENG_PARAM_NOT_EXPORTED);
    TensorShare share{{t.name, t.role, d.dtype, {d.dims, d.dims + d.ndim}, id, exported}};
    if (t.cut.dim > 0 || t.cut.groups > 1) share.columns = columns_of(t);
    for (const HeldRange& e : t.ranges) {  // what follows in the tensor may lie elsewhere in memory
      uint64_t first = e.first;
      if (const Columns& c = share.columns; c.cut())
        first = e.first / c.stride() * c.run + e.first % c.stride() - c.part * c.run;
      if (auto& all = share.ranges; !all.empty() && all.back().end() == first)
        all.back().count += e.count;
      else
        all.push_back({first, e.count});
    }
    share.copies = plan.ranks.data_size() / plan.ranks.part(t.part).count * (t.cut.count > 1 ? 1 : plan.ranks.tensor);
    share.divided = t.cut.count > 1;
    out.push_back(std::move(share));
  }
  return out;
}

std::vector<TensorShare> saved_tensors(const Plan& plan) {
  return shares_of(plan, is_saved);
}

std::vector<TensorShare> written_tensors(const Plan& plan, const Model& model) {
  std::set<std::string> others;  // parameters
  for (const Unit& unit : plan.units)
    for (const uint32_t p : unit.params)
      if (!model.owns(unit.block)) others.insert(model.params[p].name);
  std::vector<TensorShare> out = saved_tensors(plan);
  for (TensorShare& t : out)
    if (others.count(t.name) || (t.role == kPolicyRole && !plan.tensors[t.id].part && plan.ranks.stage() > 0))
      t.ranges.clear();  // what is kept in parts is of the blocks of one stage
  return out;
}

template <class Wanted>
static std::vector<TensorShare> parameters_if(const Plan& plan, const Wanted& wanted) {
  auto out = shares_of(plan, wanted);
  std::erase_if(out, [](const TensorShare& t) { return t.role != kParameterRole; });
  for (TensorShare& t : out) t.optional = (plan.tensors[t.id].flags & ENG_PARAM_OPTIONAL) != 0;
  return out;
}

bool has_optional(const Plan& plan) {
  return std::any_of(plan.tensors.begin(), plan.tensors.end(),
                     [](const Tensor& t) { return (t.flags & ENG_PARAM_OPTIONAL) != 0; });
}

std::vector<TensorShare> parameters(const Plan& plan) {
  return parameters_if(plan, is_saved);
}

std::vector<TensorShare> reference_parameters(const Plan& plan) {
  return parameters_if(plan, [](const Tensor& t) { return (t.flags & of_reference) != 0; });
}

}  // namespace eng
