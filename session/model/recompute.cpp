// SPDX-License-Identifier: Apache-2.0
#include "session/model/recompute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "core/base/error.hpp"
#include "core/tensor/dtype.hpp"

namespace eng {
namespace {

using Nodes = std::set<size_t>;

// A template after derive_backward, and the values that its backward reads.
class SavedValues {
 public:
  explicit SavedValues(const Template& block) : t_(block), maker_(block.graph.size() + 1, SIZE_MAX) {
    for (size_t n = 0; n < t_.forward; ++n)
      if (!t_.skip[n])
        for (Id o : t_.graph.nodes[n].out) maker_[o] = n;
    for (size_t n = t_.forward; n < t_.graph.nodes.size(); ++n)
      for (Id i : t_.graph.nodes[n].in)
        if (i) read_.insert(i);
  }
  bool made_forward(Id value) const { return maker_[value] != SIZE_MAX; }
  size_t maker(Id value) const { return maker_[value]; }
  // True if the backward need not make the value again when the outputs of `dropped` are not kept.
  bool stays(Id value, const Nodes& dropped) const {
    return !made_forward(value) || (read_.count(value) && !dropped.count(maker_[value]));
  }
  // Bytes kept and FLOPs repeated when the outputs of `dropped` are not kept. `input`: count the block's inputs too.
  Kept measure(const Nodes& dropped, bool input = true) const {
    Kept sum;
    std::set<Id> seen;
    Nodes again;
    std::vector<Id> wanted(read_.begin(), read_.end());
    while (!wanted.empty()) {
      const Id v = wanted.back();
      wanted.pop_back();
      const SymbolKind kind = t_.graph.value(v).kind;
      if (!seen.insert(v).second || (kind != SymbolKind::input && !made_forward(v))) continue;
      if (stays(v, dropped)) {
        if (input || kind != SymbolKind::input) sum.bytes += bytes(t_.graph.value(v).desc);
      } else if (again.insert(maker_[v]).second) {
        const Node& node = t_.graph.nodes[maker_[v]];
        sum.again += flops(node);
        for (Id i : node.in)
          if (i) wanted.push_back(i);
      }
    }
    return sum;
  }
  // The nodes whose outputs are worth dropping, best first; `bytes` and `per_flop` assume that those before are
  // dropped.
  struct Step {
    size_t node;
    uint64_t bytes;
    double per_flop;
  };
  std::vector<Step> order() const {
    std::vector<Step> out;
    Nodes dropped;
    for (;;) {
      const Kept now = measure(dropped);
      Step best{0, 0, 0};
      for (size_t n = 0; n < t_.forward; ++n) {
        const Node& node = t_.graph.nodes[n];
        if (t_.skip[n] || dropped.count(n) ||
            std::none_of(node.out.begin(), node.out.end(), [&](Id o) { return read_.count(o) > 0; }))
          continue;
        Nodes with = dropped;
        with.insert(n);
        const Kept then = measure(with);
        if (then.bytes >= now.bytes) continue;
        const uint64_t gain = now.bytes - then.bytes;
        const double more = then.again - now.again, ratio = more > 0 ? double(gain) / more : HUGE_VAL;
        if (ratio > best.per_flop || (ratio == best.per_flop && gain > best.bytes)) best = {n, gain, ratio};
      }
      if (!best.bytes) return out;
      dropped.insert(best.node);
      out.push_back(best);
    }
  }

  double forward_flops() const {
    double sum = 0;
    for (size_t n = 0; n < t_.forward; ++n)
      if (!t_.skip[n]) sum += flops(t_.graph.nodes[n]);
    return sum;
  }

