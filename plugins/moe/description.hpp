// SPDX-License-Identifier: Apache-2.0
// The plugin's description. The keys have the names of Hugging Face's config.json.
#pragma once

#include "../common/decoder/gguf.hpp"
#include "../common/decoder/options.hpp"
#include "engine/model.h"
#include "engine/op.h"
#include "engine/plugin.h"

// clang-format off
// Keys: of the width of an expert, and of the number of experts, which some files call by the other key. The rest are
// defaults; `chosen`: experts of a token, `coefficient`: router_aux_loss_coef, `theta`: rope_theta.
#define MOE_OPTIONS(vocabulary, hidden, ffn_key, ffn, layers, heads, positions, count_key, other_key, count, chosen, coefficient, theta) \
  "vocab_size = { type = 'int', default = " #vocabulary ", min = 1, max = 2147483647, help = 'token ids are below this' }\n" \
  "hidden_size = { type = 'int', default = " #hidden ", min = 2, max = 1048576, help = 'width of the residual stream; a multiple of num_attention_heads' }\n" \
  ffn_key " = { type = 'int', default = " #ffn ", min = 1, max = 4194304, help = 'width of an expert' }\n" \
  "num_hidden_layers = { type = 'int', default = " #layers ", min = 1, max = 4096, help = 'number of layers' }\n" \
  "num_attention_heads = { type = 'int', default = " #heads ", min = 1, max = 65536, help = 'query heads of a layer' }\n" \
  "max_position_embeddings = { type = 'int', default = " #positions ", min = 1, max = 1073741824, help = 'longest sequence the model is trained for', adjustable = true }\n" \
  count_key " = { type = 'int', default = " #count ", min = 1, max = 65536, help = 'experts of a layer', json = ['" count_key "', '" other_key "'] }\n" \
  "num_experts_per_tok = { type = 'int', default = " #chosen ", min = 1, max = 65536, help = 'experts of a token' }\n" \
  "output_router_logits = { type = 'bool', default = false, help = 'the loss has the term router_balance, times router_aux_loss_coef; false: the term is only reported', adjustable = true, resume = 'note' }\n" \
  "router_aux_loss_coef = { type = 'float', default = " #coefficient ", min = 0.0, help = 'weight of router_balance, which grows where experts get unequal numbers of tokens; without effect unless output_router_logits = true', adjustable = true, resume = 'note' }\n" \
  "router_z_loss_coef = { type = 'float', default = 0.0, min = 0.0, help = 'weight of router_z, which keeps the logits of routers small', json = [], resume = 'note' }\n" \
  DECODER_ACTIVATION("silu", "gate") \
  DECODER_INIT("o_proj and down_proj") \
  DECODER_TIED(false) \
  DECODER_ROPE_OPTIONS_OF(theta, "'rope_theta'", DECODER_ROPE_TYPES, DECODER_ROPE_ORIGINAL)
// Layers without experts between others. `ffn`: the default of their width.
#define MOE_SPARSE(ffn) \
  "intermediate_size = { type = 'int', default = " #ffn ", min = 1, max = 4194304, help = 'width of the feed-forward layers without experts; without effect where all layers have experts' }\n" \
  "decoder_sparse_step = { type = 'int', default = 1, min = 1, max = 4096, help = 'every layer with a number that it divides, counted from 1, has experts; the others do not' }\n" \
  "mlp_only_layers = { type = 'floats', help = 'numbers of the layers without experts, counted from 0; absent: as decoder_sparse_step says' }\n"
#define MOE_NORMALISE \
  "norm_topk_prob = { type = 'bool', default = false, help = 'the weights of the experts of a token are divided by their sum' }\n"
#define MOE_MODEL(id, what) \
  "[[provides]]\n" \
  "kind = '" ENG_MODEL_DRAFT "'\n" \
  "name = '" id "'\n" \
  "summary = '" what "'\n" \
  "devices = ['cpu', 'reference']\n" \
  "[provides.options]\n"
