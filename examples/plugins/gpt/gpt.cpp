// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al. 2019), with the weights of Hugging Face's GPT2LMHeadModel. Their files keep the matrices of a
// layer as (in, out), and q, k and v as one. The description declares both, so the model here has (out, in) and three.
// B samples, T positions, V vocabulary, H width, I inner width.
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
id = 'org.example.gpt'
name = 'GPT'
version = '1.0.0'
license = 'Apache-2.0'
summary = 'GPT-2 language models'

[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'gpt'
summary = 'decoder with learned positions, layer norms, biases and a plain feed-forward part'

[provides.options]
vocab_size = { type = 'int', default = 50257, min = 1, max = 2147483647, help = 'token ids are below this' }
n_positions = { type = 'int', default = 1024, min = 1, max = 1073741824, help = 'longest sequence: rows of the table of positions' }
n_embd = { type = 'int', default = 768, min = 1, max = 1048576, help = 'features of a position; a multiple of n_head' }
n_layer = { type = 'int', default = 12, min = 1, max = 4096, help = 'layers' }
n_head = { type = 'int', default = 12, min = 1, max = 65536, help = 'heads of a layer' }
n_inner = { type = 'int', min = 1, max = 4194304, help = 'width of the feed-forward part; absent: 4 n_embd' }
activation_function = { type = 'string', default = 'gelu_new', choices = ['gelu_new', 'gelu_pytorch_tanh', 'gelu', 'relu', 'silu', 'swish'], help = 'gelu_new is the tanh form, gelu the exact one, swish is silu' }
layer_norm_epsilon = { type = 'float', default = 1e-5, above = 0, help = 'added to the variance' }
initializer_range = { type = 'float', default = 0.02, min = 0, help = 'standard deviation of new matrices; of those that write to the residual stream, divided by sqrt(2 n_layer)', adjustable = true }
tie_word_embeddings = { type = 'bool', default = true, help = 'the head uses the embedding matrix' }
embd_pdrop = { type = 'float', default = 0.1, min = 0, max = 0.999, help = 'share of elements dropped behind the embeddings, in training', adjustable = true, resume = 'note' }
resid_pdrop = { type = 'float', default = 0.1, min = 0, max = 0.999, help = 'share of elements dropped before each sum, in training', adjustable = true, resume = 'note' }
attn_pdrop = { type = 'float', default = 0.0, min = 0, max = 1, help = 'must be 0: dropout of attention weights is not supported', adjustable = true }

[provides.pretrained]
model_type = 'gpt2'
architectures = ['GPT2LMHeadModel', 'GPT2Model']
ignore = ['n_ctx', 'reorder_and_upcast_attn']
tied = [['lm_head.weight', 'transformer.wte.weight']]
transpose = [
  'transformer.h.*.attn.c_attn.weight', 'transformer.h.*.attn.c_proj.weight',
  'transformer.h.*.mlp.c_fc.weight', 'transformer.h.*.mlp.c_proj.weight',
]
split = [
  { from = 'transformer.h.*.attn.c_attn.weight', to = ['transformer.h.*.attn.q.weight', 'transformer.h.*.attn.k.weight', 'transformer.h.*.attn.v.weight'], axis = 1 },
  { from = 'transformer.h.*.attn.c_attn.bias', to = ['transformer.h.*.attn.q.bias', 'transformer.h.*.attn.k.bias', 'transformer.h.*.attn.v.bias'], axis = 0 },
]

[provides.pretrained.fixed]
add_cross_attention = false
scale_attn_weights = true
scale_attn_by_inverse_layer_idx = false

[provides.gguf]
architecture = 'gpt2'
f32 = ['position_embd.weight']
split = [
  { from = 'blk.*.attn_qkv.weight', to = ['transformer.h.*.attn.q.weight', 'transformer.h.*.attn.k.weight', 'transformer.h.*.attn.v.weight'] },
  { from = 'blk.*.attn_qkv.bias', to = ['transformer.h.*.attn.q.bias', 'transformer.h.*.attn.k.bias', 'transformer.h.*.attn.v.bias'] },
]

[provides.gguf.fixed]
activation_function = ['gelu_new', 'gelu_pytorch_tanh']

[provides.gguf.tensors]
'transformer.wte' = 'token_embd'
'transformer.wpe' = 'position_embd'
'transformer.ln_f' = 'output_norm'
'lm_head' = 'output'
'transformer.h.*.ln_1' = 'blk.*.attn_norm'
'transformer.h.*.attn.c_proj' = 'blk.*.attn_output'
'transformer.h.*.ln_2' = 'blk.*.ffn_norm'
'transformer.h.*.mlp.c_fc' = 'blk.*.ffn_up'
'transformer.h.*.mlp.c_proj' = 'blk.*.ffn_down'

[provides.gguf.keys]
block_count = 'n_layer'
context_length = 'n_positions'
embedding_length = 'n_embd'
feed_forward_length = ['n_inner', { product = ['n_embd', 4] }]
'attention.head_count' = 'n_head'
'attention.layer_norm_epsilon' = 'layer_norm_epsilon'

# 124,439,808 parameters
[provides.presets.small]
n_embd = 768

# 858,880 parameters over bytes, for a first run
[provides.presets.tiny]
vocab_size = 256
n_positions = 256
n_embd = 128
n_layer = 4
n_head = 4
)")

