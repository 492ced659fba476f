// SPDX-License-Identifier: Apache-2.0
#include "session/planning/traffic.hpp"

#include <algorithm>

#include "core/plan/emitter.hpp"
#include "core/tensor/dtype.hpp"
#include "engine/ops.h"
#include "engine/policy.h"

namespace eng {
namespace {

bool is(const Call& call, const char* id) {
  return std::string(call.op->id) == id;
}

// True if one of the views lies in one of the buffers.
bool touches(const std::vector<View>& views, const std::vector<Id>& buffers) {
  return std::any_of(views.begin(), views.end(), [&](const View& v) {
    return v.buffer && std::find(buffers.begin(), buffers.end(), v.buffer) != buffers.end();
  });
}

// The purpose of a gather: the phase of the first action that reads what the actions of its label wrote.
Phase reader(const Plan& plan, const Segment& segment, size_t at) {
  std::vector<Id> written;
  const uint32_t label = segment.actions[at].label;
  for (; at < segment.actions.size(); ++at) {
    const Action& action = segment.actions[at];
    if (action.label != label && touches(action.in, written)) return plan.labels[action.label].phase;
    if (action.label == label)
      for (const View& v : action.out) written.push_back(v.buffer);
  }
  return Phase::step;
}

std::string purpose(const Plan& plan, const Segment& segment, size_t at) {
  const Action& action = segment.actions[at];
  const Phase phase = plan.labels[action.label].phase;
  if (plan.ranks.tensor > 1 && plan.calls[action.call].attrs.i("group") == plan.ranks.tensor_group())
    return "tensor sums, " + Label{phase}.text();
  if (plan.ranks.context > 1 && plan.calls[action.call].attrs.i("group") == plan.ranks.context_group())
    return "context exchange, " + Label{phase}.text();
  if (is(plan.calls[action.call], ENG_OP_BROADCAST) && phase != Phase::losses)
    return "pipeline, " + Label{phase}.text();
  if (const Ranks& r = plan.ranks;
      r.pipeline > 1 && phase == Phase::reduce && plan.calls[action.call].attrs.i("group") == r.pair(r.pipeline - 1))
    return "gradients of two stages, sum";
  if (phase == Phase::reduce) return "gradients, sum";
  if (phase == Phase::publish) return "weights, publish";
  if (phase != Phase::gather) return Label{phase}.text();  // "norm", "losses"
  const Phase by = reader(plan, segment, at);
  if (by == Phase::forward) return "weights, forward";
  if (by == Phase::backward) return "weights, backward";
  return by == Phase::update ? "gradients, whole" : "weights";
}

}  // namespace

uint64_t spread_elements(const Call& call) {
  const auto n = static_cast<uint64_t>(count(is(call, ENG_OP_ALL_GATHER) ? call.out[0] : call.in[0]));
  return is(call, ENG_OP_ALL_REDUCE) ? 2 * n : n;
}

uint64_t sent_bytes(const Call& call) {
  const auto m = static_cast<uint64_t>(call.attrs.i("members", 1));
  if (is(call, ENG_OP_BROADCAST)) return spread_elements(call) * dtype_size(call.in[0].dtype);  // or received
  return (spread_elements(call) * dtype_size(call.in[0].dtype) * (m - 1) + m - 1) / m;
}

std::vector<Transfer> traffic(const Plan& plan) {
  std::vector<Transfer> out;
  for (const Segment& segment : plan.program("train").segments)
    for (size_t a = 0; a < segment.actions.size(); ++a) {
      const Call& call = plan.calls[segment.actions[a].call];
      if (!call.op->collective) continue;
      const std::string what = purpose(plan, segment, a);
      auto found = std::find_if(out.begin(), out.end(),
                                [&](const Transfer& t) { return t.op == call.op->id && t.purpose == what; });
      if (found == out.end()) found = out.insert(found, {call.op->id, what});
      found->count += segment.repeat;
      found->bytes += segment.repeat * sent_bytes(call);
      found->exchanged += segment.repeat * spread_elements(call) * dtype_size(call.in[0].dtype);
    }
  return out;
}

uint64_t unit_elements(const Plan& plan) {
  uint64_t n = 0;
  for (const Unit& unit : plan.units) n += unit.count;
  return n;
}

uint64_t weight_bytes(const Plan& plan, const Precision& precision) {
  uint64_t n = 0;
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const Unit& unit = plan.units[u];
    const eng_unit view{sizeof(eng_unit), static_cast<eng_id>(u + 1), unit.block, unit.flags, unit.count};
    n += bytes(flat(precision.dtype(ENG_ROLE_WEIGHT, &view), unit.count));
  }
  return n;
}

}  // namespace eng
