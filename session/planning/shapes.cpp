// SPDX-License-Identifier: Apache-2.0
#include "session/planning/shapes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"

namespace eng {

Shapes::Shapes(Plan& plan) : plan_(plan) {
  const std::vector<Key> all = keys(plan);
  for (Id id = 1; id <= plan_.buffers.size(); ++id)
    if (plan_.buffer(id).persistent) kept_[all[id]] = id;
}

std::vector<Shapes::Key> Shapes::keys(const Plan& plan) {
  std::vector<Key> out(plan.buffers.size() + 1);
  std::map<Key, size_t> times;
  for (Id id = 1; id <= plan.buffers.size(); ++id) {
    const Buffer& b = plan.buffer(id);
    out[id] = {b.line, b.arena, b.name, 0};
    if (b.persistent) std::get<3>(out[id]) = times[out[id]]++;
  }
  return out;
}

// Weights and what policies keep are the plan's. Only one shape runs at a time, so that all share what the host fills
// and reads. Constants may depend on the length.
Id Shapes::buffer(const Plan& from, Id id) {
  if (!id || ids_[id]) return ids_[id];
  Buffer b = from.buffer(id);
  const bool exchanged = b.line == Line::batch || b.line == Line::activations;
  if (b.persistent && b.line != Line::constants) {
    const Key& key = keys_[id];
    auto& known = exchanged ? exchanged_ : kept_;
    const auto at = known.find(key);
    if (at == known.end() && !exchanged)
      throw Error(Exit::bug,
                  fmt::format("the forward of another length reads `{}`, which the plan does not keep", b.name));
    if (at != known.end()) {
      Buffer& own = plan_.buffer(at->second);
      if (own.bytes != b.bytes && !exchanged && b.line != Line::communication)
        throw Error(Exit::bug, fmt::format("`{}` has another size in the forward of another length", b.name));
      own.bytes = std::max(own.bytes, b.bytes);
      return ids_[id] = at->second;
    }
    known[key] = static_cast<Id>(plan_.buffers.size() + 1);
    b.name += " of other lengths";
  }
  plan_.buffers.push_back(std::move(b));
  return ids_[id] = static_cast<Id>(plan_.buffers.size());
}

View Shapes::view(const Plan& from, View of) {
  of.buffer = buffer(from, of.buffer);
  return of;
}

void Shapes::put(const Plan& from, const Action& action, Segment& into) {
  Action own = action;
  for (auto* views : {&own.in, &own.out})
    for (View& v : *views) v = view(from, v);
  own.workspace = view(from, own.workspace);
  uint32_t &call = calls_[action.call], &label = labels_[action.label];
  if (call == UINT32_MAX) {
    call = static_cast<uint32_t>(plan_.calls.size());
    plan_.calls.push_back(from.calls[action.call]);
  }
  if (label == UINT32_MAX) {
    label = static_cast<uint32_t>(plan_.labels.size());
    plan_.labels.push_back(from.labels[action.label]);
  }
  own.call = call, own.label = label;
  into.actions.push_back(std::move(own));
}

Shape Shapes::add(const Plan& from, int64_t length) {
  keys_ = keys(from), ids_.assign(from.buffers.size() + 1, 0);
  calls_.assign(from.calls.size(), UINT32_MAX), labels_.assign(from.labels.size(), UINT32_MAX);
  Shape out{length, fmt::format("logits {}", length), {}, {}};
  Program program{out.program, {}};
  for (const Segment& segment : from.program("logits").segments) {
    program.segments.push_back({out.program, segment.repeat, {}});
    for (const Action& action : segment.actions) put(from, action, program.segments.back());
  }
  plan_.programs.push_back(std::move(program));
  for (size_t f = 0; f < from.fields.size(); ++f)
    out.fields.push_back({from.fields[f].name, f == 1 ? View{} : view(from, from.fields[f].view)});
  for (size_t k = 0; k < from.constants.size(); ++k) {
    if (!ids_[from.constants[k].buffer]) continue;
    plan_.constants.push_back(view(from, from.constants[k]));
    plan_.constant_data.push_back(from.constant_data[k]);
  }
  out.logits = view(from, from.logits);
  plan_.tensors.push_back(tensor_at(out.program, "activation", out.logits));
  for (const Tensor& t : from.tensors)
    if (t.role == "activation" && t.name != "logits" && ids_[t.ranges[0].view.buffer])
      plan_.tensors.push_back(tensor_at(fmt::format("{} {}", t.name, length), t.role, view(from, t.ranges[0].view)));
  return out;
}

}  // namespace eng