 private:
  double flops(const Node& node) const {
    if (!node.op->flops) return 0;
    std::vector<eng_desc> in, out;
    for (Id i : node.in) in.push_back(i ? t_.graph.value(i).desc : eng_desc{});
    for (Id o : node.out) out.push_back(t_.graph.value(o).desc);
    return node.op->flops(in, out, node.attrs);
  }
  const Template& t_;
  std::vector<size_t> maker_;  // value -> forward node, or SIZE_MAX
  std::set<Id> read_;          // values that the backward reads
};

// The template, with a backward that makes the outputs of `dropped` again, each just before its first use.
Template remade(Template t, const Nodes& dropped) {
  const SavedValues saved(t);
  t.again = saved.measure(dropped).again;
  const std::vector<Node> nodes = t.graph.nodes;
  t.graph.nodes.resize(t.forward);
  std::map<Id, Id> made;
  const std::function<Id(Id)> again = [&](Id value) {
    if (!value || saved.stays(value, dropped)) return value;
    if (!made.count(value)) {
      const Node& node = nodes[saved.maker(value)];
      std::vector<Id> in;
      for (Id i : node.in) in.push_back(again(i));
      const std::vector<Id> out = t.graph.emit(*node.op, std::move(in), node.attrs);
      for (size_t k = 0; k < out.size(); ++k) made[node.out[k]] = out[k];
    }
    return made.at(value);
  };
  for (size_t n = t.forward; n < nodes.size(); ++n) {
    Node node = nodes[n];
    for (Id& i : node.in) i = again(i);
    t.graph.nodes.push_back(std::move(node));
  }
  return t;
}

// The layers of a model, and how much each drops: the first levels_[l] steps of the order of its template.
class Layers {
 public:
  explicit Layers(Model& model)
      : model_(model),
        first_(model.reference_blocks + 1),
        levels_(model.blocks.size() > first_ + 1 ? model.blocks.size() - first_ - 1 : 0, 0),
        next_(model.templates.rbegin()->first + 1) {
    for (size_t l = 0; l < levels_.size(); ++l)
      if (const uint32_t tmpl = layer(l).tmpl; !orders_.count(tmpl))
        orders_[tmpl] = SavedValues(model.templates.at(tmpl)).order();
  }
  size_t size() const { return levels_.size(); }
  Block& layer(size_t l) { return model_.blocks[first_ + l]; }
  const std::vector<SavedValues::Step>& order(size_t l) { return orders_.at(layer(l).tmpl); }
  void drop_all(size_t l) { levels_[l] = order(l).size(); }
  // Drops the output with the most bytes per FLOP, in the first layer that still keeps it. Returns its bytes; 0 if
  // nothing is left to drop.
  uint64_t drop_best() {
    size_t best = SIZE_MAX;
    for (size_t l = 0; l < size(); ++l)
      if (levels_[l] < order(l).size() &&
          (best == SIZE_MAX || order(l)[levels_[l]].per_flop > order(best)[levels_[best]].per_flop))
        best = l;
    return best == SIZE_MAX ? 0 : order(best)[levels_[best]++].bytes;
  }
  // Gives the layers their templates.
  void apply() {
    std::map<std::pair<uint32_t, size_t>, uint32_t> made;
    for (size_t l = 0; l < size(); ++l) {
      const uint32_t tmpl = layer(l).tmpl;
      if (!levels_[l]) continue;
      auto [it, fresh] = made.try_emplace({tmpl, levels_[l]}, next_);
      if (fresh) {
        Nodes dropped;
        for (size_t k = 0; k < levels_[l]; ++k) dropped.insert(orders_.at(tmpl)[k].node);
        model_.templates[next_++] = remade(model_.templates.at(tmpl), dropped);
      }
      layer(l).tmpl = it->second;
    }
    drop_unused_templates(model_);
  }

 private:
  Model& model_;
  const size_t first_;          // block of the layers
  std::vector<size_t> levels_;  // per layer: the number of dropped steps
  uint32_t next_;               // the next free template number
  std::map<uint32_t, std::vector<SavedValues::Step>> orders_;
};

}  // namespace

void recompute(Model& model, const Recompute& how) {
  if (how.kind == Recompute::Kind::none) return;
  Layers layers(model);
  if (how.kind == Recompute::Kind::blocks) {
    if (how.n > layers.size())
      throw Error(Exit::usage, fmt::format("recompute.blocks = {}, but the model has {} layers", how.n, layers.size()),
                  fmt::format("set recompute.blocks to at most {}, or remove it", layers.size()));
    for (size_t l = 0, run = 0; run < how.n; ++run) {
      for (size_t left = layers.size() / how.n + (run < layers.size() % how.n) - 1; left > 0; --left)
        layers.layer(l++).recomputed = true;
      layers.drop_all(l++);
    }
  } else if (how.kind == Recompute::Kind::budget) {
    for (uint64_t total = kept(model).bytes; total > how.n;) {
      const uint64_t less = layers.drop_best();
      if (!less)
        throw Error(Exit::usage,
                    fmt::format("recompute.budget = {} cannot be met: {} must be kept", format_bytes(double(how.n)),
                                format_bytes(double(total))),
                    fmt::format("set recompute.budget = {}, or lower train.micro_batch", total));
      total -= less;
    }
  } else {
    const uint64_t n = how.kind == Recompute::Kind::full ? 1 : how.n;
    for (size_t l = n - 1; l < layers.size(); l += n) layers.drop_all(l);
  }
  layers.apply();
}

Kept kept(const Model& model) {
  Kept sum;
  for (uint32_t b = 0; b < model.blocks.size(); ++b) {
    if (!model.owns(b)) continue;
    const Template& t = model.templates.at(model.blocks[b].tmpl);
    const bool inside = b && model.blocks[b - 1].recomputed;  // of a run: its input is made again, not kept
    if (model.blocks[b].recomputed) {
      for (Id i : t.inputs) sum.bytes += inside ? 0 : bytes(t.graph.value(i).desc);
      sum.again += SavedValues(t).forward_flops();
    } else {
      sum.bytes += SavedValues(t).measure({}, !inside).bytes;
      sum.again += t.again;
    }
  }
  return sum;
}

}  // namespace eng