// `block`: the part of a layer with the experts; gate, up, down: their maps in the files.
#define MOE_FILES(id, class_name, ignore, block, gate, up, down) \
  "[provides.pretrained]\n" \
  "model_type = '" id "'\n" \
  "architectures = ['" class_name "ForCausalLM', '" class_name "Model']\n" \
  "ignore = [" ignore "'rope_scaling.mscale', 'rope_parameters.mscale']\n" \
  "ignore_tensors = ['.rotary_emb.inv_freq']\n" \
  "tied = [['lm_head.weight', 'model.embed_tokens.weight']]\n" \
  "join = [\n" \
  "  { from = ['model.layers.*." block ".experts.#." gate ".weight', 'model.layers.*." block ".experts.#." up ".weight'], to = 'model.layers.*." block ".experts.gate_up_proj.weight' },\n" \
  "  { from = ['model.layers.*." block ".experts.#." down ".weight'], to = 'model.layers.*." block ".experts.down_proj.weight' },\n" \
  "]\n" \
  "[provides.pretrained.fixed]\n" \
  DECODER_FIXED DECODER_WHOLE_HEADS
// llama.cpp knows no layers without experts in these families.
#define MOE_GGUF_SPARSE "decoder_sparse_step = 1\nmlp_only_layers = [{}, []]\n"
// `architecture`: llama.cpp's name; `rope`, `notes`, `fixed`, `order`: of one family alone; `ffn`, `count`: keys of the
// width and the number of experts.
#define MOE_GGUF(architecture, rope, notes, fixed, order, context, norms, head, block, ffn, count) \
  "[provides.gguf]\n" \
  "architecture = '" architecture "'\n" \
  "rope = [" rope "]\n" \
  "f32 = ['blk.*.ffn_gate_inp']\n" \
  notes \
  "join = [{ from = ['blk.*.ffn_gate_exps.weight', 'blk.*.ffn_up_exps.weight'], to = 'model.layers.*." block ".experts.gate_up_proj.weight', axis = 1 }]\n" \
  "[provides.gguf.fixed]\n" \
  "hidden_act = ['silu', 'swish']\n" \
  fixed \
  order \
  "[provides.gguf.tensors]\n" \
  "'model.embed_tokens' = 'token_embd'\n" \
  "'model.norm' = 'output_norm'\n" \
  "'lm_head' = 'output'\n" \
  norms \
  DECODER_GGUF_ATTENTION \
  "'model.layers.*." block ".gate' = 'blk.*.ffn_gate_inp'\n" \
  "'model.layers.*." block ".experts.down_proj' = 'blk.*.ffn_down_exps'\n" \
  DECODER_GGUF_KEYS_OF(ffn, context, head, head, "expert_count = '" count "'\nexpert_used_count = 'num_experts_per_tok'\nexpert_feed_forward_length = '" ffn "'\n")

ENG_DESCRIPTION(R"([plugin]
id = 'eng.moe'
name = 'Mixtures of experts'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'Mixtral, Qwen2-MoE, Qwen3-MoE and OLMoE language models, and their ops: routers and products of the rows of experts'

[[provides]]
kind = ')" ENG_OPS_DRAFT R"('
name = 'moe'
summary = 'route, route_sigmoid, linear, gated, combine and balance, with their gradients'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'cpu'
summary = 'f32, bf16 and f16, with the tiles of the device, on all of its threads'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'reference'
summary = 'plain loops, every type'

)" MOE_MODEL("mixtral", "Mixtral: as mistral, with experts in place of the feed-forward layer")
  MOE_OPTIONS(32000, 4096, "intermediate_size", 14336, 32, 32, 131072, "num_local_experts", "num_experts", 8, 2, 0.001, 1000000.0)
  DECODER_GROUPED_HEADS("default = 8, ", "8")
  "head_dim = { type = 'int', min = 2, max = 65536, help = 'size of one head, even; absent: hidden_size / num_attention_heads' }\n"
  DECODER_RMS_NORM(1e-5)
  DECODER_WINDOW("", "; absent: all before it")
  MOE_FILES("mixtral", "Mixtral", "", "block_sparse_moe", "w1", "w3", "w2") R"(
