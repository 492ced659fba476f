// SPDX-License-Identifier: Apache-2.0
#include "core/trace/gradient.hpp"

#include <algorithm>

#include "core/trace/composite.hpp"
#include "engine/ops.h"

namespace eng {

bool Gradient::exclusive(Id value) const {
  const Graph& graph = state_.block.graph;
  Id gradient = state_.of[value];
  auto may_share_memory = [&](Id other) {
    if (other == gradient) return true;
    if (!other || !gradient) return false;
    // The next block may pass one buffer as the gradient of several of its inputs.
    const Symbol &a = graph.value(gradient), &b = graph.value(other);
    return a.kind == SymbolKind::seed && b.kind == SymbolKind::seed && same(a.desc, b.desc);
  };
  for (size_t v = 1; v < state_.of.size(); ++v)
    if (v != value && state_.pending[v] && may_share_memory(state_.of[v])) return false;
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
  if (dissolves(op))
    return dissolve(block.graph, op, in, attrs, [this](const Op& part, std::vector<Id> from, Attrs with) {
      return emit(part, std::move(from), std::move(with));
    });
  auto out = block.graph.emit(op, std::move(in), std::move(attrs));
  grow();
  return out;
}

}  // namespace eng
