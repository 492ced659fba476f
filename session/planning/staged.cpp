// SPDX-License-Identifier: Apache-2.0
#include "session/planning/staged.hpp"

#include "core/plan/planner.hpp"
#include "engine/ops.h"
#include "session/model/pipeline.hpp"

namespace eng {
namespace {

class StageEmitter {
 public:
  StageEmitter(const StepParts& parts, const Model& model) : p_(parts), model_(model) {}

  std::vector<View> emit(StagePart part, std::vector<View> values) {
    const bool first = model_.first == 0;
    if (part == StagePart::before) return first ? std::move(values) : cross(model_.first, false, false, {});
    if (part == StagePart::after) return cross(model_.end(), false, true, std::move(values));
    part == StagePart::train ? train() : losses();
    return {};
  }

 private:
  // Over a group of this rank, from its member `root`.
  void broadcast(const View& value, Id group, uint32_t root) {
    const View all = slice(value, 0, static_cast<uint64_t>(count(value.desc)));
    const auto members = static_cast<int64_t>(ranks_.group(group).size());
    p_.emit.action(op(ENG_OP_BROADCAST), {all}, {all},
                   {{{"group", group, 0}, {"root", root, 0}, {"members", members, 0}}});
  }

  // Brings the inputs of block b to the stage that it begins or, if `back`, their gradients to the stage before it.
  std::vector<View> cross(uint32_t b, bool back, bool sends, std::vector<View> values) {
    const Template& t = model_.templates.at(model_.blocks[b].tmpl);
    const Id group = ranks_.pair(ranks_.stage() - (b == model_.first));
    p_.emit.label(back ? Phase::backward : Phase::forward, "pipeline");
    values.resize(t.inputs.size());
    for (size_t k = 0; k < values.size(); ++k) {
      const Id moved = back ? t.d_inputs[k] : t.inputs[k];
      if (!moved) continue;
      if (!sends) values[k] = p_.emit.transient("received", Line::activations, t.graph.value(moved).desc);
      p_.moves.between_ranks([&] {
        if (!sends) p_.emit.zero(values[k]);  // a member that is not the root gives a value, too
        broadcast(values[k], group, back);
      });
    }
    return values;
  }

  struct One {  // micro-batch
    MicroBatch batch = {};
    std::vector<View> fresh = {}, values = {};  // gradients per unit; what crosses a border of the stage next
    std::unique_ptr<BlockEmitter::Flight> flight = {};
  };

  // Several micro-batches are under way at a time, so each has counters of its own. Only the last stage has losses.
  void train() {
    const uint32_t n = p_.plan.accumulate;
    std::vector<One> all(n);
    Leases leases = p_.moves.leases();
    const View &counters = p_.plan.counters, &losses = p_.losses;
    const View none = p_.emit.transient("no loss", Line::step, flat(losses.desc.dtype, p_.plan.row));
    p_.emit.zero(none);
    for (uint32_t k = 0; k < n; ++k) {
      if (!p_.prepare(k, all[k].batch, leases, all[k].fresh))
        throw Error(Exit::usage, "parallel.pipeline: its stages keep the weights that they compute with",
                    "choose zero1 or zero2, no offload.parameters, and no precision.frozen");
      all[k].batch.counters = p_.emit.transient("counters", Line::step, counters.desc);
      p_.emit.copy(counters, all[k].batch.counters);
      p_.emit.action(op(ENG_OP_PUT_ROW), {none, losses, counters}, {losses, counters});
    }
    for (const StageTurn& turn : turns_of(ranks_.stage(), ranks_.pipeline, n)) run(turn, all[turn.micro]);
    for (size_t u = 0; u < p_.homes.units(); ++u)
      if (p_.homes.shared(u) && p_.homes.trains(u)) sum_of_stages(u);
  }

  void run(const StageTurn& turn, One& one) {
    if (turn.what == StageTurn::forward) {
      one.flight = p_.blocks.begin(one.batch, std::move(one.values));
      one.values = one.flight->values;
    } else if (turn.what == StageTurn::backward) {
      const std::vector<View> loss = p_.blocks.end(*one.flight, std::move(one.values));
      one.values = one.flight->values;
      one.flight.reset();
      p_.emit.label(Phase::loss);
      const View row = slice(p_.losses, uint64_t{turn.micro} * p_.plan.row, p_.plan.row);
      for (size_t k = 0; k < loss.size(); ++k)
        p_.emit.action(op(ENG_OP_SCALE), {loss[k]}, {slice(row, k, 1)}, {{{"factor", 0, 1.0}}});
    } else {
      const bool back = turn.what == StageTurn::receive_back || turn.what == StageTurn::send_back;
      const bool sends = turn.what == StageTurn::send || turn.what == StageTurn::send_back;
      std::vector<View> mine = sends ? std::move(one.values) : std::vector<View>();
      one.values = cross(sends == back ? model_.first : model_.end(), back, sends, std::move(mine));
    }
  }

  // The first and the last stage have gradients of a unit: both get the sum.
  void sum_of_stages(size_t u) {
    p_.emit.label(Phase::reduce, p_.homes.unit(u).name);
    const Id group = ranks_.pair(ranks_.pipeline - 1);
    for (const Range& piece : p_.homes.pieces(u))
      p_.moves.between_ranks([&] {
        const View grad = p_.homes.view(p_.homes.grad[u], piece);
        const View both = p_.emit.transient("of two stages", Line::communication,
                                            flat(grad.desc.dtype, 2 * static_cast<uint64_t>(count(grad.desc))));
        p_.emit.action(op(ENG_OP_ALL_GATHER), {grad}, {both}, {{{"group", group, 0}, {"members", 2, 0}}});
        p_.emit.action(op(ENG_OP_FOLD), {both}, {grad}, {{{"rows", 2, 0}}});
      });
  }

  void losses() {
    p_.emit.label(Phase::losses);
    p_.moves.between_ranks([&] { broadcast(p_.losses, ranks_.column(), ranks_.pipeline - 1); });
  }

  const StepParts& p_;
  const Model& model_;
  const Ranks& ranks_ = p_.plan.ranks;
};

}  // namespace

std::function<std::vector<View>(const StepParts&, StagePart, std::vector<View>)> stage_of(const Ranks& ranks,
                                                                                          const Model& model) {
  if (ranks.pipeline == 1) return {};
  return [&model](const StepParts& parts, StagePart part, std::vector<View> values) {
    return StageEmitter(parts, model).emit(part, std::move(values));
  };
}

}  // namespace eng
