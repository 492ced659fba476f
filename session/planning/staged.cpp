// SPDX-License-Identifier: Apache-2.0
#include "session/planning/staged.hpp"

#include <algorithm>
#include <optional>

#include "core/plan/planner.hpp"
#include "engine/ops.h"
#include "session/model/pipeline.hpp"

namespace eng {
namespace {

class StageEmitter {
 public:
  StageEmitter(const StepParts& parts, const Model& model)
      : p_(parts), model_(model), pipeline_(pipeline_of(ranks_, parts.plan.accumulate)) {
    for (const Span& blocks : model.parts) blocks_.emplace_back(model, blocks, p_.emit);
    if (const uint32_t place = p_.homes.place(ENG_ROLE_ACT, 0)) offloaded_.emplace(p_.emit, place);
  }

  std::vector<View> emit(StagePart part) {
    if (part == StagePart::eval) return evaluate();
    part == StagePart::train ? train() : losses();
    return {};
  }

 private:
  using What = StageTurn::What;
  struct One {  // micro-batch
    MicroBatch batch = {};
    std::vector<View> fresh = {};  // gradients per unit
    struct Part {
      std::vector<View> values = {};  // that cross a border of the virtual stage next
      std::unique_ptr<BlockEmitter::Flight> flight = {};
    };
    std::vector<Part> parts = {};
  };

  // Over a group of this rank, from its member `root`.
  void broadcast(const View& value, Id group, uint32_t root) {
    const View all = slice(value, 0, static_cast<uint64_t>(count(value.desc)));
    const auto members = static_cast<int64_t>(ranks_.group(group).size());
    p_.emit.action(op(ENG_OP_BROADCAST), {all}, {all},
                   {{{"group", group, 0}, {"root", root, 0}, {"members", members, 0}}});
  }

  // One exchange of virtual stage `part` with a neighbour: the inputs of the block behind their border or, if they go
  // back, the gradients of these. Returns what arrives.
  std::vector<View> cross(What what, uint32_t part, std::vector<View> values) {
    const StageTurn turn{what, 0, part};
    const bool down = turn.back() != turn.sends();  // the border behind this virtual stage, not the one before it
    const uint32_t stage = pipeline_.stage(ranks_.stage(), part) + down, above = (stage - 1) % pipeline_.ranks;
    const Template& t =
        model_.templates.at(model_.blocks[down ? model_.parts[part].end : model_.parts[part].first].tmpl);
    const uint32_t from = turn.back() ? stage % pipeline_.ranks : above,
                   to = turn.back() ? above : stage % pipeline_.ranks;
    p_.emit.label(turn.back() ? Phase::backward : Phase::forward, pipeline_label);
    values.resize(t.inputs.size());
    for (size_t k = 0; k < values.size(); ++k) {
      const Id moved = turn.back() ? t.d_inputs[k] : t.inputs[k];
      if (!moved) continue;
      if (!turn.sends()) values[k] = p_.emit.transient("received", Line::activations, t.graph.value(moved).desc);
      p_.moves.between_ranks([&] {
        if (!turn.sends()) p_.emit.zero(values[k]);  // a member that is not the root gives a value, too
        broadcast(values[k], ranks_.pair(above), from > to);
      });
    }
    return values;
  }

  // Several micro-batches are under way at a time, so each has counters of its own. Only the last stage has losses.
  void train() {
    const uint32_t n = p_.plan.accumulate;
    const std::vector<StageTurn> turns = turns_of(pipeline_)[ranks_.stage()];
    std::vector<One> all(n);
    Leases leases = p_.moves.leases();
    const std::function<void()> before_pass = p_.lease(passes(turns), leases);
    const View &counters = p_.plan.counters, &losses = p_.losses;
    const View none = p_.emit.transient("no loss", Line::step, flat(losses.desc.dtype, p_.plan.row));
    p_.emit.zero(none);
    for (uint32_t k = 0; k < n; ++k) {
      p_.prepare(k, all[k].batch, leases, all[k].fresh);
      all[k].parts.resize(pipeline_.parts);
      if (before_pass) all[k].batch.before_pass = std::ref(before_pass);
      if (offloaded_) all[k].batch.offloaded = &*offloaded_;
      all[k].batch.counters = p_.emit.transient("counters", Line::step, counters.desc);
      p_.emit.copy(counters, all[k].batch.counters);
      p_.emit.action(op(ENG_OP_PUT_ROW), {none, losses, counters}, {losses, counters});
    }
    for (size_t k = 0; k < turns.size(); ++k) {
      const auto next = std::find_if(turns.begin() + static_cast<std::ptrdiff_t>(k) + 1, turns.end(),
                                     [](const StageTurn& turn) { return turn.computes(); });
      if (turns[k].what == StageTurn::forward && next != turns.end()) before_forward(turns[k], *next, all);
      run(turns[k], all[turns[k].micro]);
    }
    for (size_t u = 0; u < p_.homes.units(); ++u)
      if (p_.homes.trains(u) && shared(u)) sum_of_stages(u);
  }

  // The passes over blocks in these turns.
  std::vector<BlockEmitter::Reads> passes(const std::vector<StageTurn>& turns) const {
    std::vector<std::vector<BlockEmitter::Reads>> all;
    for (const BlockEmitter& blocks : blocks_) all.push_back(blocks.reads(true));
    std::vector<BlockEmitter::Reads> out;
    for (const StageTurn& turn : turns) {
      if (!turn.computes()) continue;
      const Span& blocks = model_.parts[turn.part];
      const auto begin = all[turn.part].begin(), middle = begin + (blocks.end - blocks.first);
      turn.back() ? out.insert(out.end(), middle, all[turn.part].end()) : out.insert(out.end(), begin, middle);
    }
    return out;
  }

