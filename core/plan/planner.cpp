// SPDX-License-Identifier: Apache-2.0
#include "core/plan/planner.hpp"

#include <fmt/format.h>

#include <cstring>

#include "core/base/error.hpp"
#include "core/memory/layout.hpp"
#include "core/plan/blocks.hpp"
#include "core/plan/waits.hpp"
#include "core/trace/stepping.hpp"
#include "core/verify/verify.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

// Persistent state of the step, and the emission of its programs.
class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : r_(request), model_(request.model), emit_(plan_, request.workspace), blocks_(model_, emit_) {}

  Plan make() {
    plan_.arenas.push_back({r_.device, "device", 0, 0, 0});
    plan_.accumulate = r_.accumulate;
    plan_.parameters = model_.parameter_count();
    plan_.labels.push_back("step");
    make_units();
    make_state();
    emit_init();
    emit_train();
    if (r_.evaluate) emit_eval();
    if (r_.logits) emit_logits();
    if (r_.generate) emit_generate();
    return std::move(plan_);
  }

 private:
  // ---- units and homes -------------------------------------------------------------------------------
  void make_units() {
    std::vector<char> taken(model_.params.size(), 0);
    unit_of_.resize(taken.size()), offset_of_.resize(taken.size());
    for (uint32_t b = 0; b < model_.blocks.size(); ++b)
      for (uint32_t flags : {0u, static_cast<uint32_t>(ENG_PARAM_FP32)}) {
        Unit unit{model_.blocks[b].name, b, 0, flags, {}};
        for (uint32_t p : model_.blocks[b].params) {
          if (taken[p] || (model_.params[p].flags & ENG_PARAM_FP32) != flags) continue;
          taken[p] = 1;
          unit_of_[p] = plan_.units.size(), offset_of_[p] = unit.count;
          unit.params.push_back(p);
          unit.count += padded(p);
        }
        if (unit.count) plan_.units.push_back(std::move(unit));
      }
    for (uint32_t p = 0; p < taken.size(); ++p)
      if (!taken[p])
        throw Error(Exit::environment, fmt::format("parameter {} belongs to no block", model_.params[p].name));
  }

  uint64_t elements(uint32_t p) const { return static_cast<uint64_t>(count(model_.params[p].desc)); }
  uint64_t padded(uint32_t p) const { return (elements(p) + chunk - 1) / chunk * chunk; }
  static eng_desc flat(int32_t dtype, uint64_t n) { return make_desc(dtype, {static_cast<int64_t>(n)}); }

  View param_view(const std::vector<View>& home, uint32_t p) const {
    eng_desc desc = model_.params[p].desc;
    View v = slice(home[unit_of_[p]], offset_of_[p], elements(p));
    desc.dtype = v.desc.dtype;
    return reshape(v, desc);
  }

  void make_state() {
    for (const Unit& unit : plan_.units) {
      eng_unit view{sizeof(eng_unit), static_cast<eng_id>(weight_.size() + 1), unit.block, unit.flags, unit.count};
      int32_t weight = r_.precision.dtype(ENG_ROLE_WEIGHT, &view), master = r_.precision.dtype(ENG_ROLE_MASTER, &view);
      int32_t grad = r_.precision.dtype(ENG_ROLE_GRAD, &view), partial = r_.precision.dtype(ENG_ROLE_PARTIAL, &view);
      if (grad != partial)
        throw Error(Exit::environment, "this version needs one dtype for fresh and reduced gradients");
      weight_.push_back(emit_.persistent("weight " + unit.name, Line::weights, flat(weight, unit.count), true));
      // Equal homes are one memory: the weight is its own master.
      master_.push_back(master == weight
                            ? weight_.back()
                            : emit_.persistent("master " + unit.name, Line::weights, flat(master, unit.count), true));
      // Without an update gradients stay for whoever reads them; else they last from the backward to the update.
      if (r_.train) {
        std::string name = "gradient " + unit.name;
        eng_desc desc = flat(grad, unit.count);
        grad_.push_back(r_.optimizer ? emit_.transient(name, Line::gradients, desc)
                                     : emit_.persistent(name, Line::gradients, desc, false));
      }
    }
    if (r_.train && r_.optimizer) make_optimizer_state();
    for (uint32_t p = 0; p < model_.params.size(); ++p) weights_.push_back(param_view(weight_, p));
    for (const auto& [tmpl, t] : model_.templates) {
      auto& list = constants_[tmpl];
      for (const Constant& c : t.constants) {
        list.push_back(emit_.persistent(fmt::format("constant {} of template {}", list.size(), tmpl), Line::constants,
                                        c.desc, true));
        plan_.constants.push_back(list.back());
        plan_.constant_data.push_back(c.data);
      }
    }
    int64_t a = r_.accumulate, b = model_.micro_batch, t = model_.sequence_length;
    plan_.tokens = emit_.persistent("tokens", Line::batch, make_desc(ENG_I32, {a, b, t}), true);
    plan_.labels_in = emit_.persistent("labels", Line::batch, make_desc(ENG_I32, {a, b, t}), true);
    plan_.inputs = emit_.persistent("inputs", Line::step, make_desc(ENG_F32, {8}), true);
    plan_.counters = emit_.persistent("counters", Line::step, make_desc(ENG_I64, {ENG_C_COUNT}), true);
    plan_.scalars = emit_.persistent("scalars", Line::step, make_desc(ENG_F32, {ENG_S_COUNT}), true);
    // The loss is f32, or f64 where the compute is f64 (gradient checks).
    const Template& head = model_.templates.at(model_.blocks.back().tmpl);
    plan_.losses =
        emit_.persistent("losses", Line::step, make_desc(head.graph.value(head.outputs[0]).desc.dtype, {a}), true);
    for (uint32_t p = 0; p < model_.params.size(); ++p) {
      plan_.tensors.push_back({model_.params[p].name, "parameter", param_view(master_, p)});
      if (r_.train && !r_.optimizer) plan_.tensors.push_back({model_.params[p].name, "gradient", param_view(grad_, p)});
      for (size_t s = 0; s < states_.size(); ++s)
        plan_.tensors.push_back({model_.params[p].name, states_[s].name, param_view(state_[s], p)});
    }
  }

  void make_optimizer_state() {
    eng_state states[16];
    uint32_t n = 0;
    Sink sink;
    sink.check(r_.optimizer->table.states(r_.optimizer->self.get(), states, 16, &n, sink.get()), Exit::environment,
               "optimizer " + r_.optimizer->name);
    states_.assign(states, states + n);
    for (const eng_state& s : states_) {
      state_.emplace_back();
      for (const Unit& unit : plan_.units)
        state_.back().push_back(emit_.persistent(fmt::format("{} {}", s.name, unit.name), Line::optimizer,
                                                 flat(s.dtype, unit.count), true));
    }
    int64_t columns = 1 + static_cast<int64_t>(r_.optimizer->scalars(1).size());
    plan_.table = emit_.persistent("schedule", Line::step, make_desc(ENG_F32, {r_.steps, columns}), true);
  }

  // ---- programs --------------------------------------------------------------------------------------
  void emit_init() {
    emit_.begin_program("init");
    emit_.begin_segment("init", 1);
    emit_.label("init");
    for (uint32_t p = 0; p < model_.params.size(); ++p) {
      const Parameter& parameter = model_.params[p];
      Attrs attrs = parameter.init;
      attrs.list.push_back({"seed", r_.seed, 0});
      attrs.list.push_back({"stream", static_cast<int64_t>(p), 0});
      attrs.list.push_back({"first", 0, 0});
      View to = param_view(master_, p);
      emit_.action(op(parameter.init_op), {}, {slice(to, 0, elements(p))}, std::move(attrs));
    }
    for (size_t u = 0; u < plan_.units.size(); ++u) publish(u);
    // After loading a checkpoint: weights from their masters.
    emit_.begin_program("publish");
    emit_.begin_segment("publish", 1);
    for (size_t u = 0; u < plan_.units.size(); ++u) publish(u);
  }

  // Where the weight has another home than the master, precision writes it.
  void publish(size_t u) {
    if (weight_[u].buffer == master_[u].buffer) return;
    EmittingBuilder builder(emit_, "move " + plan_.units[u].name);
    eng_view from{sizeof(eng_view), master_[u].desc.dtype, 0, 0, plan_.units[u].count}, to = from;
    to.dtype = weight_[u].desc.dtype;
    eng_id src = builder.add(master_[u]), dst = builder.add(weight_[u]);
    eng_move move{sizeof(eng_move), ENG_ROLE_WEIGHT, static_cast<eng_id>(u + 1), 0, src, dst, &from, &to};
    ask("precision " + r_.precision.name, builder,
        [&](eng_error* error) { return r_.precision.table.move(r_.precision.self.get(), &builder, &move, error); });
  }

  // Lets a policy emit through a builder.
  template <class F>
  static void ask(const std::string& who, const EmittingBuilder& builder, F emit) {
    Sink sink;
    eng_status status = emit(sink.get());
    builder.check(who);
    sink.check(status, Exit::environment, who);
  }

  // Rows of the batch for this micro-batch.
  void get_rows(MicroBatch& batch) {
    batch.tokens =
        emit_.transient("tokens", Line::batch, make_desc(ENG_I32, {model_.micro_batch, model_.sequence_length}));
    batch.labels = emit_.transient("labels", Line::batch, batch.tokens.desc);
    emit_.action(op(ENG_OP_GET_ROW), {plan_.tokens, plan_.counters}, {batch.tokens});
    emit_.action(op(ENG_OP_GET_ROW), {plan_.labels_in, plan_.counters}, {batch.labels});
    batch.scalars = plan_.scalars;
    batch.counters = plan_.counters;
    batch.seed = r_.seed;
    batch.weights = &weights_;
    batch.constants = &constants_;
  }

  void put_loss(const View& loss) {
    emit_.label("loss");
    emit_.action(op(ENG_OP_PUT_ROW), {loss, plan_.losses, plan_.counters}, {plan_.losses, plan_.counters});
  }

  void micro_batch(bool first) {
    MicroBatch batch;
    get_rows(batch);
    // The first micro-batch writes its gradients where they stay; later ones write aside and are added.
    std::vector<View> fresh(plan_.units.size());
    batch.gradient = [&](uint32_t p) {
      size_t u = unit_of_[p];
      if (!fresh[u].buffer) {
        const Unit& unit = plan_.units[u];
        fresh[u] = first ? grad_[u] : emit_.transient("fresh gradient " + unit.name, Line::gradients, grad_[u].desc);
        zero_padding(unit, fresh[u]);
      }
      return param_view(fresh, p);
    };
    batch.after_backward = [&](uint32_t block) {
      for (size_t u = 0; u < plan_.units.size(); ++u)
        if (plan_.units[u].block == block && !first) emit_.action(op(ENG_OP_ADD), {grad_[u], fresh[u]}, {grad_[u]});
    };
    put_loss(blocks_.train(batch));
  }

  void zero_padding(const Unit& unit, const View& view) {
    for (uint32_t p : unit.params)
      if (uint64_t n = elements(p); n < padded(p)) emit_.zero(slice(view, offset_of_[p] + n, padded(p) - n));
  }

  void emit_train() {
    if (!r_.train) return;
    emit_.begin_program("train");
    emit_.begin_segment("first", 1);
    emit_.label("begin");
    emit_.action(op(ENG_OP_BEGIN), {plan_.inputs, plan_.counters}, {plan_.scalars, plan_.counters});
    micro_batch(true);
    if (r_.accumulate > 1) {
      emit_.begin_segment("rest", r_.accumulate - 1);
      micro_batch(false);
    }
    if (r_.optimizer) {
      emit_.begin_segment("update", 1);
      emit_update();
    }
    for (const Segment& s : plan_.programs.back().segments)
      for (const Action& a : s.actions) plan_.flops_per_step += plan_.calls[a.call].flops * s.repeat;
  }

  void emit_update() {
    emit_.label("norm");
    uint64_t chunks = 0;
    for (const Unit& unit : plan_.units) chunks += unit.count / chunk;
    View partials = emit_.transient("norm partials", Line::step, flat(ENG_F32, chunks));
    uint64_t at = 0;
    for (size_t u = 0; u < plan_.units.size(); ++u) {
      uint64_t n = plan_.units[u].count / chunk;
      emit_.action(op(ENG_OP_SUM_SQUARES), {grad_[u]}, {slice(partials, at, n)});
      at += n;
    }
    emit_.action(op(ENG_OP_FINISH), {partials, plan_.table, plan_.scalars, plan_.counters},
                 {plan_.scalars, plan_.counters}, {{{"max_norm", 0, r_.grad_clip}}});
    for (size_t u = 0; u < plan_.units.size(); ++u) {
      emit_.label("update " + plan_.units[u].name);
      update_unit(u);
      publish(u);
    }
  }

  // One update per run of parameters with equal flags, padding included.
  void update_unit(size_t u) {
    const Unit& unit = plan_.units[u];
    for (size_t k = 0; k < unit.params.size();) {
      const uint32_t flags = model_.params[unit.params[k]].flags;
      const uint64_t first = offset_of_[unit.params[k]];
      uint64_t n = 0;
      for (; k < unit.params.size() && model_.params[unit.params[k]].flags == flags; ++k) n += padded(unit.params[k]);
      EmittingBuilder builder(emit_, "update " + unit.name);
      auto add = [&](const View& home) { return builder.add(slice(home, first, n)); };
      std::vector<eng_id> states;
      for (const auto& state : state_) states.push_back(add(state[u]));
      eng_update update{sizeof(eng_update),
                        flags,
                        add(master_[u]),
                        add(grad_[u]),
                        0,
                        builder.add(plan_.scalars),
                        states.data(),
                        static_cast<uint32_t>(states.size()),
                        0};
      ask("optimizer " + r_.optimizer->name, builder, [&](eng_error* error) {
        return r_.optimizer->table.update(r_.optimizer->self.get(), &builder, &update, error);
      });
    }
  }

  void emit_eval() {
    emit_.begin_program("eval");
    emit_.begin_segment("eval", 1);
    emit_.label("eval");
    MicroBatch batch;
    get_rows(batch);
    put_loss(blocks_.forward(batch));
  }

  // The first `positions` of every row of the tokens that the host gave.
  MicroBatch first_tokens(int64_t positions) const {
    MicroBatch batch;
    batch.tokens = reshape(plan_.tokens, make_desc(ENG_I32, {model_.micro_batch, positions}));
    batch.weights = &weights_;
    batch.constants = &constants_;
    batch.states = &states_of_;
    batch.counters = plan_.counters;
    return batch;
  }

  void emit_logits() {
    const Model model = with_logits(model_);
    const Template& head = model.templates.at(model.blocks.back().tmpl);
    plan_.logits = emit_.persistent("logits", Line::step, head.graph.value(head.outputs[0]).desc, false);
    emit_forward("logits", model, plan_.logits);
  }

  void emit_forward(const char* name, const Model& model, const View& output) {
    emit_.begin_program(name);
    emit_.begin_segment(name, 1);
    MicroBatch batch = first_tokens(model.sequence_length);
    batch.output = output;
    BlockEmitter(model, emit_).forward(batch);
  }

  void emit_generate() {
    const Model next = next_positions(model_, 1, true);
    const Template& head = next.templates.at(next.blocks.back().tmpl);
    plan_.next_logits = emit_.persistent("next logits", Line::step, head.graph.value(head.outputs[0]).desc, false);
    emit_.begin_program("reset");
    emit_.begin_segment("reset", 1);
    emit_.label("reset");
    for (const Block& block : next.blocks) {
      states_of_.emplace_back();
      for (const eng_desc& desc : next.templates.at(block.tmpl).states) {
        states_of_.back().push_back(emit_.persistent(
            fmt::format("state {} of {}", states_of_.back().size(), block.name), Line::cache, desc, true));
        emit_.zero(states_of_.back().back());
      }
    }
    emit_forward("decode", next, plan_.next_logits);
    if (model_.sequence_length > prefill) emit_forward("prefill", next_positions(model_, prefill, false), {});
  }

  const PlanRequest& r_;
  const Model& model_;
  Plan plan_;
  Emitter emit_;
  BlockEmitter blocks_;
  std::vector<size_t> unit_of_;               // per parameter
  std::vector<uint64_t> offset_of_;           // per parameter: elements, in its unit
  std::vector<View> weight_, master_, grad_;  // per unit, flat
  std::vector<std::vector<View>> state_;      // per state and unit
  std::vector<eng_state> states_;
  std::vector<View> weights_;  // per parameter, as compute reads it
  std::map<uint32_t, std::vector<View>> constants_;
  std::vector<std::vector<View>> states_of_;  // per block, of a running sequence
};

}  // namespace

Plan make_plan(const PlanRequest& request) {
  Plan plan = Planner(request).make();
  place_waits(plan);
  place_buffers(plan);
  verify(plan);
  return plan;
}

}  // namespace eng