router_jitter_noise = 0.0
[provides.pretrained.write]
attention_dropout = 0.0
router_jitter_noise = 0.0
)" MOE_GGUF("llama", "'default', 'linear', 'yarn', 'llama3'", "notes = [" DECODER_GGUF_WINDOW_NOTE "]\n", "", DECODER_GGUF_INTERLEAVED, DECODER_GGUF_WINDOW, DECODER_GGUF_NORMS, DECODER_GGUF_OWN_HEAD, "block_sparse_moe", "intermediate_size", "num_local_experts") R"(
[provides.presets]
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 176, num_hidden_layers = 4, num_attention_heads = 4, num_key_value_heads = 2, max_position_embeddings = 2048, num_local_experts = 4, output_router_logits = true, router_aux_loss_coef = 0.01 }
# 46,702,792,704 parameters
'mixtral-8x7b' = { vocab_size = 32000, hidden_size = 4096, intermediate_size = 14336, num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 8, max_position_embeddings = 32768, num_local_experts = 8, rope_theta = 1000000.0, output_router_logits = true, router_aux_loss_coef = 0.02 }
# 140,620,634,112 parameters
'mixtral-8x22b' = { vocab_size = 32000, hidden_size = 6144, intermediate_size = 16384, num_hidden_layers = 56, num_attention_heads = 48, num_key_value_heads = 8, max_position_embeddings = 65536, num_local_experts = 8, rope_theta = 1000000.0, output_router_logits = true }

)" MOE_MODEL("qwen2_moe", "Qwen2-MoE: as qwen2, with experts, and one of every token, in place of the feed-forward layer")
  MOE_OPTIONS(151936, 2048, "moe_intermediate_size", 1408, 24, 16, 32768, "num_experts", "num_local_experts", 60, 4, 0.001, 10000.0)
  DECODER_GROUPED_HEADS("default = 16, ", "16")
  "head_dim = { type = 'int', min = 2, max = 65536, help = 'size of one head, even; absent: hidden_size / num_attention_heads' }\n"
  DECODER_RMS_NORM(1e-6)
  "qkv_bias = { type = 'bool', default = true, help = 'biases on q, k and v' }\n"
  "shared_expert_intermediate_size = { type = 'int', default = 5632, min = 1, max = 4194304, help = 'width of the expert of every token' }\n"
  MOE_NORMALISE
  MOE_SPARSE(5632)
  MOE_FILES("qwen2_moe", "Qwen2Moe", "'sliding_window', 'max_window_layers', ", "mlp", "gate_proj", "up_proj", "down_proj") R"(
use_sliding_window = false
[provides.pretrained.write]
attention_dropout = 0.0
use_sliding_window = false
)" MOE_GGUF("qwen2moe", "'default', 'linear', 'yarn'", "", "norm_topk_prob = false\n" MOE_GGUF_SPARSE, "", "'max_position_embeddings'", DECODER_GGUF_NORMS "'model.layers.*.mlp.shared_expert_gate' = 'blk.*.ffn_gate_inp_shexp'\n'model.layers.*.mlp.shared_expert.gate_proj' = 'blk.*.ffn_gate_shexp'\n'model.layers.*.mlp.shared_expert.up_proj' = 'blk.*.ffn_up_shexp'\n'model.layers.*.mlp.shared_expert.down_proj' = 'blk.*.ffn_down_shexp'\n", DECODER_GGUF_OWN_HEAD, "mlp", "moe_intermediate_size", "num_experts") R"(expert_shared_feed_forward_length = 'shared_expert_intermediate_size'
[provides.presets]
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, moe_intermediate_size = 64, shared_expert_intermediate_size = 128, num_hidden_layers = 4, num_attention_heads = 4, num_key_value_heads = 2, max_position_embeddings = 2048, num_experts = 8, num_experts_per_tok = 2, output_router_logits = true, router_aux_loss_coef = 0.01 }
# 14,315,784,192 parameters
'qwen1.5-moe-a2.7b' = { vocab_size = 151936, hidden_size = 2048, intermediate_size = 5632, moe_intermediate_size = 1408, shared_expert_intermediate_size = 5632, num_hidden_layers = 24, num_attention_heads = 16, num_key_value_heads = 16, max_position_embeddings = 8192, num_experts = 60, num_experts_per_tok = 4, rope_theta = 1000000.0, output_router_logits = true }
# 57,408,658,944 parameters
'qwen2-57b-a14b' = { vocab_size = 151936, hidden_size = 3584, intermediate_size = 18944, moe_intermediate_size = 2560, shared_expert_intermediate_size = 20480, num_hidden_layers = 28, num_attention_heads = 28, num_key_value_heads = 4, max_position_embeddings = 131072, num_experts = 64, num_experts_per_tok = 8, rope_theta = 1000000.0, output_router_logits = true }

)" MOE_MODEL("qwen3_moe", "Qwen3-MoE: as qwen3, with experts in place of the feed-forward layer")
  MOE_OPTIONS(151936, 2048, "moe_intermediate_size", 768, 24, 32, 32768, "num_experts", "num_local_experts", 128, 8, 0.001, 10000.0)
  DECODER_GROUPED_HEADS("default = 4, ", "4")
  "head_dim = { type = 'int', min = 2, max = 65536, help = 'size of one head, even; absent: hidden_size / num_attention_heads' }\n"
  DECODER_RMS_NORM(1e-6)
  DECODER_BIAS(attention_bias, "q, k, v and o")
  MOE_NORMALISE
  MOE_SPARSE(6144)
  MOE_FILES("qwen3_moe", "Qwen3Moe", "'sliding_window', 'max_window_layers', ", "mlp", "gate_proj", "up_proj", "down_proj") R"(
