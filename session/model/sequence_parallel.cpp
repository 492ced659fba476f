// SPDX-License-Identifier: Apache-2.0
#include "session/model/sequence_parallel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/error.hpp"
#include "engine/ops_parallel.h"

namespace eng {
namespace {

// Ops that compute each position from the same position of their inputs, and are done on a rank's own positions where
// their inputs are there.
const std::set<std::string> own_position_ops = {ENG_OP_LINEAR, ENG_OP_RMS_NORM, ENG_OP_LAYER_NORM, ENG_OP_ADD,
                                                ENG_OP_SCALE,  ENG_OP_CAST,     ENG_OP_DROPOUT};

// Divides the positions of one template. Ids of the old one are called `id`, those of the new one `x`.
class PositionDivision {
 public:
  PositionDivision(const Model& model, const Ranks& ranks, uint32_t tmpl)
      : model_(model),
        from_(model.templates.at(tmpl)),
        n_(ranks.tensor),
        index_(ranks.tensor_rank()),
        length_(model.sequence_length / ranks.context),
        group_{{{"group", ranks.tensor_group(), 0}, {"members", int64_t{n_}, 0}}},
        own_(from_.graph.size() + 1, 0),
        all_(own_.size(), 0),
        gathered_(own_.size(), 0),
        summand_(own_.size(), 0),
        native_(own_.size(), 0) {
    placed_ = group_;
    placed_.list.push_back({"index", int64_t{index_}, 0});
    last_ = tmpl == model.blocks.back().tmpl;
    for (const Block& b : model.blocks)
      if (b.tmpl == tmpl && block_.empty()) block_ = b.name;
  }
  Template divide() {
    begin();
    for (const Node& node : from_.graph.nodes) emit(node);
    for (const Id o : from_.outputs) to_.outputs.push_back(!last_ && has_positions(o) ? own(o) : all(o));
    to_.terms = from_.terms;
    for (Term& term : to_.terms) term.value = all(term.value);
    return std::move(to_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(Exit::usage, fmt::format("parallel.sequence: model {}, block {}: {}", model_.plugin, block_, what),
                "set parallel.sequence = false");
  }
  static bool is(const Node& node, const char* id) { return node.op->id == std::string(id); }
  const eng_desc& desc(Id id) const { return from_.graph.value(id).desc; }
  SymbolKind kind(Id id) const { return from_.graph.value(id).kind; }
  // Values of several numbers for each position. Single numbers, as of tokens, stay whole.
  bool has_positions(Id id) const {
    const eng_desc& d = desc(id);
    return d.ndim > 2 && d.dims[0] == model_.micro_batch && d.dims[1] == length_;
  }
  bool is_native(Id id) const { return id && native_[id]; }
  // The ranks' gradients of it are summands.
  bool is_entered(Id id) const {
    const auto at = from_.summed.find(id);
    return at != from_.summed.end() && at->second.i("group") == group_.i("group");
  }

  void begin() {
    to_.tmpl = from_.tmpl, to_.constants = from_.constants, to_.states = from_.states;
    to_.graph.among_ranks = true;
    for (Id id = 1; id <= from_.graph.size(); ++id) {
      Symbol v = from_.graph.value(id);
      if (v.kind == SymbolKind::temp) continue;
      native_[id] = v.kind == SymbolKind::input && has_positions(id);
      if (native_[id]) v.desc.dims[1] /= n_;
      (native_[id] ? own_ : all_)[id] = to_.graph.add(v);
    }
    for (const Id id : from_.params) to_.params.push_back(all_[id]);
    for (const Id id : from_.inputs) to_.inputs.push_back(is_native(id) ? own_[id] : all_[id]);
    to_.beside = from_.beside ? all_[from_.beside] : 0;
  }
  Id made(const char* id, std::vector<Id> in, Attrs attrs) {
    return to_.graph.emit(op(id), std::move(in), std::move(attrs))[0];
  }

  // This rank's positions.
  Id own(Id id) {
    Id& x = own_[id];
    if (x) return x;
    if (summand_[id] && !all_[id]) return x = made(ENG_OP_SUM_TO_POSITIONS, {summand_[id]}, placed_);
    return x = made(ENG_OP_OWN_POSITIONS, {all(id)}, placed_);
  }
  // All positions, of which all ranks compute alike.
  Id all(Id id) {
    if (!id) return 0;
    Id& x = all_[id];
    if (x) return x;
    if (summand_[id] && !own_[id]) return x = made(ENG_OP_GROUP_SUM, {summand_[id]}, group_);
    return x = made(ENG_OP_GATHER_POSITIONS, {own(id)}, placed_);
  }
  // All positions, of which each rank computes with its part of the channels.
  Id entered(Id id) {
    if (!is_entered(id) || !is_native(id)) return all(id);
    Attrs attrs = placed_;
    attrs.list.push_back({"sum", 1, 0});
    Id& x = gathered_[id];
    return x ? x : x = made(ENG_OP_GATHER_POSITIONS, {own(id)}, std::move(attrs));
  }

  // True if an op is done on this rank's positions.
  bool stays_divided(const Node& node) const {
    if (!own_position_ops.count(node.op->id)) return false;
    bool any = false;
    for (size_t k = 0; k < node.in.size(); ++k) {
      const Id id = node.in[k];
      if (!id) continue;
      if (is_entered(id) && is_native(id)) return false;
      any = any || is_native(id);
      if (!has_positions(id) && (k == 0 || kind(id) != SymbolKind::param)) return false;
    }
    return any;
  }
  // A parameter of which each rank's gradient is that of its positions.
  Id shared(Id id) {
    if (count(desc(id)) % n_)
      refuse(fmt::format("{} ranks do not divide the {} elements of a parameter", n_, count(desc(id))));
    Id& x = own_[id];
    if (!x) {
      x = made(ENG_OP_SCALE, {all_[id]}, {{{"factor", 0, 1.0}}});
      to_.summed[x] = group_;
    }
    return x;
  }
  // An element is dropped by its number in the whole, in which the other ranks' positions are zeros.
  Id dropped(Id x, const Attrs& attrs) {
    const int64_t mine = length_ / n_, before = index_ * mine, behind = length_ - before - mine;
    Attrs joined{{{"axis", 1, 0}}}, parted{{{"axis", 1, 0}}};
    std::vector<Id> in;
    for (const auto& [size, part] : {std::pair(before, Id{0}), {mine, x}, {behind, Id{0}}}) {
      if (!size) continue;
      joined.list.push_back({fmt::format("size{}", in.size()), size, 0});
      in.push_back(part);
    }
    parted.list.push_back({"parts", static_cast<int64_t>(in.size()), 0});
    parted.list.insert(parted.list.end(), joined.list.begin() + 1, joined.list.end());
    const Id whole = made(ENG_OP_DROPOUT, {made(ENG_OP_CONCAT, std::move(in), std::move(joined))}, attrs);
    return to_.graph.emit(op(ENG_OP_SPLIT), {whole}, std::move(parted))[before ? 1 : 0];
  }

  void emit(const Node& node) {
    const Id y = node.out[0];
    const bool sum = is(node, ENG_OP_GROUP_SUM) && node.attrs.i("group") == group_.i("group");
    if (sum && has_positions(y)) {  // made where it is read
      summand_[y] = all(node.in[0]), native_[y] = 1;
      return;
    }
    const bool divided = stays_divided(node);
    if (divided && is(node, ENG_OP_DROPOUT)) {
      own_[y] = dropped(own(node.in[0]), node.attrs), native_[y] = 1;
      return;
    }
    std::vector<Id> in;
    for (const Id id : node.in)
      in.push_back(!id ? 0 : !divided ? entered(id) : kind(id) == SymbolKind::param ? shared(id) : own(id));
    const std::vector<Id> out = to_.graph.emit(*node.op, std::move(in), node.attrs);
    for (size_t k = 0; k < out.size(); ++k) {
      const Id id = node.out[k];
      (divided ? own_ : all_)[id] = out[k], native_[id] = divided;
      const auto at = from_.summed.find(id);
      if (at != from_.summed.end() && !(divided && is_entered(id))) to_.summed[out[k]] = at->second;
    }
  }

  const Model& model_;
  const Template from_;
  const uint32_t n_, index_;
  const int64_t length_;  // positions of this rank's context part
  const Attrs group_;
  Attrs placed_;  // that, and this rank's number
  std::string block_;
  bool last_ = false;
  Template to_;
  // By id; 0: not made. `summand_`: this rank's, of a sum that is not made yet.
  std::vector<Id> own_, all_, gathered_, summand_;
  std::vector<char> native_;  // by id: it is computed on this rank's positions
};

}  // namespace

void divide_positions(Model& model, const Ranks& ranks) {
  const int64_t length = model.sequence_length / ranks.context;
  if (length % ranks.tensor)
    throw Error(Exit::usage,
                fmt::format("parallel.sequence: {} ranks do not divide {} positions", ranks.tensor, length),
                fmt::format("train.sequence_length = {}, or another multiple of {}",
                            (model.sequence_length / ranks.same_rows() + 1) * ranks.same_rows(), ranks.same_rows()));
  std::map<uint32_t, Template> divided;
  for (const auto& [number, t] : model.templates)
    divided.emplace(number, PositionDivision(model, ranks, number).divide());
  model.templates = std::move(divided);
}

}  // namespace eng
