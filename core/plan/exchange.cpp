// SPDX-License-Identifier: Apache-2.0
#include "core/plan/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/ops.h"

namespace eng {

Exchange::Exchange(const PlanRequest& request, Plan& plan, Emitter& emitter)
    : plan_(plan), emit_(emitter), traits_(request.traits) {
  const Model& model = request.model;
  for (const auto& [tmpl, t] : model.templates) {
    auto& list = constants[tmpl];
    for (const auto& c : t.constants) {
      list.push_back(emit_.persistent(fmt::format("constant {} of template {}", list.size(), tmpl), Line::constants,
                                      c->desc, true));
      plan_.constants.push_back(list.back());
      plan_.constant_data.push_back(c);
    }
  }
  const auto make = [&](const std::string& name, Line line, const eng_desc& desc, View& host) {
    const Shared both = shared(name, line, desc, true);
    host = both.host;
    return both.device;
  };
  if (!traits_.collectives_on_device && plan_.ranks.world.size > 1) emit_.stage_collectives(1);
  const int64_t a = request.accumulate, b = model.micro_batch, t = model.sequence_length;
  for (const Field& field : model.fields) {
    plan_.fields.push_back({field.name, {}});
    fields.push_back(make(field.name, Line::batch, make_desc(field.dtype, {a, b, t}), plan_.fields.back().view));
  }
  inputs = make("inputs", Line::step, make_desc(ENG_F32, {8}), plan_.inputs);
  plan_.counters = make("counters", Line::step, make_desc(ENG_I64, {ENG_C_COUNT}), plan_.host_counters);
  plan_.scalars = make("scalars", Line::step, make_desc(ENG_F32, {ENG_S_COUNT}), plan_.results);
  // The loss is f32, or f64 where the compute is f64 (gradient checks).
  const Template& head = model.templates.at(model.blocks.back().tmpl);
  const int32_t wide = head.graph.value(head.outputs[0]).desc.dtype;
  const int64_t row = plan_.row;
  losses = make("losses", Line::step, row == 1 ? make_desc(wide, {a}) : make_desc(wide, {a, row}), plan_.losses);
  if (plan_.ranks.single() || !request.train) return;
  const Shared all =
      shared("losses of all ranks", Line::step, flat(wide, uint64_t(a) * plan_.row * plan_.ranks.data_size()), false);
  all_losses = all.device, plan_.all_losses = all.host;
}

void Exchange::after_losses(uint64_t n) {
  const uint64_t mine = static_cast<uint64_t>(count(losses.desc)) + n;
  const auto grow = [&](View& view, uint64_t values) {
    view.desc = flat(view.desc.dtype, values);
    plan_.buffer(view.buffer).bytes = std::max(plan_.buffer(view.buffer).bytes, bytes(view.desc));
  };
  for (View* view : {&losses, &plan_.losses}) grow(*view, mine);
  if (!plan_.ranks.single())
    for (View* view : {&all_losses, &plan_.all_losses}) grow(*view, mine * plan_.ranks.data_size());
}

Exchange::Shared Exchange::shared(const std::string& name, Line line, const eng_desc& desc, bool initial) {
  const View device = emit_.persistent(name, line, desc, initial);
  return {device, traits_.discrete ? emit_.persistent(name + " for the host", line, desc, true, 1) : device};
}

void Exchange::copy(Queue queue, const View& from, const View& to) {
  if (from.buffer == to.buffer) return;
  const Queue before = emit_.on(traits_.queues ? queue : Queue::compute);
  emit_.action(op(ENG_OP_COPY), {from}, {to});
  emit_.on(before);
}

}  // namespace eng
