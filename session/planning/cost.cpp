// SPDX-License-Identifier: Apache-2.0
#include "session/planning/cost.hpp"

#include <algorithm>

#include "core/tensor/dtype.hpp"
#include "engine/ops_attention.h"
#include "engine/ops_fp8.h"
#include "engine/ops_parallel.h"
#include "engine/ops_softcap.h"
#include "session/model/divided_ops.hpp"
#include "session/model/fp8.hpp"

namespace eng {
namespace {

bool is(const Call& call, const char* op) {
  return call.op->id == std::string_view(op);
}

// The type of the first floating input; 0: there is none.
int32_t type_of(const Call& call) {
  for (const eng_desc& desc : call.in)
    if (desc.dtype == ENG_F32 || desc.dtype == ENG_BF16 || desc.dtype == ENG_F16) return desc.dtype;
  return 0;
}

double rate_of(const Call& call, const Machine& m) {
  if (in_fp8(*call.op)) return m.fp8 > 0 ? m.fp8 : m.bf16 > 0 ? m.bf16 : m.flops;
  const int32_t type = type_of(call);
  const double rate = type == ENG_BF16 ? m.bf16 : type == ENG_F16 ? m.f16 : 0;
  return rate > 0 ? rate : m.flops;
}

Cost larger(const Cost& a, const Cost& b) {
  return b.seconds > a.seconds ? b : a;
}

// ---- kernels of the device cuda ----------------------------------------------------------------------------------

// A pass over memory by a kernel of its own.
double pass(double bytes, const Machine& m) {
  return std::max(m.launch, m.memory_bandwidth > 0 ? bytes / m.memory_bandwidth : 0);
}

double elements(const eng_desc& desc) {
  return static_cast<double>(count(desc));
}

// Seconds of passes over what is neither input nor output, which come before or after the products
// (plugins/cuda/kernels/cross_entropy.cuh, plugins/transform/cuda/product.cu).
double passes(const Call& call, const Machine& m) {
  const bool part = is(call, ENG_OP_VOCABULARY_GRAD);  // which knows the sum
  const bool gradient = part || is(call, ENG_OP_CROSS_ENTROPY_GRAD) || is(call, ENG_OP_CAPPED_CROSS_ENTROPY_GRAD) ||
                        is(call, ENG_OP_LABEL_LOGPROB_GRAD);
  if (gradient || is(call, ENG_OP_CROSS_ENTROPY) || is(call, ENG_OP_CAPPED_CROSS_ENTROPY) ||
      is(call, ENG_OP_LABEL_LOGPROB) || is(call, ENG_OP_VOCABULARY_SCORES)) {
    // Logits in f32: read for the sum of a row, and again for the gradient, which is written.
    const double logits = elements(call.in[2]) * static_cast<double>(call.in[1].dims[0]);
    return pass(logits * (gradient ? (part ? 4 : 8) + dtype_size(call.in[0].dtype) : 4), m);
  }
  if (!in_fp8(*call.op)) return 0;
  double seconds = m.launch;                                  // the scales
  const bool known = call.in.size() > 3 && call.in[3].dtype;  // scales of earlier steps: no largest value is sought
  for (const eng_desc* factor : {&call.in[0], &call.in[1]}) {
    const auto read = static_cast<double>(bytes(*factor));
    seconds += (known ? 0 : pass(read, m)) + pass(read + elements(*factor), m);
  }
  return seconds;
}

uint64_t filled(int64_t n, int64_t to) {
  return static_cast<uint64_t>((n + to - 1) / to * to);
}

// Bytes of scratch of cuDNN 9.19.0's gradient for heads of q and of k, as in plugins/cuda/attention_workspace.cpp but
// for some 100 bytes: the scores, which sm_100 does not keep, and copies of the gradients of keys that several heads
// share. Both are tested against the same table of cuDNN's answers (tests/cuda/cudnn).
uint64_t gradient_scratch(const eng_desc& q, int64_t heads, const eng_desc& k, uint32_t arch) {
  const uint64_t rows = static_cast<uint64_t>(q.dims[0] * heads * q.dims[1]);
  const uint64_t copies = q.dims[2] == k.dims[2] ? 0 : (arch == 100 ? 8 : 4) * static_cast<uint64_t>(count(q));
  const uint64_t scores =
      static_cast<uint64_t>(2 * q.dims[0] * heads) * filled(q.dims[1], 64) * filled(q.dims[1], arch == 90 ? 128 : 64);
  return 4 * rows + 256 + copies + (arch == 100 ? 0 : scores);
}

bool is_backward(const Call& call) {
  return is(call, ENG_OP_ATTENTION_GRAD) || is(call, ENG_OP_ATTENTION_WINDOW_GRAD);
}

// By cuDNN: its products, then the exponentials and sums of the scores, which the units for products do not compute.
// The backward reads all once more before, and writes it after.
double attention_seconds(const Call& call, bool backward, double rate, double in_memory, const Machine& m) {
  const std::optional<uint64_t> scratch = attention_scratch(call, m.arch);
  if (!scratch || *scratch > m.attention_workspace)
    return call.flops * (backward ? reached.own_backward : 1) / (m.own_attention * rate);
  const auto size = static_cast<double>(call.in[backward ? 1 : 0].dims[2] / call.attrs.i("heads"));
  const double scores = call.flops / size / (backward ? 10 : 4);
  return call.flops / rate + scores * (backward ? reached.backward_score : reached.forward_score) / m.exponentials +
         (backward ? in_memory : 0);
}

// Seconds of Mamba's scan or its gradient, by the instructions of a warp that plugins/mamba/cuda issues for a token of
// a channel with 16 states (docs/cuda.md): neither memory nor products bound it. 0 for other ops.
double scan_seconds(const Call& call, const Machine& m) {
  const bool backward = is(call, op_scan_grad);
  if (!backward && !is(call, op_scan)) return 0;
  const size_t u = backward ? 1 : 0, segments = 9;
  const bool packed = call.in.size() > segments && call.in[segments].dtype;
  const double issued = !backward ? 6.5 : packed ? 20 : 17, states = static_cast<double>(call.in[u + 2].dims[1]);
  const double slots = m.exponentials / 4;  // a processor has 4 for each 16 exponentials
  return elements(call.in[u]) * issued * states / 16 / (reached.scan * slots);
}

}  // namespace

std::optional<uint64_t> attention_scratch(const Call& call, uint32_t arch) {
  const bool backward = is_backward(call);
  if (!backward && !is(call, ENG_OP_ATTENTION) && !is(call, ENG_OP_ATTENTION_WINDOW)) return {};
  const eng_desc& q = call.in[backward ? 1 : 0];
  const int64_t heads = call.attrs.i("heads"), size = heads > 0 ? q.dims[2] / heads : 0;
  const size_t segments = backward ? 6 : 3;
  if ((q.dtype != ENG_BF16 && q.dtype != ENG_F16) || size < 8 || size % 8 != 0) return {};
  if (call.attrs.i("window") || call.attrs.f("softcap") != 0) return {};
  if (call.in.size() > segments && call.in[segments].dtype) return {};
  if (arch != 80 && arch != 90 && arch != 100) return {};
  if (size > (backward && arch != 90 ? 128 : 256)) return {};
  return backward ? gradient_scratch(q, heads, call.in[2], arch) : 0;
}

uint64_t library_scratch(const Plan& plan, const Target& target) {
  uint64_t most = 0;
  if (target.device != "cuda" || target.own_attention) return most;
  for (const Call& call : plan.calls)
    if (const auto bytes = attention_scratch(call, target.info.arch); bytes && *bytes <= target.attention_workspace)
      most = std::max(most, *bytes);
  return most;
}

Cost cost_of(const Plan& plan, const Topology& topology, const Action& action, const Machine& m) {
  const Call& call = plan.calls[action.call];
  if (call.op->collective) return {collective_seconds(topology, call, m), BoundBy::communication};
  if (call.storage) {
    const bool write = plan.in_storage(action.out[0]);
    return {static_cast<double>(bytes(action.in[0].desc)) * std::min(plan.ranks.world.size, m.ranks_per_node) /
                (write ? m.storage_write : m.storage_read),
            BoundBy::storage};
  }
  bool host = false;
  for (const auto* views : {&action.in, &action.out})
    for (const View& v : *views) host = host || (v.buffer && plan.in_host_arena(v));
  double moved = 0;
  for (const auto* list : {&call.in, &call.out})
    for (const eng_desc& desc : *list) moved += static_cast<double>(bytes(desc));
  if (call.on_host)
    return {m.host_memory > 0 ? moved * std::min(plan.ranks.world.size, m.ranks_per_node) / m.host_memory : 0,
            BoundBy::host};
  if (is(call, ENG_OP_RESHAPE) && action.in[0].buffer == action.out[0].buffer &&
      action.in[0].offset == action.out[0].offset)
    return {};  // in place there is nothing to do
  Cost cost{m.launch, BoundBy::launches};
  if (host && m.host_link > 0) return larger(cost, {moved / 2 / m.host_link, BoundBy::host_link});
  if (host && !plan.has_tiers()) return {};
  const double in_memory = m.memory_bandwidth > 0 ? moved / m.memory_bandwidth : 0, rate = rate_of(call, m);
  cost = larger(cost, {in_memory, BoundBy::memory});
  const bool backward = is_backward(call);
  if (!(rate > 0)) return cost;
  if (backward || is(call, ENG_OP_ATTENTION) || is(call, ENG_OP_ATTENTION_WINDOW)) {
    if (m.exponentials == 0 || type_of(call) == ENG_F32)
      return larger(cost, {call.flops / (m.attention * rate), BoundBy::compute});
    return larger(cost, {attention_seconds(call, backward, rate, in_memory, m), BoundBy::compute});
  }
  cost = larger(cost, {call.flops / rate, BoundBy::compute});
  if (m.exponentials > 0) {
    cost = larger(cost, {scan_seconds(call, m), BoundBy::compute});
    cost.seconds += passes(call, m);
  }
  return cost;
}

}  // namespace eng