namespace {

constexpr uint32_t embed_template = 0, layer_template = 1, head_template = 2;
enum {
  query,
  key,
  value,
  mix,
  up,
  down,
  query_bias,
  key_bias,
  value_bias,
  mix_bias,
  up_bias,
  down_bias,
  norm1,
  norm1_bias,
  norm2,
  norm2_bias
};  // a layer's parameters, in their order

struct Model {
  int64_t vocabulary, positions, hidden, layers, heads, inner, act;
  double eps, std, embed_drop, drop;
  bool tied;
};

eng_status fail(eng_error* error, eng_status status, const std::string& text) {
  if (error) error->set(error, status, text.data(), text.size());
  return status;
}

int64_t activation(const char* name) {
  if (!std::strcmp(name, "relu")) return ENG_ACT_RELU;
  if (!std::strcmp(name, "silu") || !std::strcmp(name, "swish")) return ENG_ACT_SILU;
  return std::strcmp(name, "gelu") ? ENG_ACT_GELU_TANH : ENG_ACT_GELU;
}

eng_status create(const eng_options* options, void** self, eng_error* error) {
  Model m{};
  const struct {
    const char* name;
    int64_t* to;
  } sizes[] = {{"vocab_size", &m.vocabulary},
               {"n_positions", &m.positions},
               {"n_embd", &m.hidden},
               {"n_layer", &m.layers},
               {"n_head", &m.heads}};
  for (const auto& size : sizes)
    if (eng_status s = options->get_int(options, size.name, size.to, error)) return s;
  m.inner = 4 * m.hidden;
  if (options->is_set(options, "n_inner"))
    if (eng_status s = options->get_int(options, "n_inner", &m.inner, error)) return s;
  double attention_drop = 0;
  const struct {
    const char* name;
    double* to;
  } numbers[] = {{"layer_norm_epsilon", &m.eps},
                 {"initializer_range", &m.std},
                 {"embd_pdrop", &m.embed_drop},
                 {"resid_pdrop", &m.drop},
                 {"attn_pdrop", &attention_drop}};
  for (const auto& number : numbers)
    if (eng_status s = options->get_float(options, number.name, number.to, error)) return s;
  const char* act = nullptr;
  if (eng_status s = options->get_string(options, "activation_function", &act, error)) return s;
  m.act = activation(act);
  int32_t tied = 0;
  if (eng_status s = options->get_bool(options, "tie_word_embeddings", &tied, error)) return s;
  m.tied = tied != 0;
  if (m.hidden % m.heads != 0)
    return fail(error, ENG_INVALID,
                "n_embd = " + std::to_string(m.hidden) + " is no multiple of n_head = " + std::to_string(m.heads) +
                    ": change one of them");
  if (attention_drop != 0)
    return fail(error, ENG_INVALID, "dropout of attention weights is not supported: set attn_pdrop = 0 in [model]");
  Model* kept = new (std::nothrow) Model(m);
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
  out->max_length = m.positions;
  return ENG_OK;
}

// Errors stick to the builder, so one check at the end is enough.
eng_id matrix(eng_build* b, const std::string& name, int64_t rows, int64_t columns, double std) {
  const eng_attr normal[] = {{"mean", 0, 0.0}, {"std", 0, std}};
  const int64_t dims[] = {rows, columns};
  const eng_param param = {sizeof(eng_param), 0, name.c_str(), ENG_OP_INIT_NORMAL, normal, dims, 2, 2};
  eng_id id = 0;
  b->api->param(b, &param, &id, nullptr);
  return id;
}

eng_id vector(eng_build* b, const std::string& name, int64_t n, double start) {
  const eng_attr attr = {"value", 0, start};
  const eng_param param = {sizeof(eng_param), ENG_PARAM_NO_DECAY, name.c_str(), ENG_OP_INIT_CONSTANT, &attr, &n, 1, 1};
  eng_id id = 0;
  b->api->param(b, &param, &id, nullptr);
  return id;
}

void norm(eng_build* b, const std::string& name, int64_t n, std::vector<eng_id>& params) {
  params.push_back(vector(b, name + ".weight", n, 1.0));
  params.push_back(vector(b, name + ".bias", n, 0.0));
}

void block(eng_build* b, const std::string& name, uint32_t tmpl, const std::vector<eng_id>& params) {
  b->api->block(b, name.c_str(), tmpl, params.data(), static_cast<uint32_t>(params.size()), nullptr);
}

void declare_all(const Model& m, eng_build* b) {
  const int64_t h = m.hidden;
  const double out_std = m.std / std::sqrt(2.0 * static_cast<double>(m.layers));
  const eng_id words = matrix(b, "transformer.wte.weight", m.vocabulary, h, m.std);
  block(b, "embed", embed_template, {words, matrix(b, "transformer.wpe.weight", m.positions, h, m.std)});
  const struct {
    const char* name;
    int64_t rows, columns;
    double std;
  } maps[] = {{"attn.q", h, h, m.std},        {"attn.k", h, h, m.std},         {"attn.v", h, h, m.std},
              {"attn.c_proj", h, h, out_std}, {"mlp.c_fc", m.inner, h, m.std}, {"mlp.c_proj", h, m.inner, out_std}};
  for (int64_t k = 0; k < m.layers; ++k) {
    const std::string name = "h." + std::to_string(k), at = "transformer." + name + ".";
    std::vector<eng_id> params;
    for (const auto& map : maps) params.push_back(matrix(b, at + map.name + ".weight", map.rows, map.columns, map.std));
    for (const auto& map : maps) params.push_back(vector(b, at + map.name + ".bias", map.rows, 0.0));
    norm(b, at + "ln_1", h, params);
    norm(b, at + "ln_2", h, params);
    block(b, name, layer_template, params);
  }
  std::vector<eng_id> params = {m.tied ? words : matrix(b, "lm_head.weight", m.vocabulary, h, m.std)};
  norm(b, "transformer.ln_f", h, params);
  block(b, "head", head_template, params);
}

eng_status declare(void* self, eng_build* b, eng_error* error) {
  try {
    declare_all(*static_cast<const Model*>(self), b);
  } catch (const std::bad_alloc&) {  // no exception may leave the plugin
    return fail(error, ENG_NO_MEMORY, "out of memory");
  }
  return b->api->status(b, error);
}

eng_id embed(const Model& m, eng_build* b, const eng_id* w) {
  eng_id tokens = 0;
  b->api->batch(b, "tokens", &tokens, nullptr);          // (B, T)
  const eng_id words = eng_embedding(b, tokens, w[0]);   // (B, T, H)
  const eng_id positions = eng_offered(b, "positions");  // (B, T), where a sample has several documents
  return eng_dropout(b, eng_positions_at(b, words, w[1], positions, 0), m.embed_drop);
}

// x (B, T, H) -> (B, T, H). One op per statement: their order fixes the order in which gradients are added.
eng_id layer(const Model& m, eng_build* b, const eng_id* w, eng_id x) {
  const eng_id n1 = eng_layer_norm(b, x, w[norm1], w[norm1_bias], m.eps);
  const eng_id q = eng_linear(b, n1, w[query], w[query_bias]);
  const eng_id k = eng_linear(b, n1, w[key], w[key_bias]);
  const eng_id v = eng_linear(b, n1, w[value], w[value_bias]);
  const eng_id segments = eng_offered(b, "segments");  // (B, T)
  const double scale = 1 / std::sqrt(static_cast<double>(m.hidden / m.heads));
  const eng_id mixed = eng_attention_in(b, q, k, v, segments, m.heads, m.heads, scale);
  const eng_id attended = eng_dropout(b, eng_linear(b, mixed, w[mix], w[mix_bias]), m.drop);
  eng_id sum = 0;
  const eng_id n2 = eng_add_layer_norm(b, attended, x, w[norm2], w[norm2_bias], m.eps, &sum);
  const eng_id inner = eng_activation(b, eng_linear(b, n2, w[up], w[up_bias]), m.act);  // (B, T, I)
  const eng_id y = eng_dropout(b, eng_linear(b, inner, w[down], w[down_bias]), m.drop);
  return eng_add(b, y, sum);
}

eng_id head(const Model& m, eng_build* b, const eng_id* w, eng_id x) {
  eng_id labels = 0;
  b->api->batch(b, "labels", &labels, nullptr);  // (B, T)
  const eng_id n = eng_layer_norm(b, x, w[1], w[2], m.eps);
  const eng_id weights = eng_offered(b, "loss_weights");       // (B, T)
  return eng_language_loss(b, n, w[0], labels, weights, 0.0);  // (1): the sum of the tokens' losses
}

eng_status trace(void* self, eng_build* b, uint32_t tmpl, const eng_id* params, uint32_t, const eng_id* in, uint32_t,
                 eng_id* out, uint32_t, uint32_t* n_out, eng_error* error) {
  const Model& m = *static_cast<const Model*>(self);
  out[0] = tmpl == embed_template   ? embed(m, b, params)
           : tmpl == layer_template ? layer(m, b, params, in[0])
                                    : head(m, b, params, in[0]);
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
  return !std::strcmp(kind, ENG_MODEL_KIND) && !std::strcmp(name, "gpt") ? &table : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