  // If the backward of a micro-batch does not follow its forward at once, there is time for the activations of all
  // blocks to go and return. Those that it begins with return beside the forward before it.
  void before_forward(const StageTurn& turn, const StageTurn& next, std::vector<One>& all) {
    const bool at_once = next.micro == turn.micro && next.part == turn.part;
    all[turn.micro].batch.stay = at_once ? 2 : 0;
    if (!offloaded_ || next.what != StageTurn::backward || at_once) return;
    const BlockEmitter::Flight& flight = *all[next.micro].parts[next.part].flight;
    offloaded_->come(blocks_[next.part].kept(model_.parts[next.part].end - 1, flight.envs, flight.inputs));
  }

  void run(const StageTurn& turn, One& one) {
    const BlockEmitter& blocks = blocks_[turn.part];
    auto& [values, flight] = one.parts[turn.part];
    if (turn.what == StageTurn::forward) {
      flight = blocks.begin(one.batch, std::move(values));
      values = flight->values;
    } else if (turn.what == StageTurn::backward) {
      const std::vector<View> loss = blocks.end(*flight, std::move(values));
      values = flight->values;
      flight.reset();
      p_.emit.label(Phase::loss);
      const View row = slice(p_.losses, uint64_t{turn.micro} * p_.plan.row, p_.plan.row);
      for (size_t k = 0; k < loss.size(); ++k)
        p_.emit.action(op(ENG_OP_SCALE), {loss[k]}, {slice(row, k, 1)}, {{{"factor", 0, 1.0}}});
    } else {
      std::vector<View> mine = turn.sends() ? std::move(values) : std::vector<View>();
      values = cross(turn.what, turn.part, std::move(mine));
    }
  }

  std::vector<View> evaluate() {
    std::vector<View> values;
    for (uint32_t part = 0; part < pipeline_.parts; ++part) {
      const uint32_t stage = pipeline_.stage(ranks_.stage(), part);
      values = blocks_[part].forward(*p_.batch, stage ? cross(StageTurn::receive, part, {}) : std::vector<View>());
      if (stage + 1 == pipeline_.stages()) return values;
      cross(StageTurn::send, part, std::move(values));
    }
    return {};
  }

  // True if the first and the last stage have gradients of a unit.
  bool shared(size_t u) const {
    const std::vector<uint32_t>& params = p_.homes.unit(u).params;
    return std::any_of(params.begin(), params.end(), [&](uint32_t p) { return of_two_stages_.count(p) > 0; });
  }

  // Both get the sum.
  void sum_of_stages(size_t u) {
    p_.emit.label(Phase::reduce, p_.homes.unit(u).name);
    const Id group = ranks_.pair(ranks_.pipeline - 1);
    for (const Range& piece : p_.homes.pieces(u))
      p_.moves.between_ranks([&] {
        const View home = p_.homes.view(p_.homes.grad[u], piece);
        const bool away = p_.homes.grad[u].place != 0;  // in a tier
        const View grad = away ? p_.emit.transient("of this stage", Line::communication, home.desc) : home;
        if (away) p_.emit.copy(home, grad);
        const View both = p_.emit.transient("of two stages", Line::communication,
                                            flat(grad.desc.dtype, 2 * static_cast<uint64_t>(count(grad.desc))));
        p_.emit.action(op(ENG_OP_ALL_GATHER), {grad}, {both}, {{{"group", group, 0}, {"members", 2, 0}}});
        p_.emit.action(op(ENG_OP_FOLD), {both}, {grad}, {{{"rows", 2, 0}}});
        if (away) p_.emit.copy(grad, home);
      });
  }

  // All stages get what each has observed: every number is that of one stage, and zero of the others.
  void losses() {
    p_.emit.label(Phase::losses);
    p_.moves.between_ranks([&] {
      if (p_.plan.observed.empty()) return broadcast(p_.losses, ranks_.column(), ranks_.pipeline - 1);
      const auto n = static_cast<uint64_t>(count(p_.losses.desc));
      const View mine = slice(p_.losses, 0, n), all = p_.emit.transient("of all stages", Line::communication,
                                                                        flat(mine.desc.dtype, n * ranks_.pipeline));
      const int64_t group = ranks_.column(), members = ranks_.pipeline;
      p_.emit.action(op(ENG_OP_ALL_GATHER), {mine}, {all}, {{{"group", group, 0}, {"members", members, 0}}});
      p_.emit.action(op(ENG_OP_FOLD), {all}, {mine}, {{{"rows", members, 0}}});
    });
  }

  const StepParts& p_;
  const Model& model_;
  const Ranks& ranks_ = p_.plan.ranks;
  const Pipeline pipeline_;
  const std::set<uint32_t> of_two_stages_ = of_two_stages(model_);
  std::vector<BlockEmitter> blocks_;                    // per virtual stage of this rank
  std::optional<OffloadedActivations> offloaded_ = {};  // of all micro-batches
};

}  // namespace

std::function<std::vector<View>(const StepParts&, StagePart)> stage_of(const Ranks& ranks, const Model& model) {
  if (ranks.pipeline == 1) return {};
  return [&model](const StepParts& parts, StagePart part) { return StageEmitter(parts, model).emit(part); };
}

}  // namespace eng
