// SPDX-License-Identifier: Apache-2.0
#include "core/autograd/gradient.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "engine/ops.h"

namespace eng {

bool Gradient::exclusive(Id value) const {
  const Graph& graph = state_.block.graph;
  Id gradient = state_.of[value];
  auto one_memory = [&](Id other) {
    if (other == gradient) return true;
    if (!other || !gradient) return false;
    // The next block may have one gradient for several of its inputs.
    const Symbol &a = graph.value(gradient), &b = graph.value(other);
    return a.kind == SymbolKind::seed && b.kind == SymbolKind::seed && same(a.desc, b.desc);
  };
  for (size_t v = 1; v < state_.of.size(); ++v)
    if (v != value && state_.pending[v] && one_memory(state_.of[v])) return false;
  return true;
}

Id Gradient::take(uint32_t k) {
  Id value = in(k);
  if (!value || !state_.of[value] || !exclusive(value)) return 0;
  taken_.push_back(k);
  return state_.of[value];
}

void Gradient::give(uint32_t k, Id gradient) {
  Id value = in(k);
  Id before = state_.of[value];
  bool added = std::find(taken_.begin(), taken_.end(), k) != taken_.end();
  state_.of[value] = before && !added ? emit(ENG_OP_ADD, {before, gradient}, {})[0] : gradient;
}

void Gradient::State::grow() {
  size_t size = block.graph.size() + 1;
  of.resize(size), pending.resize(size), wants.resize(size);
}

std::vector<Id> Gradient::State::emit(const Op& op, std::vector<Id> in, Attrs attrs) {
  auto out = block.graph.emit(op, std::move(in), std::move(attrs));
  grow();
  return out;
}

namespace {

// Replaces what the backward reads of cheap ops by running them again just before the first reader.
void shrink_saved(Template& block) {
  Graph& graph = block.graph;
  auto kept = [&](Id id) {  // read by the backward, or there anyway
    if (!id) return true;   // an absent input
    SymbolKind kind = graph.value(id).kind;
    if (kind == SymbolKind::param || kind == SymbolKind::constant || kind == SymbolKind::batch) return true;
    for (size_t n = block.forward; n < graph.nodes.size(); ++n)
      if (std::count(graph.nodes[n].in.begin(), graph.nodes[n].in.end(), id)) return true;
    return false;
  };
  for (size_t f = 0; f < block.forward; ++f) {
    const Node node = graph.nodes[f];
    if (block.skip[f] || !node.op->rebuild) continue;
    auto reads = [&](const Node& later) { return std::count(later.in.begin(), later.in.end(), node.out[0]) > 0; };
    bool used = false;  // before the backward: else it is made where it is needed
    for (size_t n = f + 1; n < block.forward; ++n) used = used || (!block.skip[n] && reads(graph.nodes[n]));
    if (!used) continue;
    std::vector<Id> from = node.op->rebuild(node);
    if (!std::all_of(from.begin(), from.end(), [&](Id i) { return kept(i); })) continue;
    // What the rebuilding itself needs stays as it is. So do the other outputs: small statistics.
    if (std::count(from.begin(), from.end(), node.out[0])) continue;
    auto reader =
        std::find_if(graph.nodes.begin() + static_cast<std::ptrdiff_t>(block.forward), graph.nodes.end(), reads);
    if (reader == graph.nodes.end()) continue;
    const auto at = reader - graph.nodes.begin();
    const Id again = graph.emit(*node.op, from, node.attrs)[0];
    for (auto n = graph.nodes.begin() + at; n != graph.nodes.end(); ++n)
      std::replace(n->in.begin(), n->in.end(), node.out[0], again);
    std::rotate(graph.nodes.begin() + at, graph.nodes.end() - 1, graph.nodes.end());
  }
}

}  // namespace

void derive_backward(Template& block, bool first, bool last) {
  Graph& graph = block.graph;
  Gradient::State state{block, graph.add({SymbolKind::scalars, make_desc(ENG_F32, {ENG_S_COUNT}), 0})};
  block.forward = graph.nodes.size();
  block.skip.assign(block.forward, 0);
  block.seeds.assign(block.outputs.size(), 0);
  for (size_t k = 0; k < block.outputs.size() && !last; ++k)
    block.seeds[k] = graph.add({SymbolKind::seed, graph.value(block.outputs[k]).desc, static_cast<uint32_t>(k)});

  state.grow();
  for (Id p : block.params) state.wants[p] = state.pending[p] = 1;
  if (!first)
    for (Id i : block.inputs) state.wants[i] = state.pending[i] = graph.value(i).desc.dtype != ENG_I32;
  for (const Node& node : graph.nodes) {
    bool any = std::any_of(node.in.begin(), node.in.end(), [&](Id i) { return i && state.wants[i]; });
    for (Id o : node.out) state.wants[o] = state.pending[o] = any;
  }
  for (size_t k = 0; k < block.outputs.size(); ++k)
    if (block.seeds[k]) {
      Id seed = block.seeds[k], before = state.of[block.outputs[k]];  // before: if it is put out more than once
      state.of[block.outputs[k]] = before ? state.emit(op(ENG_OP_ADD), {before, seed}, {})[0] : seed;
    }

  const std::string must_be_loss = "the model's last op must be " ENG_OP_CROSS_ENTROPY;
  bool found_loss = false;
  for (size_t n = block.forward; n-- > 0;) {
    Node node = graph.nodes[n];
    bool is_loss = last && !block.outputs.empty() && node.out[0] == block.outputs[0];
    bool reached = std::any_of(node.out.begin(), node.out.end(), [&](Id o) { return state.of[o] != 0; });
    if (state.wants[node.out[0]] && (reached || is_loss)) {
      const std::string id = node.op->id;
      if (!node.op->grad) throw Error(Exit::environment, id + " has no gradient");
      if (is_loss && !node.op->fused_grad) throw Error(Exit::environment, must_be_loss + ", not " + id);
      if (!is_loss && node.op->fused_grad)  // its gradient takes that of the loss to be 1
        throw Error(Exit::environment, id + " makes the loss of the last block, nothing else can use it");
      found_loss = found_loss || is_loss;
      Gradient gradient(state, node);
      node.op->grad(gradient);
      if (is_loss) block.skip[n] = 1;
    }
    for (Id o : node.out) state.pending[o] = 0;
  }
  if (last && !found_loss) throw Error(Exit::environment, must_be_loss);
  for (Id i : block.inputs) block.d_inputs.push_back(first ? 0 : state.of[i]);
  for (Id p : block.params) block.d_params.push_back(state.of[p]);
  for (Id o : block.outputs) {
    auto it = state.replaced.find(o);
    block.train_outputs.push_back(it == state.replaced.end() ? o : it->second);
  }
  shrink_saved(block);
}

}  // namespace eng
