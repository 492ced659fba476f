// SPDX-License-Identifier: Apache-2.0
#include "session/model/context_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/base/error.hpp"
#include "engine/ops_parallel.h"

namespace eng {

ContextValues::ContextValues(const Model& model, const Ranks& ranks, uint32_t tmpl)
    : model_(model),
      from_(model.templates.at(tmpl)),
      n_(ranks.context),
      index_(ranks.context_rank()),
      group_{{{"group", ranks.context_group(), 0}, {"members", int64_t{ranks.context}, 0}}},
      held_(from_.graph.size() + 1, OwnPart::whole),
      of_(from_.graph.size() + 1, 0),
      channels_(from_.graph.size() + 1, 0) {
  const auto stands = [&](const Block& b) { return b.tmpl == tmpl; };
  block_ = std::find_if(model.blocks.begin(), model.blocks.end(), stands)->name;
  to_.tmpl = from_.tmpl, to_.states = from_.states;
  to_.graph.among_ranks = true;
  for (Id id = 1; id <= from_.graph.size(); ++id) {
    Symbol v = from_.graph.value(id);
    if (v.kind == SymbolKind::temp || v.kind == SymbolKind::constant) continue;
    if (v.kind == SymbolKind::batch) held_[id] = OwnPart::field;
    if (v.kind == SymbolKind::input) {
      held_[id] = has_positions(v.desc) ? OwnPart::positions : OwnPart::share;
      if (held_[id] == OwnPart::positions) v.desc.dims[1] = own_length();
    }
    of_[id] = to_.graph.add(v);
  }
  for (Id id : from_.params) to_.params.push_back(of_[id]);
  for (Id id : from_.inputs) to_.inputs.push_back(of_[id]);
  to_.beside = from_.beside ? of_[from_.beside] : 0;
}

void ContextValues::refuse(const std::string& what) const {
  throw Error(Exit::usage,
              fmt::format("parallel.context = {}: model {}, block {}: {}", n_, model_.plugin, block_, what),
              "set parallel.context = 1, or choose a model of docs/context.md");
}

void ContextValues::need_parts(int64_t number, const char* of_what) const {
  if (number % n_ == 0) return;
  int64_t best = 1;
  for (int64_t k = 1; k < n_; ++k)
    if (number % k == 0 && model_.sequence_length % k == 0) best = k;
  throw Error(Exit::usage,
              fmt::format("parallel.context = {} does not divide {} {} (model {}, block {})", n_, number, of_what,
                          model_.plugin, block_),
              fmt::format("set parallel.context = {}", best));
}

std::vector<Id> ContextValues::all_made(const char* id, std::vector<Id> in, Attrs attrs) {
  return to_.graph.emit(op(id), std::move(in), std::move(attrs));
}

Id ContextValues::reshaped(Id x, uint32_t keep, std::initializer_list<int64_t> dims) {
  Attrs attrs{{{"keep", keep, 0}, {"ndim", static_cast<int64_t>(dims.size()), 0}}};
  for (int64_t n : dims) attrs.list.push_back({fmt::format("dim{}", attrs.list.size() - 2), n, 0});
  return made(ENG_OP_RESHAPE, {x}, std::move(attrs));
}

Id ContextValues::constant(std::shared_ptr<const Constant> data) {
  to_.constants.push_back(std::move(data));
  const auto index = static_cast<uint32_t>(to_.constants.size() - 1);
  return to_.graph.add({SymbolKind::constant, to_.constants.back()->desc, index});
}

Id ContextValues::of(Id id) {
  if (!id) return 0;
  const Symbol& v = from_.graph.value(id);
  if (!of_[id] && v.kind == SymbolKind::constant) of_[id] = constant(from_.constants[v.index]);
  if (!of_[id] && channels_[id]) of_[id] = made(ENG_OP_TO_POSITIONS, {channels_[id]}, group_);
  return of_[id];
}

Id ContextValues::own(Id id) {
  if (!id || held_[id] != OwnPart::field) return of(id);
  Id& here = own_fields_[id];
  if (!here) here = pieces(of(id), 1, std::vector<int64_t>(n_, own_length()))[index_];
  return here;
}

Id ContextValues::channels(Id id) {
  if (!channels_[id]) channels_[id] = made(ENG_OP_TO_CHANNELS, {own(id)}, group_);
  return channels_[id];
}

Id ContextValues::groups(Id x, int64_t count, int64_t copies) {
  if (copies > 1) {
    const std::vector<Id> all(static_cast<size_t>(copies), reshaped(x, 2, {count, 1, -1}));
    x = reshaped(made(ENG_OP_CONCAT, all, {{{"axis", 3, 0}}}), 2, {-1});
  }
  return made(ENG_OP_TO_CHANNELS, {x}, group_);
}

Id ContextValues::share(Id id) {
  return held_[id] == OwnPart::share ? of(id) : made(ENG_OP_SCALE, {of(id)}, {{{"factor", 0, 1.0 / n_}}});
}

// The gradient of the sum is that of all ranks, so it is summed, too. Both need equal parts.
Id ContextValues::total(Id id) {
  const eng_desc& d = desc(id);
  const int64_t values = count(d), rest = (n_ - values % n_) % n_;
  const Id flat = reshaped(share(id), 0, {values});
  const Id padded = rest ? made(ENG_OP_CONCAT, {flat, 0}, {{{"axis", 0, 0}, {"size0", values, 0}, {"size1", rest, 0}}})
                         : made(ENG_OP_SCALE, {flat}, {{{"factor", 0, 1.0}}});
  to_.summed[padded] = group_;
  Id sum = made(ENG_OP_GROUP_SUM, {padded}, group_);
  if (rest) sum = pieces(sum, 0, {values, rest})[0];
  return d.ndim == 2 ? reshaped(sum, 0, {d.dims[0], d.dims[1]}) : sum;
}

Id ContextValues::among_all(Id x, std::vector<int64_t>& sizes) {
  const int64_t before = index_ * own_length(), behind = model_.sequence_length - before - own_length();
  Attrs attrs{{{"axis", 1, 0}}};
  std::vector<Id> parts;
  for (const int64_t n : {before, own_length(), behind}) {
    if (!n) continue;
    attrs.list.push_back({fmt::format("size{}", sizes.size()), n, 0});
    parts.push_back(sizes.size() == (before ? 1u : 0u) ? x : 0);
    sizes.push_back(n);
  }
  return made(ENG_OP_CONCAT, std::move(parts), std::move(attrs));
}

// Adding zeros is exact. All ranks compute with the sum, so that its gradient is the sum of their parts of it.
Id ContextValues::whole(Id id) {
  if (!id || held_[id] != OwnPart::positions) return of(id);
  Id& here = whole_[id];
  if (here) return here;
  std::vector<int64_t> sizes;
  const Id mine = among_all(of(id), sizes);
  to_.summed[mine] = group_;
  return here = made(ENG_OP_GROUP_SUM, {mine}, group_);
}

int64_t ContextValues::copies_of(int64_t count) const {
  return n_ / std::gcd(count, int64_t{n_});
}

std::vector<Id> ContextValues::pieces(Id x, uint32_t axis, const std::vector<int64_t>& sizes) {
  if (sizes.size() == 1) return {x};
  Attrs attrs{{{"axis", axis, 0}, {"parts", static_cast<int64_t>(sizes.size()), 0}}};
  for (size_t k = 0; k < sizes.size(); ++k) attrs.list.push_back({fmt::format("size{}", k), sizes[k], 0});
  return all_made(ENG_OP_SPLIT, {x}, std::move(attrs));
}

Id ContextValues::rows(Id x, int64_t count, int64_t copies) {
  const eng_desc d = to_.graph.value(x).desc;
  int64_t all = d.dims[0];
  if (copies > 1) {
    const std::vector<Id> same(static_cast<size_t>(copies), reshaped(x, 0, {count, 1, -1}));
    const Id grouped = made(ENG_OP_CONCAT, same, {{{"axis", 1, 0}}});
    all *= copies;
    x = d.ndim == 1   ? reshaped(grouped, 0, {all})
        : d.ndim == 2 ? reshaped(grouped, 0, {all, d.dims[1]})
                      : reshaped(grouped, 0, {all, d.dims[1], d.dims[2]});
  }
  return pieces(x, 0, std::vector<int64_t>(n_, all / n_))[index_];
}

}  // namespace eng
