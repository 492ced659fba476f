// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include "ops.hpp"

namespace moe {
namespace {

// One expert's matrix after the other: element (e, i, k) of a parameter (E, I, K).
eng_id stack(eng_build* b, const std::string& name, int64_t experts, int64_t rows, int64_t columns, double std) {
  return model::param(b, name, {experts, rows, columns}, 0, model::normal(std));
}

// Emits an op with one output.
template <size_t N>
eng_id emit(eng_build* b, const char* op, const eng_id (&in)[N], const std::vector<eng_attr>& attrs) {
  return eng_emit1(b, op, in, N, attrs.data(), static_cast<uint32_t>(attrs.size()));
}

}  // namespace

void Model::declare_own(eng_build* b, const std::string& prefix, std::vector<eng_id>& params) const {
  const std::string block = prefix + e_.block, maps = block + ".experts.";
  params.push_back(model::matrix(b, block + ".gate.weight", e_.count, c_.hidden, c_.init_std));
  params.push_back(stack(b, maps + "gate_up_proj.weight", e_.count, 2 * c_.ffn, c_.hidden, c_.init_std));
  params.push_back(stack(b, maps + "down_proj.weight", e_.count, c_.hidden, c_.ffn, c_.init_out_std));
}

eng_id Model::feed_forward(eng_build* b, const Layer& l, eng_id x, eng_id* load) const {
  const eng_id router = l.own[0], gate_up = l.own[1], down = l.own[2];
  const eng_id logits = eng_linear(b, x, router, 0);  // (B, T, E)
  const eng_attr how[] = {{"k", e_.chosen, 0.0}, {"normalise", e_.normalise, 0.0}};
  enum { weights, experts, order, place, offsets, loads, outputs };
  eng_id route[outputs] = {};
  b->api->emit(b, MOE_OP_ROUTE, &logits, 1, route, outputs, how, 2, nullptr);
  *load = route[loads];  // (B, 2E + 1)
  const eng_id inner = emit(b, MOE_OP_LINEAR, {x, gate_up, route[offsets], route[order], route[place]}, {});
  const eng_id open = emit(b, MOE_OP_GATED, {inner, route[weights], route[order]}, {{"act", c_.act, 0.0}});
  const eng_id y = emit(b, MOE_OP_LINEAR, {open, down, route[offsets]}, {});  // (B, T, k, H)
  return emit(b, MOE_OP_COMBINE, {y, route[place], route[order]}, {});        // (B, T, H)
}

// Zeros (B, 2E + 1).
eng_id Model::no_load(eng_build* b, eng_id h) const {
  eng_desc shape{};
  if (b->api->shape(b, h, &shape, nullptr) != ENG_OK) return 0;
  const eng_desc desc = {ENG_F32, 2, {shape.dims[0], 2 * e_.count + 1}};
  const std::vector<float> zeros(static_cast<size_t>(desc.dims[0] * desc.dims[1]), 0.0f);
  eng_id out = 0;
  b->api->constant(b, &desc, zeros.data(), &out, nullptr);
  return shape.dtype == ENG_F64 ? eng_cast(b, out, ENG_F64) : eng_scale(b, out, 1.0);  // a value like others
}

void Model::add_terms(eng_build* b, eng_id h, eng_id load) const {
  eng_desc shape{};
  if (b->api->shape(b, h, &shape, nullptr) != ENG_OK) return;
  const eng_attr rows = {"rows", shape.dims[1] * c_.layers, 0.0};
  eng_id terms[2] = {0, 0};
  b->api->emit(b, MOE_OP_BALANCE, &load, 1, terms, 2, &rows, 1, nullptr);
  b->api->term_per(b, terms[0], "router_balance", e_.balance, ENG_PER_SEQUENCE, nullptr);
  b->api->term_per(b, terms[1], "router_z", e_.z, ENG_PER_SEQUENCE, nullptr);
}

std::vector<model::Signature> Model::templates() const {
  std::vector<model::Signature> out = decoder::Model::templates();
  for (model::Signature& s : out) s.inputs += s.inputs;  // of each block but the first
  return out;
}

std::vector<eng_id> Model::trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const {
  eng_id load = 0;
  const eng_id out = decoder::Model::trace(b, tmpl, params, in, &load);
  if (tmpl == model::embed_template) return {out, no_load(b, out)};
  if (tmpl != model::head_template) return {out, eng_add(b, in[1], load)};
  add_terms(b, in[0], in[1]);
  return {out};
}

}  // namespace moe
