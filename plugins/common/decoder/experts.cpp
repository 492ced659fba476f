// SPDX-License-Identifier: Apache-2.0
// In comments: B batch, T time, H hidden, I width of an expert, E experts of a layer, k of a token.
#include "experts.hpp"

#include "expert_ops.hpp"

namespace decoder {
namespace {

// The decisions of a router.
struct Routed {
  eng_id weights = 0, order = 0, place = 0, offsets = 0, load = 0;
};

// Emits an op with one output.
template <size_t N>
eng_id emit(eng_build* b, const char* op, const eng_id (&in)[N], const std::vector<eng_attr>& attrs) {
  return eng_emit1(b, op, in, N, attrs.data(), static_cast<uint32_t>(attrs.size()));
}

Routed by_softmax(eng_build* b, const Experts& e, eng_id logits) {
  const eng_attr how[] = {{"k", e.chosen, 0.0}, {"normalise", e.normalise, 0.0}};
  eng_id out[6] = {};  // weights, experts, order, place, offsets, load
  b->api->emit(b, MOE_OP_ROUTE, &logits, 1, out, 6, how, 2, nullptr);
  return {out[0], out[2], out[3], out[4], out[5]};
}

Routed by_sigmoid(eng_build* b, const Experts& e, eng_id logits, eng_id correction) {
  const eng_attr how[] = {{"k", e.chosen, 0.0},
                          {"normalise", e.normalise, 0.0},
                          {"scale", 0, e.scale},
                          {"groups", e.groups, 0.0},
                          {"chosen_groups", e.chosen_groups, 0.0}};
  const eng_id in[] = {logits, correction};
  eng_id out[5] = {};  // weights, experts, order, place, offsets
  b->api->emit(b, MOE_OP_ROUTE_SIGMOID, in, 2, out, 5, how, 5, nullptr);
  return {out[0], out[2], out[3], out[4], 0};
}

// The output of the expert of every token. Where it has a router, it is an expert that all tokens choose.
eng_id shared(eng_build* b, const Experts& e, const ExpertWeights& w, int64_t act, eng_id x) {
  if (!e.shared_gate.name) {
    const eng_id open = eng_linear_relu(b, x, w.shared[1], w.shared_bias[1]);
    return eng_linear(b, eng_gated(b, open, open, ENG_ACT_RELU), w.shared[2], w.shared_bias[2]);
  }
  const eng_id gate = eng_linear(b, x, w.shared[0], 0);  // (B, T, I)
  const eng_id up = eng_linear(b, x, w.shared[1], 0);
  if (!w.shared_router) return eng_linear(b, eng_gated(b, gate, up, act), w.shared[2], 0);
  Experts one;
  one.count = one.chosen = 1;
  const Routed routed = by_sigmoid(b, one, eng_linear(b, x, w.shared_router, 0), 0);
  const eng_id both[] = {gate, up};
  const int64_t row[] = {1, 2 * e.shared}, flat[] = {e.shared};
  const eng_id rows = eng_reshape(b, eng_concat(b, both, 2, 2), 2, row, 2);  // (B, T, 1, 2I)
  const eng_id open = emit(b, MOE_OP_GATED, {rows, routed.weights, routed.order}, {{"act", act, 0.0}});
  return eng_linear(b, eng_reshape(b, open, 2, flat, 1), w.shared[2], 0);
}

}  // namespace

eng_id mixed_experts(eng_build* b, const Experts& e, const ExpertWeights& w, int64_t act, eng_id x, eng_id* load) {
  const eng_id logits = eng_linear(b, x, w.router, 0);  // (B, T, E)
  const Routed r = e.correction.empty() ? by_softmax(b, e, logits) : by_sigmoid(b, e, logits, w.correction);
  *load = r.load;
  const eng_id read = e.latent ? eng_linear(b, x, w.latent[0], w.latent_bias[0]) : x;
  eng_id inner = emit(b, MOE_OP_LINEAR, {read, w.up, r.offsets, r.order, r.place}, {});
  if (e.squared) {
    const eng_id twice[] = {inner, inner};
    inner = eng_concat(b, twice, 2, 3), act = ENG_ACT_RELU;
  }
  const eng_id open = emit(b, MOE_OP_GATED, {inner, r.weights, r.order}, {{"act", act, 0.0}});
  const eng_id y = emit(b, MOE_OP_LINEAR, {open, w.down, r.offsets}, {});  // (B, T, k, H)
  eng_id out = emit(b, MOE_OP_COMBINE, {y, r.place, r.order}, {});         // (B, T, H)
  if (e.latent) out = eng_linear(b, out, w.latent[1], w.latent_bias[1]);
  return e.shared ? eng_add(b, out, shared(b, e, w, act, x)) : out;
}

eng_id no_load(eng_build* b, const Experts& e, eng_id h) {
  eng_desc shape{};
  if (b->api->shape(b, h, &shape, nullptr) != ENG_OK) return 0;
  const eng_desc desc = {ENG_F32, 2, {shape.dims[0], 2 * e.count + 1}};
  const std::vector<float> zeros(static_cast<size_t>(desc.dims[0] * desc.dims[1]), 0.0f);
  eng_id out = 0;
  b->api->constant(b, &desc, zeros.data(), &out, nullptr);
  return shape.dtype == ENG_F64 ? eng_cast(b, out, ENG_F64) : eng_scale(b, out, 1.0);  // a value like others
}

void add_expert_terms(eng_build* b, const Experts& e, int64_t layers, eng_id h, eng_id load) {
  eng_desc shape{};
  if (b->api->shape(b, h, &shape, nullptr) != ENG_OK) return;
  const eng_attr rows = {"rows", shape.dims[1] * layers, 0.0};
  eng_id terms[2] = {0, 0};
  b->api->emit(b, MOE_OP_BALANCE, &load, 1, terms, 2, &rows, 1, nullptr);
  b->api->term_per(b, terms[0], "router_balance", e.balance, ENG_PER_SEQUENCE, nullptr);
  b->api->term_per(b, terms[1], "router_z", e.z, ENG_PER_SEQUENCE, nullptr);
}

void read_choice(const model::Reader& in, const char* count, Experts& e) {
  e.chosen = in.size("num_experts_per_tok");
  if (e.chosen > e.count)
    model::invalid("num_experts_per_tok (" + std::to_string(e.chosen) + ") must not be above " + count + " (" +
                   std::to_string(e.count) + "); change one of them");
}

void read_terms(const model::Reader& in, Experts& e) {
  e.balance = in.flag("output_router_logits") ? in.real("router_aux_loss_coef") : 0.0;
  e.z = in.real("router_z_loss_coef");
}

}  // namespace decoder
