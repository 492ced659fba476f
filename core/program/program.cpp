// SPDX-License-Identifier: Apache-2.0
#include "core/program/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/autograd/backward.hpp"
#include "core/base/error.hpp"
#include "core/memory/layout.hpp"
#include "core/plan/planner.hpp"
#include "core/verify/verify.hpp"

namespace eng {

namespace {

// Gives every block a template with a backward. Blocks traced as one template share it if the same of their parameters
// are frozen and all or none of them need the gradient of their input.
void derive(Model& model) {
  const bool freezing =
      std::any_of(model.params.begin(), model.params.end(), [](const Parameter& p) { return p.frozen; });
  const std::map<uint32_t, Template> traced = std::exchange(model.templates, {});
  uint32_t next = traced.rbegin()->first + 1;
  std::map<std::tuple<uint32_t, std::vector<char>, bool>, uint32_t> made;
  bool trained = false;  // some parameter of an earlier block is trained
  for (size_t k = 0; k < model.blocks.size(); ++k) {
    Block& block = model.blocks[k];
    const uint32_t tmpl = block.tmpl;
    std::vector<char> frozen;
    for (uint32_t p : block.params) frozen.push_back(model.params[p].frozen);
    const bool first = freezing ? !trained : k == 0;
    trained = trained || std::count(frozen.begin(), frozen.end(), 0) > 0;
    auto [it, fresh] = made.try_emplace({tmpl, frozen, first}, model.templates.count(tmpl) ? next : tmpl);
    block.tmpl = it->second;
    if (!fresh) continue;
    if (it->second == next) ++next;
    Template& t = model.templates[block.tmpl] = traced.at(tmpl);
    try {
      derive_backward(t, first, k + 1 == model.blocks.size(), frozen, model.sequences);
    } catch (const Error& e) {
      throw Error(e.exit(), fmt::format("model {}, block {}: {}", model.plugin, block.name, e.what()), e.help());
    }
  }
}

}  // namespace

Model trace_model(const std::string& name, const eng_model& table, const Section& options, int64_t micro_batch,
                  int64_t sequence_length, int32_t dtype, bool runs, const Offered& offered,
                  const std::vector<Transform>& transforms, const Loss& loss, const std::function<void(Model&)>& last,
                  int32_t stream) {
  Model model = trace_forward(name, table, options, micro_batch, sequence_length, dtype, runs, offered, loss, stream);
  for (const Transform& transform : transforms) rewrite(model, transform, {dtype, runs, offered, loss});
  if (last) last(model);
  derive(model);
  const Template& head = model.templates.at(model.blocks.back().tmpl);
  if (head.outputs.size() != 1 || count(head.graph.value(head.outputs[0]).desc) != 1)
    throw Error(Exit::environment, "model " + name + ": the last block must output only the loss");
  return model;
}

Plan make_plan(const PlanRequest& request) {
  Plan plan = emit_plan(request);
  place_buffers(plan);
  verify(plan);
  return plan;
}

}  // namespace eng
