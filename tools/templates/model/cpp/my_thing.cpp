// SPDX-License-Identifier: Apache-2.0
// A model as mathematics: parameters, blocks, and the ops of each distinct block. Gradients, memory, number formats,
// ranks and devices are the engine's concern. V vocabulary, H hidden size.
#include <cmath>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "engine/model.h"
#include "engine/ops.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(R"(
[plugin]
id = 'org.example.my_thing'
name = 'my_thing'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'a model'

[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'my_thing'
summary = 'causal attention without positions, and a gated feed-forward part'

[provides.options]
vocab_size = { type = 'int', default = 256, min = 1, max = 2147483647, help = 'token ids are below this' }
hidden_size = { type = 'int', default = 128, min = 2, max = 65536, help = 'features of a position' }
num_layers = { type = 'int', default = 4, min = 1, max = 1000, help = 'layers' }
num_heads = { type = 'int', default = 4, min = 1, help = 'heads of the attention; they divide hidden_size' }

[provides.presets.small]
hidden_size = 64
num_layers = 2
)")

namespace {

constexpr uint32_t embed_template = 0, layer_template = 1, head_template = 2;
enum { query, key, value, mix, gate, up, down, norm1, norm2 };  // a layer's parameters, in their order
constexpr double eps = 1e-5;

struct Model {
  int64_t vocabulary, hidden, layers, heads;
};

eng_status fail(eng_error* error, eng_status status, const std::string& text) {
  if (error) error->set(error, status, text.data(), text.size());
  return status;
}

eng_status create(const eng_options* options, void** self, eng_error* error) {
  Model made{};
  if (eng_status s = options->get_int(options, "vocab_size", &made.vocabulary, error)) return s;
  if (eng_status s = options->get_int(options, "hidden_size", &made.hidden, error)) return s;
  if (eng_status s = options->get_int(options, "num_layers", &made.layers, error)) return s;
  if (eng_status s = options->get_int(options, "num_heads", &made.heads, error)) return s;
  if (made.hidden % made.heads != 0)
    return fail(error, ENG_INVALID,
                "hidden_size = " + std::to_string(made.hidden) +
                    " is no multiple of num_heads = " + std::to_string(made.heads) + ": change one of them");
  Model* kept = new (std::nothrow) Model(made);
  if (!kept) return fail(error, ENG_NO_MEMORY, "out of memory");
  *self = kept;
  return ENG_OK;
}

void destroy(void* self) {
  delete static_cast<Model*>(self);
}

eng_status describe_model(void* self, eng_model_info* out, eng_error*) {
  const Model& m = *static_cast<const Model*>(self);
  out->vocabulary = m.vocabulary;
  out->attention_width = m.hidden;
  out->layers = m.layers;
  return ENG_OK;
}

// Their names are those in checkpoints. Errors stick to the builder, so one check at the end is enough.
eng_id matrix(eng_build* b, const std::string& name, int64_t rows, int64_t columns) {
  const eng_attr normal[] = {{"mean", 0, 0.0}, {"std", 0, 1 / std::sqrt(static_cast<double>(columns))}};
  const int64_t dims[] = {rows, columns};
  const eng_param param = {sizeof(eng_param), 0, name.c_str(), ENG_OP_INIT_NORMAL, normal, dims, 2, 2};
  eng_id id = 0;
  b->api->param(b, &param, &id, nullptr);
  return id;
}

eng_id ones(eng_build* b, const std::string& name, int64_t n) {
  const eng_attr one = {"value", 0, 1.0};
  const eng_param param = {sizeof(eng_param), ENG_PARAM_NO_DECAY, name.c_str(), ENG_OP_INIT_CONSTANT, &one, &n, 1, 1};
  eng_id id = 0;
  b->api->param(b, &param, &id, nullptr);
  return id;
}

void block(eng_build* b, const std::string& name, uint32_t tmpl, const std::vector<eng_id>& params) {
  b->api->block(b, name.c_str(), tmpl, params.data(), static_cast<uint32_t>(params.size()), nullptr);
}

// Equal layers share one template, which is traced once.
void declare_all(const Model& m, eng_build* b) {
  const int64_t h = m.hidden, wide = 4 * h;
  block(b, "embed", embed_template, {matrix(b, "embed.weight", m.vocabulary, h)});
  for (int64_t k = 0; k < m.layers; ++k) {
    const std::string name = "layers." + std::to_string(k), at = name + ".";
    std::vector<eng_id> params;
    for (const char* square : {"query", "key", "value", "mix"}) params.push_back(matrix(b, at + square, h, h));
    params.push_back(matrix(b, at + "gate", wide, h));
    params.push_back(matrix(b, at + "up", wide, h));
    params.push_back(matrix(b, at + "down", h, wide));
    for (const char* norm : {"norm1", "norm2"}) params.push_back(ones(b, at + norm, h));
    block(b, name, layer_template, params);
  }
  const eng_id head = matrix(b, "head.weight", m.vocabulary, h);
  block(b, "head", head_template, {head, ones(b, "norm", h)});
}

eng_status declare(void* self, eng_build* b, eng_error* error) {
  try {
    declare_all(*static_cast<const Model*>(self), b);
  } catch (const std::bad_alloc&) {  // no exception may leave the plugin
    return fail(error, ENG_NO_MEMORY, "out of memory");
  }
  return b->api->status(b, error);
}

// x (B, T, H) -> (B, T, H). One op per statement: their order fixes the order in which gradients are added.
eng_id layer(const Model& m, eng_build* b, const eng_id* w, eng_id x) {
  const eng_id n = eng_rms_norm(b, x, w[norm1], eps);
  const eng_id q = eng_linear(b, n, w[query], 0);
  const eng_id k = eng_linear(b, n, w[key], 0);
  const eng_id v = eng_linear(b, n, w[value], 0);
  const double scale = 1 / std::sqrt(static_cast<double>(m.hidden / m.heads));
  const eng_id mixed = eng_linear(b, eng_attention(b, q, k, v, m.heads, m.heads, scale), w[mix], 0);
  eng_id sum = 0;
  const eng_id n2 = eng_add_rms_norm(b, mixed, x, w[norm2], eps, &sum);
  const eng_id open = eng_linear(b, n2, w[gate], 0);  // (B, T, 4H)
  const eng_id above = eng_linear(b, n2, w[up], 0);
  const eng_id inner = eng_gated(b, open, above, ENG_ACT_SILU);
  return eng_add(b, eng_linear(b, inner, w[down], 0), sum);
}

eng_status trace(void* self, eng_build* b, uint32_t tmpl, const eng_id* params, uint32_t, const eng_id* in, uint32_t,
                 eng_id* out, uint32_t, uint32_t* n_out, eng_error* error) {
  const Model& m = *static_cast<const Model*>(self);
  eng_id batch = 0;
  if (tmpl == embed_template) {
    b->api->batch(b, "tokens", &batch, nullptr);  // (B, T)
    out[0] = eng_embedding(b, batch, params[0]);  // (B, T, H)
  } else if (tmpl == layer_template) {
    out[0] = layer(m, b, params, in[0]);
  } else {
    b->api->batch(b, "labels", &batch, nullptr);
    const eng_id n = eng_rms_norm(b, in[0], params[1], eps);
    out[0] = eng_cross_entropy(b, n, params[0], batch);  // (1): the sum of the tokens' losses
  }
  *n_out = 1;
  return b->api->status(b, error);
}

constexpr eng_model make_table() {
  eng_model table{};
  table.struct_size = sizeof table;
  table.create = create;
  table.destroy = destroy;
  table.describe = describe_model;
  table.declare = declare;
  table.trace = trace;
  return table;
}
constexpr eng_model table = make_table();

const char* describe() {
  return eng_description;
}

eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}

void stop() {}

const void* get_interface(const char* kind, const char* name) {
  return !std::strcmp(kind, ENG_MODEL_KIND) && !std::strcmp(name, "my_thing") ? &table : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
