// SPDX-License-Identifier: Apache-2.0
#include "core/trace/stepping.hpp"

#include "core/trace/composite.hpp"
#include "engine/ops.h"

namespace eng {

Id Stepping::in(uint32_t k) const {
  Id traced = k < node_.in.size() ? node_.in[k] : 0;
  if (traced && !state_.of[traced])
    throw Error(Exit::usage,
                fmt::format("{} reads a value that no step has: this model cannot generate", node_.op->id));
  return traced ? state_.of[traced] : 0;
}

Id Stepping::state(const eng_desc& desc) {
  state_.block.states.push_back(desc);
  return state_.block.graph.add({SymbolKind::state, desc, static_cast<uint32_t>(state_.block.states.size() - 1)});
}

Id Stepping::counters() {
  if (!state_.counters)
    state_.counters = state_.block.graph.add({SymbolKind::counters, make_desc(ENG_I64, {ENG_C_COUNT}), 0});
  return state_.counters;
}

std::vector<Id> Stepping::emit(const char* name, std::vector<Id> in, Attrs attrs) {
  const Op& what = op(name);
  if (!dissolves(what)) return state_.block.graph.emit(what, std::move(in), std::move(attrs));
  return dissolve(state_.block.graph, what, in, attrs, [this](const Op& part, std::vector<Id> from, Attrs with) {
    return emit(part.id, std::move(from), std::move(with));
  });
}

void by_position(Stepping& s) {
  std::vector<Id> in;
  for (uint32_t k = 0; k < s.node().in.size(); ++k) in.push_back(s.in(k));
  auto out = s.emit(s.node().op->id, std::move(in), s.attrs());
  for (uint32_t k = 0; k < out.size(); ++k) s.give(k, out[k]);
}

std::vector<uint32_t> nodes_with_logits(const Template& block) {
  std::vector<uint32_t> out;
  std::vector<char> read(block.graph.size() + 1, 0);
  for (Id o : block.outputs) read[o] = 1;
  for (auto n = static_cast<uint32_t>(block.forward); n-- > 0;) {
    const Node& node = block.graph.nodes[n];
    if (!block.terms.empty() && std::none_of(node.out.begin(), node.out.end(), [&](Id o) { return read[o]; })) continue;
    for (Id i : node.in) read[i] = 1;
    out.push_back(n);
  }
  return {out.rbegin(), out.rend()};
}

namespace {

enum class Use { logits, next, advance };  // logits of whole sequences, of the next positions, or none

Template derive(const Model& model, const Block& block, const std::vector<eng_desc>& inputs, int64_t positions,
                Use use) {
  const Template& from = model.templates.at(block.tmpl);
  Template to;
  to.tmpl = from.tmpl;
  Stepping::State state{to, model.sequence_length, std::vector<Id>(from.graph.size() + 1, 0), 0, &from.graph};
  for (Id id = 1; id <= from.graph.size(); ++id) {
    Symbol v = from.graph.value(id);
    if (v.kind == SymbolKind::input) v.desc = inputs[v.index];
    if (v.kind == SymbolKind::batch) v.desc.dims[1] = positions;
    if (v.kind == SymbolKind::param) v.desc.dims[0] = model.params[block.params[v.index]].desc.dims[0];  // its own rows
    // Logits of whole sequences have every field but the labels; a running sequence has only tokens.
    const bool given = v.kind == SymbolKind::batch && (use == Use::logits ? v.index != 1 : v.index == 0);
    if (v.kind == SymbolKind::input || given || v.kind == SymbolKind::param || v.kind == SymbolKind::constant ||
        v.kind == SymbolKind::state)
      state.of[id] = to.graph.add(v);
  }
  for (const OwnState& own : block.states) to.states.push_back(own.desc);
  for (uint32_t n : nodes_with_logits(from)) {
    const Node& node = from.graph.nodes[n];
    Stepping stepping(state, node);
    bool loss = node.op->fused_grad;
    if (use == Use::advance && loss) {
      stepping.give(0, stepping.in(0));
      continue;
    }
    const std::function<void(Stepping&)> rule = use == Use::logits && !loss ? by_position : node.op->step;
    if (!rule) throw Error(Exit::usage, fmt::format("{} has no step rule: this model cannot generate", node.op->id));
    rule(stepping);
  }
  for (Id o : from.outputs) to.outputs.push_back(state.of[o]);
  for (Id id = 1; id <= to.graph.size(); ++id) {
    auto writes = [&](const Node& node) {
      return std::any_of(node.op->in_place.begin(), node.op->in_place.end(),
                         [&](const InPlace& p) { return p.must && p.in < node.in.size() && node.in[p.in] == id; });
    };
    if (const Symbol& v = to.graph.value(id); v.kind == SymbolKind::state && v.index >= block.states.size() &&
                                              std::none_of(to.graph.nodes.begin(), to.graph.nodes.end(), writes))
      throw fault("a step rule made a state that no op writes in place");
  }
  to.forward = to.graph.nodes.size();
  to.skip.assign(to.forward, 0);
  return to;
}

Model derive(const Model& model, int64_t positions, Use use) {
  Model out{model.plugin, model.info, model.params, model.blocks, {}, model.micro_batch, positions, model.fields};
  std::vector<eng_desc> inputs;
  for (const Block& block : model.blocks) {
    if (!out.templates.count(block.tmpl)) try {
        out.templates[block.tmpl] = derive(model, block, inputs, positions, use);
      } catch (const Error& e) {
        throw Error(e.exit(), fmt::format("model {}, block {}: {}", model.plugin, block.name, e.what()), e.help());
      }
    const Template& t = out.templates[block.tmpl];
    inputs.clear();
    for (Id o : t.outputs) inputs.push_back(t.graph.value(o).desc);
  }
  return out;
}

}  // namespace

Model with_logits(const Model& model) {
  return derive(model, model.sequence_length, Use::logits);
}

Model next_positions(const Model& model, int64_t positions, bool logits) {
  return derive(model, positions, logits ? Use::next : Use::advance);
}

}  // namespace eng
