// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/plugin_test/sample.hpp"

#include "engine/ops.h"

namespace eng::plugin_test {
namespace {

struct Sizes {
  int64_t vocabulary = 0, hidden = 0, inner = 0, layers = 0;
};

eng_status create_model(const eng_options* options, void** self, eng_error* error) {
  auto made = std::make_unique<Sizes>();
  for (const auto& [key, to] : {std::pair("vocabulary", &made->vocabulary),
                                {"hidden", &made->hidden},
                                {"inner", &made->inner},
                                {"layers", &made->layers}})
    if (const eng_status s = options->get_int(options, key, to, error); s != ENG_OK) return s;
  *self = made.release();
  return ENG_OK;
}

void destroy_model(void* self) {
  delete static_cast<Sizes*>(self);
}

eng_status describe_sample(void* self, eng_model_info* out, eng_error*) {
  const Sizes& m = *static_cast<const Sizes*>(self);
  out->vocabulary = m.vocabulary, out->layers = m.layers;
  return ENG_OK;
}

eng_id matrix(eng_build* b, const std::string& name, int64_t rows, int64_t columns) {
  const eng_attr init[] = {{"mean", 0, 0}, {"std", 0, 0.25}};
  const int64_t dims[] = {rows, columns};
  const eng_param p = {sizeof(eng_param), 0, name.c_str(), ENG_OP_INIT_NORMAL, init, dims, 2, 2};
  eng_id out = 0;
  b->api->param(b, &p, &out, nullptr);
  return out;
}

eng_id scale(eng_build* b, const std::string& name, int64_t n) {
  const eng_attr init[] = {{"value", 0, 1}};
  const eng_param p = {sizeof(eng_param), ENG_PARAM_NO_DECAY, name.c_str(), ENG_OP_INIT_CONSTANT, init, &n, 1, 1};
  eng_id out = 0;
  b->api->param(b, &p, &out, nullptr);
  return out;
}

eng_status declare_sample(void* self, eng_build* b, eng_error* error) {
  const Sizes& m = *static_cast<const Sizes*>(self);
  const eng_id table = matrix(b, "embedding.weight", m.vocabulary, m.hidden);
  b->api->block(b, "embedding", 0, &table, 1, nullptr);
  for (int64_t k = 0; k < m.layers; ++k) {
    const std::string at = "layers." + std::to_string(k);
    const eng_id ids[] = {scale(b, at + ".norm", m.hidden), matrix(b, at + ".gate", m.inner, m.hidden),
                          matrix(b, at + ".up", m.inner, m.hidden), matrix(b, at + ".down", m.hidden, m.inner)};
    b->api->block(b, at.c_str(), 1, ids, 4, nullptr);
  }
  const eng_id head[] = {scale(b, "norm", m.hidden), matrix(b, "head.weight", m.vocabulary, m.hidden)};
  b->api->block(b, "head", 2, head, 2, nullptr);
  return b->api->status(b, error);
}

eng_status trace_sample(void*, eng_build* b, uint32_t tmpl, const eng_id* params, uint32_t, const eng_id* in, uint32_t,
                        eng_id* out, uint32_t, uint32_t* n_out, eng_error* error) {
  eng_id batch = 0;
  *n_out = 1;
  if (tmpl == 0) {
    b->api->batch(b, "tokens", &batch, nullptr);
    out[0] = eng_embedding(b, batch, params[0]);
  } else if (tmpl == 1) {
    const eng_id x = eng_rms_norm(b, in[0], params[0], 1e-5);
    const eng_id y = eng_gated(b, eng_linear(b, x, params[1], 0), eng_linear(b, x, params[2], 0), ENG_ACT_SILU);
    out[0] = eng_add(b, in[0], eng_linear(b, y, params[3], 0));
  } else {
    b->api->batch(b, "labels", &batch, nullptr);
    out[0] = eng_head_loss(b, eng_rms_norm(b, in[0], params[0], 1e-5), params[1]);
  }
  return b->api->status(b, error);
}

const char object = 0;

eng_status create_policy(const eng_options*, eng_build* b, void** self, eng_error* error) {
  *self = const_cast<char*>(&object);
  return b->api->status(b, error);
}

void destroy_policy(void*) {}

eng_status place(void*, const eng_unit*, int32_t, eng_view*, eng_error*) {
  return ENG_OK;
}

eng_status place_f64(void*, const eng_unit*, int32_t, eng_view* io, eng_error*) {
  io->dtype = ENG_F64;
  return ENG_OK;
}

eng_status move_precision(void*, eng_build*, const eng_move*, eng_error* error) {
  return report(error, ENG_UNSUPPORTED, "nothing to convert");
}

// All gradients of all ranks, then their sum by the tree of eng.fold/1.
eng_status move_zero(void*, eng_build* b, const eng_move* m, eng_error* error) {
  eng_id all = 0, dst = m->dst;
  eng_desc one{}, gathered{};
  const eng_attr group = {"group", 1, 0};
  b->api->emit(b, ENG_OP_ALL_GATHER, &m->src, 1, &all, 1, &group, 1, nullptr);
  b->api->shape(b, m->src, &one, nullptr);
  b->api->shape(b, all, &gathered, nullptr);
  if (const eng_status s = b->api->status(b, error); s != ENG_OK) return s;
  const eng_attr attrs[] = {{"rows", gathered.dims[0] / one.dims[0], 0}, {"dtype", m->to->dtype, 0}};
  return b->api->emit(b, ENG_OP_FOLD, &all, 1, &dst, 1, attrs, 2, error);
}

constexpr eng_axis plain(eng_status (*move)(void*, eng_build*, const eng_move*, eng_error*),
                         decltype(eng_axis::place) where = place) {
  return {sizeof(eng_axis), 0, create_policy, destroy_policy, where, move, nullptr, nullptr, 0, 0, nullptr, nullptr};
}

}  // namespace

const eng_model sample_model = {sizeof(eng_model), 0,           create_model, destroy_model, describe_sample,
                                declare_sample,    trace_sample};
const eng_axis plain_precision = plain(move_precision);
const eng_axis f64_precision = plain(move_precision, place_f64);
const eng_axis plain_zero = plain(move_zero);

Section sample_options(Random& random) {
  const auto setting = [&](int64_t low, int64_t high) { return Setting{pick(random, low, high), "default", false}; };
  return Section("model", {{"vocabulary", setting(40, 160)},
                           {"hidden", setting(12, 72)},
                           {"inner", setting(20, 120)},
                           {"layers", setting(1, 3)}});
}

}  // namespace eng::plugin_test
