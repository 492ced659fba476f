// SPDX-License-Identifier: Apache-2.0
#include "core/autograd/backward.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/trace/composite.hpp"
#include "core/trace/gradient.hpp"
#include "engine/ops_parallel.h"

namespace eng {
namespace {

// If the backward reads the output of a cheap op, runs the op again just before the first reader: where its inputs are
// kept anyway, or are smaller than the output, so that they are kept in its place. Those may be outputs of cheap ops
// too.
void shrink_saved(Template& block) {
  Graph& graph = block.graph;
  auto kept = [&](Id id) {  // read by the backward, or always available
    if (!id) return true;   // an absent input
    SymbolKind kind = graph.value(id).kind;
    if (kind == SymbolKind::param || kind == SymbolKind::constant || kind == SymbolKind::batch) return true;
    for (size_t n = block.forward; n < graph.nodes.size(); ++n)
      if (std::count(graph.nodes[n].in.begin(), graph.nodes[n].in.end(), id)) return true;
    return false;
  };
  auto run_again = [&](size_t f, bool smaller) {
    const Node node = graph.nodes[f];
    if (block.skip[f] || !node.op->rebuild) return;
    auto reads = [&](const Node& later) { return std::count(later.in.begin(), later.in.end(), node.out[0]) > 0; };
    bool used = false;  // by the forward; otherwise nothing is saved
    for (size_t n = f + 1; n < block.forward; ++n) used = used || (!block.skip[n] && reads(graph.nodes[n]));
    if (!used) return;
    std::vector<Id> from = node.op->rebuild(graph, node);
    uint64_t needed = 0;
    for (Id i : from) needed += i ? bytes(graph.value(i).desc) : 0;
    if (smaller ? needed >= bytes(graph.value(node.out[0]).desc)
                : !std::all_of(from.begin(), from.end(), [&](Id i) { return kept(i); }))
      return;
    // Outputs that the op itself needs are kept. So are its other outputs, which are small statistics.
    if (std::count(from.begin(), from.end(), node.out[0])) return;
    auto reader =
        std::find_if(graph.nodes.begin() + static_cast<std::ptrdiff_t>(block.forward), graph.nodes.end(), reads);
    if (reader == graph.nodes.end()) return;
    const auto at = reader - graph.nodes.begin();
    const Id again = graph.emit(*node.op, from, node.attrs)[0];
    for (auto n = graph.nodes.begin() + at; n != graph.nodes.end(); ++n)
      std::replace(n->in.begin(), n->in.end(), node.out[0], again);
    std::rotate(graph.nodes.begin() + at, graph.nodes.end() - 1, graph.nodes.end());
  };
  for (size_t f = block.forward; f-- > 0;) run_again(f, true);
  for (size_t f = 0; f < block.forward; ++f) run_again(f, false);
}

const std::string must_be_loss = "the model's last op must be " ENG_OP_CROSS_ENTROPY;

// Gives the terms of the loss their weights, and seeds their gradients unless the op that makes a term has a fused one.
void seed_loss(Gradient::State& state, int64_t sequences) {
  Template& block = state.block;
  if (block.terms.empty()) state.weights[block.outputs.at(0)] = 1;
  std::map<Id, uint32_t> per;  // of the values with a weight
  const auto fused = [&](Id value) {
    for (size_t n = 0; n < block.forward; ++n)
      if (const Node& node = block.graph.nodes[n]; std::count(node.out.begin(), node.out.end(), value))
        return node.op->fused_grad;
    return false;
  };
  for (const Term& term : block.terms) {
    if (term.weight == 0) continue;
    state.weights[term.value] += term.weight;
    if (per.try_emplace(term.value, term.per).first->second != term.per || (term.per && fused(term.value)))
      throw fault("term `{}` of the loss: {}", term.name,
                  fused(term.value) ? "an op with a fused gradient is divided by the labels that count"
                                    : "another term of the same value has another divisor");
  }
  if (block.terms.empty()) return;
  for (const auto& [value, weight] : state.weights) {
    if (!state.wants[value] || fused(value)) continue;
    const uint32_t k = per.at(value);
    Attrs attrs{{{"weight", 0, weight}, {"dtype", block.graph.value(value).desc.dtype, 0}}};
    if (k) attrs.list[0].f = weight * k / static_cast<double>(sequences), attrs.list.push_back({"labels", 0, 0});
    state.of[value] = state.emit(op(ENG_OP_LOSS_SEED), {state.scalars}, std::move(attrs))[0];
  }
}

// Outputs that the backward makes instead of the forward exist only there: no other node may read them.
void check_skipped(const Template& block) {
  for (size_t n = 0; n < block.forward; ++n)
    for (Id o : block.skip[n] ? block.graph.nodes[n].out : std::vector<Id>{})
      for (const Node& node : block.graph.nodes)
        if (std::count(node.in.begin(), node.in.end(), o))
          throw fault("{} reads an output of {}, which can only be a term of the loss", node.op->id,
                      block.graph.nodes[n].op->id);
}

}  // namespace

void derive_backward(Template& block, bool first, bool last, const std::vector<char>& frozen, int64_t sequences) {
  Graph& graph = block.graph;
  Gradient::State state{block, graph.add({SymbolKind::scalars, make_desc(ENG_F32, {ENG_S_COUNT}), 0})};
  block.forward = graph.nodes.size();
  block.skip.assign(block.forward, 0);
  block.seeds.assign(block.outputs.size(), 0);
  const auto is_frozen = [&](size_t k) { return k < frozen.size() && frozen[k]; };
  size_t trained = 0;
  for (size_t k = 0; k < block.params.size(); ++k) trained += !is_frozen(k);
  if (first && !last && !trained && !frozen.empty()) {  // nothing before or in this block needs a gradient
    block.d_inputs.assign(block.inputs.size(), 0), block.d_params.assign(block.params.size(), 0);
    block.train_outputs = block.outputs;
    return lower(block);
  }
  for (size_t k = 0; k < block.outputs.size() && !last; ++k)
    if (block.outputs[k] != block.beside)
      block.seeds[k] = graph.add({SymbolKind::seed, graph.value(block.outputs[k]).desc, static_cast<uint32_t>(k)});

  state.grow();
  for (size_t k = 0; k < block.params.size(); ++k)
    state.wants[block.params[k]] = state.pending[block.params[k]] = !is_frozen(k);
  if (!first)
    for (Id i : block.inputs)
      state.wants[i] = state.pending[i] = i != block.beside && graph.value(i).desc.dtype != ENG_I32;
  for (const Node& node : graph.nodes) {
    bool any = std::any_of(node.in.begin(), node.in.end(), [&](Id i) { return i && state.wants[i]; });
    for (Id o : node.out) state.wants[o] = state.pending[o] = any;
  }
  for (size_t k = 0; k < block.outputs.size(); ++k)
    if (block.seeds[k]) {
      Id seed = block.seeds[k], before = state.of[block.outputs[k]];  // before: a value that is several outputs
      state.of[block.outputs[k]] = before ? state.emit(op(ENG_OP_ADD), {before, seed}, {})[0] : seed;
    }

  if (last) seed_loss(state, sequences);
  bool found_loss = std::any_of(block.terms.begin(), block.terms.end(),
                                [&](const Term& t) { return t.weight != 0 && state.wants[t.value]; });
  for (size_t n = block.forward; n-- > 0;) {
    Node node = graph.nodes[n];
    const std::string id = node.op->id;
    for (Id o : node.out)
      if (const auto sum = block.summed.find(o); sum != block.summed.end() && state.of[o])
        state.of[o] = state.emit(op(ENG_OP_GROUP_SUM), {state.of[o]}, sum->second)[0];
    const auto in_loss = [&](Id o) { return state.weights.count(o) > 0; };
    const bool is_loss = last && std::any_of(node.out.begin(), node.out.end(), in_loss);
    const bool fused = node.op->fused_grad && is_loss;
    const bool reached = std::any_of(node.out.begin(), node.out.end(), [&](Id o) { return state.of[o] != 0; });
    if (state.wants[node.out[0]] && (reached || is_loss)) {
      if (!node.op->grad) throw Error(Exit::environment, id + " has no gradient");
      if (is_loss && !fused && block.terms.empty()) throw fault("{}, not {}", must_be_loss, id);
      if (node.op->fused_grad && reached)  // it is the gradient of the loss itself
        throw Error(Exit::environment, id + " must be the loss of the last block, or a term of it, and nothing else");
      found_loss = found_loss || is_loss;
      Gradient gradient(state, node);
      node.op->grad(gradient);
      if (fused) block.skip[n] = 1;
    }
    for (Id o : node.out) state.pending[o] = 0;
  }
  if (last && !found_loss)
    throw Error(Exit::environment, block.terms.empty() ? must_be_loss
                                                       : "no term of the loss with a weight depends on a parameter "
                                                         "or on an earlier block");
  for (Id i : block.inputs) block.d_inputs.push_back(first || i == block.beside ? 0 : state.of[i]);
  // Some ops give all gradients at once, including unwanted ones.
  for (size_t k = 0; k < block.params.size(); ++k)
    block.d_params.push_back(is_frozen(k) ? 0 : state.of[block.params[k]]);
  for (Id o : block.outputs) {
    auto it = state.replaced.find(o);
    block.train_outputs.push_back(it == state.replaced.end() ? o : it->second);
  }
  for (Term& term : block.terms) {
    const auto it = state.replaced.find(term.value);
    term.trained = it == state.replaced.end() ? term.value : it->second;
  }
  check_skipped(block);
  shrink_saved(block);
  lower(block);
}

}  // namespace eng