use_sliding_window = false
[provides.pretrained.write]
attention_dropout = 0.0
use_sliding_window = false
)" MOE_GGUF("qwen3moe", "'default', 'linear', 'yarn'", "", "attention_bias = false\nnorm_topk_prob = true\n" MOE_GGUF_SPARSE, "", "'max_position_embeddings'", DECODER_GGUF_NORMS DECODER_GGUF_HEAD_NORMS, DECODER_GGUF_OWN_HEAD, "mlp", "moe_intermediate_size", "num_experts") R"(
[provides.presets]
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, moe_intermediate_size = 64, num_hidden_layers = 4, num_attention_heads = 4, num_key_value_heads = 2, max_position_embeddings = 2048, num_experts = 8, num_experts_per_tok = 2, norm_topk_prob = true, output_router_logits = true, router_aux_loss_coef = 0.01 }
# 30,532,122,624 parameters
'qwen3-30b-a3b' = { vocab_size = 151936, hidden_size = 2048, moe_intermediate_size = 768, num_hidden_layers = 48, num_attention_heads = 32, num_key_value_heads = 4, head_dim = 128, max_position_embeddings = 40960, num_experts = 128, num_experts_per_tok = 8, norm_topk_prob = true, rope_theta = 1000000.0, output_router_logits = true }
# 235,093,634,560 parameters
'qwen3-235b-a22b' = { vocab_size = 151936, hidden_size = 4096, moe_intermediate_size = 1536, num_hidden_layers = 94, num_attention_heads = 64, num_key_value_heads = 4, head_dim = 128, max_position_embeddings = 40960, num_experts = 128, num_experts_per_tok = 8, norm_topk_prob = true, rope_theta = 1000000.0, output_router_logits = true }

)" MOE_MODEL("olmoe", "OLMoE: as llama, with RMS norms of all queries and all keys, and experts in place of the feed-forward layer")
  MOE_OPTIONS(50304, 2048, "intermediate_size", 2048, 16, 16, 4096, "num_experts", "num_local_experts", 64, 8, 0.01, 10000.0)
  DECODER_GROUPED_HEADS("", "num_attention_heads")
  DECODER_RMS_NORM(1e-5)
  DECODER_BIAS(attention_bias, "q, k, v and o")
  MOE_NORMALISE
  MOE_FILES("olmoe", "Olmoe", "", "mlp", "gate_proj", "up_proj", "down_proj") R"(
[provides.pretrained.write]
attention_dropout = 0.0
)" MOE_GGUF("olmoe", "'default', 'linear', 'yarn'", "", "attention_bias = false\nnorm_topk_prob = false\ntie_word_embeddings = false\n", "[provides.gguf.require]\n'attention.head_count_kv' = 'num_attention_heads'\n", "'max_position_embeddings'", DECODER_GGUF_NORMS DECODER_GGUF_HEAD_NORMS, DECODER_GGUF_SHARE, "mlp", "intermediate_size", "num_experts") R"(
[provides.presets]
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 64, num_hidden_layers = 4, num_attention_heads = 4, max_position_embeddings = 2048, num_experts = 8, num_experts_per_tok = 2, output_router_logits = true }
# 6,919,161,856 parameters
'olmoe-1b-7b' = { vocab_size = 50304, hidden_size = 2048, intermediate_size = 1024, num_hidden_layers = 16, num_attention_heads = 16, max_position_embeddings = 4096, num_experts = 64, num_experts_per_tok = 8, output_router_logits = true }
)")
// clang-format on
