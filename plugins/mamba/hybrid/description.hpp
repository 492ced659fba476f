// SPDX-License-Identifier: Apache-2.0
// Falcon-Mamba and the hybrids, as parts of the plugin's description. The keys have the names of Hugging Face's
// config.json.
#pragma once

#include "../../common/decoder/gguf.hpp"
#include "../../common/decoder/options.hpp"
#include "../gguf.hpp"
#include "engine/model.h"

// clang-format off
#define HYBRID_MODEL(id, what) \
  "[[provides]]\n" \
  "kind = '" ENG_MODEL_DRAFT "'\n" \
  "name = '" id "'\n" \
  "summary = '" what "'\n" \
  "[provides.options]\n"
#define HYBRID_FILES(id, class_name, ignore) \
  "[provides.pretrained]\n" \
  "model_type = '" id "'\n" \
  "architectures = ['" class_name "ForCausalLM', '" class_name "Model']\n" \
  "ignore = [" ignore "]\n" \
  "ignore_tensors = ['.rotary_emb.inv_freq']\n"
// [provides.gguf] of hybrids. `heads`, `groups`: options of the mixers; `fixed`, `before`: of one family alone.
#define HYBRID_GGUF(architecture, before, heads, groups, fixed) \
  "[provides.gguf]\n" \
  "architecture = '" architecture "'\n" \
  "negative_exp = ['blk.*.ssm_a']\n" \
  "squeeze = ['blk.*.ssm_conv1d.weight']\n" \
  "f32 = ['blk.*.ssm_conv1d.weight', 'blk.*.ssm_norm.weight', 'blk.*.ffn_gate_inp.weight']\n" \
  before \
  "[provides.gguf.rows]\n" \
  "'blk.*.ssm_a' = '" heads "'\n" \
  "'blk.*.ssm_d' = '" heads "'\n" \
  "'blk.*.ssm_norm' = '" groups "'\n" \
  "[provides.gguf.fixed]\n" \
  fixed
// `layer`: what the names of tensors of a layer begin with; `mixer`: below it.
#define HYBRID_GGUF_MIXER(layer, mixer) \
  "'" layer "." mixer ".in_proj' = 'blk.*.ssm_in'\n" \
  "'" layer "." mixer ".conv1d' = 'blk.*.ssm_conv1d'\n" \
  "'" layer "." mixer ".dt_bias' = 'blk.*.ssm_dt.bias'\n" \
  "'" layer "." mixer ".A_log' = 'blk.*.ssm_a'\n" \
  "'" layer "." mixer ".D' = 'blk.*.ssm_d'\n" \
  "'" layer "." mixer ".norm' = 'blk.*.ssm_norm'\n" \
  "'" layer "." mixer ".out_proj' = 'blk.*.ssm_out'\n"
#define HYBRID_GGUF_SCAN(heads, groups, states, taps, inner) \
  "'ssm.conv_kernel' = '" taps "'\n" \
  "'ssm.inner_size' = " inner "\n" \
  "'ssm.state_size' = '" states "'\n" \
  "'ssm.time_step_rank' = '" heads "'\n" \
  "'ssm.group_count' = '" groups "'\n"
// The names of bamba, falcon_h1 and jamba but for the mixers and experts. `ffn_norm`: the name of the second norm.
#define HYBRID_GGUF_FEEDS(ffn_norm) \
  "'model.embed_tokens' = 'token_embd'\n" \
  "'model.final_layernorm' = 'output_norm'\n" \
  "'lm_head' = 'output'\n" \
  "'model.layers.*.input_layernorm' = 'blk.*.attn_norm'\n" \
  "'model.layers.*.pre_ff_layernorm.weight' = 'blk.*." ffn_norm "'\n" \
  DECODER_GGUF_ATTENTION \
  "'model.layers.*.feed_forward.gate_proj' = 'blk.*.ffn_gate'\n" \
  "'model.layers.*.feed_forward.up_proj' = 'blk.*.ffn_up'\n" \
  "'model.layers.*.feed_forward.down_proj' = 'blk.*.ffn_down'\n"
// The rows of experts, a gate and what it lets through, as two tensors; `rows`: the tensor of the model.
#define HYBRID_GGUF_EXPERTS(rows) \
  "join = [{ from = ['blk.*.ffn_gate_exps.weight', 'blk.*.ffn_up_exps.weight'], to = 'model.layers.*." rows ".weight', axis = 1, optional = true }]\n"
#define HYBRID_GGUF_NO_LIMIT "time_step_limit = [{}, [0.0, 1.7976931348623157e308]]\n"
#define HYBRID_STEPS \
  "time_step_limit = { type = 'floats', help = 'shortest and longest time step at any time; absent: no limits. A longest one of 1.7976931348623157e308 is none' }\n"
#define HYBRID_CHUNK(key, usual) \
  key " = { type = 'int', default = " #usual ", min = 1, max = 65536, help = 'has no effect; kept because config.json files have it. The kernels have chunks of their own', adjustable = true }\n"
// The options of read_mixer (options.hpp).
#define HYBRID_MIXER \
  "mamba_n_heads = { type = 'int', default = 128, min = 1, max = 65536, help = 'heads of a mixer' }\n" \
  "mamba_d_head = { type = 'int', min = 1, max = 65536, help = 'channels of a head; absent (auto): the channels of the mixer / mamba_n_heads', json_none = 'auto' }\n" \
  "mamba_n_groups = { type = 'int', default = 1, min = 1, max = 65536, help = 'groups of heads; those of a group share B and C. A divisor of mamba_n_heads' }\n" \
  "mamba_d_state = { type = 'int', default = 256, min = 1, max = 4096, help = 'states per channel' }\n" \
  "mamba_d_conv = { type = 'int', default = 4, min = 2, max = 4, help = 'taps of the causal convolution' }\n" \
  "mamba_expand = { type = 'int', default = 2, min = 1, max = 1024, help = 'the number of channels of a mixer is mamba_expand x hidden_size' }\n" \
  "mamba_conv_bias = { type = 'bool', default = true, help = 'bias on the convolution' }\n" \
  "mamba_proj_bias = { type = 'bool', default = false, help = 'biases on in_proj and out_proj of the mixers' }\n" \
  HYBRID_CHUNK("mamba_chunk_size", 256) \
  HYBRID_STEPS
// The weights of the terms of the loss that routers have.
#define HYBRID_TERMS \
  "output_router_logits = { type = 'bool', default = false, help = 'the loss has the term router_balance, times router_aux_loss_coef; false: the term is only reported', adjustable = true, resume = 'note' }\n" \
  "router_aux_loss_coef = { type = 'float', default = 0.001, min = 0.0, help = 'weight of router_balance; without effect unless output_router_logits = true', adjustable = true, resume = 'note' }\n" \
  "router_z_loss_coef = { type = 'float', default = 0.0, min = 0.0, help = 'weight of router_z, which keeps the logits of routers small', json = [], resume = 'note' }\n"
#define HYBRID_ACTIVATION \
  "hidden_act = { type = 'string', default = 'silu', choices = ['silu', 'swish'], help = 'activation of the convolution and of the gates; the two are the same' }\n"
#define HYBRID_TIED(words) \
  "tied = [['lm_head.weight', '" words ".weight']]\n"

#define HYBRID_FALCON_MAMBA \
  HYBRID_MODEL("falcon_mamba", "Falcon-Mamba: as mamba, with norms of the time step, B and C") \
  "vocab_size = { type = 'int', default = 50280, min = 1, max = 2147483647, help = 'token ids are below this' }\n" \
  "hidden_size = { type = 'int', default = 768, min = 1, max = 1048576, help = 'width of the residual stream' }\n" \
  "num_hidden_layers = { type = 'int', default = 32, min = 1, max = 4096, help = 'number of layers' }\n" \
  "state_size = { type = 'int', default = 16, min = 1, max = 256, help = 'states per channel' }\n" \
  "conv_kernel = { type = 'int', default = 4, min = 2, max = 4, help = 'taps of the causal convolution' }\n" \
  "expand = { type = 'int', default = 2, min = 1, max = 1024, help = 'the number of channels is expand x hidden_size' }\n" \
  "intermediate_size = { type = 'int', min = 1, max = 4194304, help = 'number of channels; overrides expand. absent: expand x hidden_size' }\n" \
  "time_step_rank = { type = 'int', min = 1, max = 1048576, help = 'rank of the time step; absent (auto): hidden_size / 16, rounded up', json_none = 'auto' }\n" \
  "mixer_rms_eps = { type = 'float', default = 1e-6, min = 0.0, max = 1.0, help = 'added to the mean square before the root, in the norms of the time step, B and C' }\n" \
  "time_step_scale = { type = 'float', default = 1.0, min = 0.0, help = 'elements of new dt_proj matrices lie within +-time_step_scale / sqrt(time_step_rank)', adjustable = true }\n" \
  "time_step_min = { type = 'float', default = 0.001, min = 0.0, help = 'shortest initial time step', adjustable = true }\n" \
  "time_step_max = { type = 'float', default = 0.1, min = 0.0, help = 'longest initial time step', adjustable = true }\n" \
  "time_step_floor = { type = 'float', default = 1e-4, min = 0.0, help = 'lower limit of initial time steps', adjustable = true }\n" \
  "time_step_init_scheme = { type = 'string', default = 'random', choices = ['random', 'constant'], help = 'how new dt_proj matrices are filled', adjustable = true }\n" \
  "use_bias = { type = 'bool', default = false, help = 'biases on in_proj and out_proj' }\n" \
  "use_conv_bias = { type = 'bool', default = true, help = 'bias on the convolution' }\n" \
  "hidden_act = { type = 'string', default = 'silu', choices = ['silu', 'swish'], help = 'activation of the convolution and of the gate; the two are the same' }\n" \
  "layer_norm_epsilon = { type = 'float', default = 1e-5, min = 0.0, max = 1.0, help = 'added to the mean square before the root' }\n" \
  "residual_in_fp32 = { type = 'bool', default = true, help = 'the residual stream is f32 where compute has 16 bits; false: it has 16 bits, too', adjustable = true }\n" \
  DECODER_TIED(true) \
  "init = { type = 'string', default = 'mamba_ssm', choices = ['mamba_ssm', 'huggingface'], help = 'rules of initialisation: those of mamba_ssm, or those of transformers; new models differ between the two', json = [] }\n" \
  "initializer_range = { type = 'float', min = 0.0, max = 1.0, help = 'standard deviation of new embeddings (init huggingface: also of in_proj and x_proj); absent: 0.02, or 0.1 with init huggingface', adjustable = true }\n" \
  "rescale_prenorm_residual = { type = 'bool', help = 'new out_proj matrices are divided by sqrt(num_hidden_layers); absent: true, or false with init huggingface', adjustable = true }\n" \
  MAMBA_GGUF_NORMED \
  HYBRID_FILES("falcon_mamba", "FalconMamba", "'use_mambapy', 'use_falcon_mambapy', 'use_associative_scan'") \
  HYBRID_TIED("backbone.embeddings") \
  "[provides.pretrained.write]\n" \
  "intermediate_size = { product = ['expand', 'hidden_size'] }\n" \
  "[provides.presets]\n" \
  "'tiny' = { vocab_size = 256, hidden_size = 128, num_hidden_layers = 8 }\n" \
  "'falcon-mamba-7b' = { vocab_size = 65024, hidden_size = 4096, num_hidden_layers = 64, intermediate_size = 8192, time_step_rank = 256, tie_word_embeddings = false }\n"

#define HYBRID_BAMBA \
  HYBRID_MODEL("bamba", "Bamba: mixers of Mamba-2, in some layers attention in their place, gated feed-forward layers") \
  DECODER_SIZE_OPTIONS(128000, 4096, 14336, 32, 32, 262144) \
  DECODER_GROUPED_HEADS("default = 8, ", "8") \
  "attn_layer_indices = { type = 'floats', help = 'numbers of the layers that have attention in place of the mixer, counted from 0; absent: none' }\n" \
  "attn_rotary_emb = { type = 'int', min = 2, max = 65536, help = 'channels of a head that are turned: half of them, and no other number' }\n" \
  HYBRID_MIXER \
  HYBRID_ACTIVATION \
  DECODER_RMS_NORM(1e-5) \
  DECODER_INIT("o_proj, out_proj and down_proj") \
  DECODER_TIED(false) \
  DECODER_BIAS(attention_bias, "q, k, v and o") \
  DECODER_BIAS(mlp_bias, "gate, up and down") \
  DECODER_ROPE_OPTIONS \
  HYBRID_GGUF("granitehybrid", "rope = ['default']\n", "mamba_n_heads", "mamba_n_groups", \
    "attention_bias = false\nmlp_bias = false\nmamba_proj_bias = false\nmamba_conv_bias = true\n" HYBRID_GGUF_NO_LIMIT) \
  DECODER_GGUF_INTERLEAVED \
  "[provides.gguf.by_layer]\n" \
  "'attention.head_count_kv' = { of = ['attn_layer_indices'], is = 'num_key_value_heads', others = 0 }\n" \
  "[provides.gguf.tensors]\n" \
  HYBRID_GGUF_FEEDS("ffn_norm.weight") HYBRID_GGUF_MIXER("model.layers.*", "mamba") \
  "[provides.gguf.keys]\n" \
  "block_count = 'num_hidden_layers'\n" \
  "context_length = 'max_position_embeddings'\n" \
  "embedding_length = 'hidden_size'\n" \
  "feed_forward_length = 'intermediate_size'\n" \
  "'attention.head_count' = 'num_attention_heads'\n" \
  "'attention.layer_norm_rms_epsilon' = 'rms_norm_eps'\n" \
  "'rope.dimension_count' = { quotient = ['hidden_size', { product = ['num_attention_heads', 2] }] }\n" \
  "'rope.scaling.finetuned' = true\n" \
  HYBRID_GGUF_SCAN("mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_conv", "{ product = ['mamba_expand', 'hidden_size'] }") \
  HYBRID_FILES("bamba", "Bamba", "'num_logits_to_keep', 'use_mamba_kernels', 'rope_scaling.mscale', 'rope_parameters.mscale'") \
  HYBRID_TIED("model.embed_tokens") \
  "[provides.pretrained.fixed]\n" \
  DECODER_FIXED \
  "partial_rotary_factor = 0.5\n" \
  "'rope_parameters.partial_rotary_factor' = 0.5\n" \
  "z_loss_coefficient = 0.0\n" \
  "[provides.pretrained.write]\n" \
  "attention_dropout = 0.0\n" \
  "z_loss_coefficient = 0.0\n" \
  "[provides.presets]\n" \
  "'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 256, num_hidden_layers = 5, num_attention_heads = 4, num_key_value_heads = 2, max_position_embeddings = 2048, attn_layer_indices = [2], mamba_n_heads = 8, mamba_d_state = 32 }\n" \
  "'bamba-9b' = { vocab_size = 128256, hidden_size = 4096, intermediate_size = 14336, num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 8, max_position_embeddings = 262144, attn_layer_indices = [9, 18, 27], mamba_n_heads = 128, mamba_d_state = 128 }\n"

// Attention in layers 5, 15, 25 and 35 of 40.
#define HYBRID_GRANITE_TEN(four) four ", 'mamba', 'attention', " four
#define HYBRID_GRANITE_LAYERS "[" HYBRID_GRANITE_TEN(HYBRID_GRANITE_MIXERS) ", " HYBRID_GRANITE_TEN(HYBRID_GRANITE_MIXERS) ", " HYBRID_GRANITE_TEN(HYBRID_GRANITE_MIXERS) ", " HYBRID_GRANITE_TEN(HYBRID_GRANITE_MIXERS) "]"
#define HYBRID_GRANITE_MIXERS "'mamba', 'mamba', 'mamba', 'mamba'"
#define HYBRID_GRANITE \
  HYBRID_MODEL("granitemoehybrid", "Granite 4: as bamba, with factors of embeddings, sublayers, scores and logits; with experts or without") \
  "vocab_size = { type = 'int', default = 32000, min = 1, max = 2147483647, help = 'token ids are below this' }\n" \
  "hidden_size = { type = 'int', default = 4096, min = 2, max = 1048576, help = 'width of the residual stream; a multiple of num_attention_heads' }\n" \
  "shared_intermediate_size = { type = 'int', default = 1024, min = 1, max = 4194304, help = 'width of the feed-forward layers' }\n" \
  "num_local_experts = { type = 'int', default = 0, min = 0, max = 65536, help = 'experts of a layer, beside its feed-forward layer; 0: none' }\n" \
  "num_experts_per_tok = { type = 'int', default = 2, min = 1, max = 65536, help = 'experts of a token; without effect if num_local_experts = 0' }\n" \
  "intermediate_size = { type = 'int', default = 11008, min = 1, max = 4194304, help = 'width of an expert; without effect if num_local_experts = 0' }\n" \
  HYBRID_TERMS \
  "num_hidden_layers = { type = 'int', default = 32, min = 1, max = 4096, help = 'number of layers' }\n" \
  "num_attention_heads = { type = 'int', default = 32, min = 1, max = 65536, help = 'query heads of a layer' }\n" \
  "max_position_embeddings = { type = 'int', default = 2048, min = 1, max = 1073741824, help = 'longest sequence the model is trained for', adjustable = true }\n" \
  DECODER_GROUPED_HEADS("", "num_attention_heads") \
  "layer_types = { type = 'strings', help = 'for each layer linear_attention (or mamba) if it has a mixer, full_attention (or attention) if it has attention; absent: all have mixers' }\n" \
  "position_embedding_type = { type = 'string', choices = ['rope', 'nope'], help = 'rope: attention turns queries and keys; nope or absent: it does not' }\n" \
  HYBRID_MIXER \
  DECODER_FACTOR(embedding_multiplier, 1.0, "factor of the embeddings") \
  DECODER_FACTOR(attention_multiplier, 1.0, "factor of the products of queries and keys") \
  DECODER_FACTOR(residual_multiplier, 1.0, "factor of what each sublayer adds to the residual stream") \
  DECODER_FACTOR(logits_scaling, 1.0, "the logits are divided by it") \
  HYBRID_ACTIVATION \
  DECODER_RMS_NORM(1e-6) \
  DECODER_INIT("o_proj, out_proj and output_linear") \
  DECODER_TIED(false) \
  DECODER_BIAS(attention_bias, "q, k, v and o") \
  DECODER_ROPE_OPTIONS \
  HYBRID_GGUF("granitehybrid", "rope = ['default']\n" HYBRID_GGUF_EXPERTS("block_sparse_moe.input_linear"), "mamba_n_heads", "mamba_n_groups", \
    "attention_bias = false\nmamba_proj_bias = false\nmamba_conv_bias = true\n" HYBRID_GGUF_NO_LIMIT) \
  DECODER_GGUF_INTERLEAVED \
  "[provides.gguf.by_layer]\n" \
  "'attention.head_count_kv' = { of = ['layer_types'], entries = ['full_attention', 'attention'], is = ['num_key_value_heads', 'num_attention_heads'], others = 0 }\n" \
  "[provides.gguf.tensors]\n" \
  "'model.embed_tokens' = 'token_embd'\n" \
  "'model.norm' = 'output_norm'\n" \
  "'lm_head' = 'output'\n" \
  DECODER_GGUF_NORMS DECODER_GGUF_ATTENTION HYBRID_GGUF_MIXER("model.layers.*", "mamba") \
  "'model.layers.*.shared_mlp.gate_proj' = 'blk.*.ffn_gate_shexp'\n" \
  "'model.layers.*.shared_mlp.up_proj' = 'blk.*.ffn_up_shexp'\n" \
  "'model.layers.*.shared_mlp.output_linear' = 'blk.*.ffn_down_shexp'\n" \
  "'model.layers.*.block_sparse_moe.router.layer' = 'blk.*.ffn_gate_inp'\n" \
  "'model.layers.*.block_sparse_moe.output_linear' = 'blk.*.ffn_down_exps'\n" \
  "[[provides.gguf.variants]]\n" \
  "where = { num_local_experts = 0 }\n" \
  "[provides.gguf.variants.tensors]\n" \
  "'model.layers.*.shared_mlp.gate_proj' = 'blk.*.ffn_gate'\n" \
  "'model.layers.*.shared_mlp.up_proj' = 'blk.*.ffn_up'\n" \
  "'model.layers.*.shared_mlp.output_linear' = 'blk.*.ffn_down'\n" \
  "[provides.gguf.keys]\n" \
  "block_count = 'num_hidden_layers'\n" \
  "context_length = 'max_position_embeddings'\n" \
  "embedding_length = 'hidden_size'\n" \
  "feed_forward_length = [{ value = 'shared_intermediate_size', where = { num_local_experts = 0 } }, 'intermediate_size']\n" \
  "expert_shared_feed_forward_length = 'shared_intermediate_size'\n" \
  "expert_count = 'num_local_experts'\n" \
  "expert_used_count = [{ value = 0, where = { num_local_experts = 0 } }, 'num_experts_per_tok']\n" \
  "'attention.head_count' = 'num_attention_heads'\n" \
  "'attention.layer_norm_rms_epsilon' = 'rms_norm_eps'\n" \
  "'attention.scale' = 'attention_multiplier'\n" \
  "embedding_scale = 'embedding_multiplier'\n" \
  "residual_scale = 'residual_multiplier'\n" \
  "logit_scale = 'logits_scaling'\n" \
  "'rope.dimension_count' = " DECODER_GGUF_SHARE "\n" \
  "'rope.scaling.finetuned' = [{ value = true, where = { position_embedding_type = 'rope' } }, false]\n" \
  HYBRID_GGUF_SCAN("mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_conv", "{ product = ['mamba_expand', 'hidden_size'] }") \
  HYBRID_FILES("granitemoehybrid", "GraniteMoeHybrid", "'router_jitter_noise', 'init_method', 'rope_scaling.mscale', 'rope_parameters.mscale'") \
  HYBRID_TIED("model.embed_tokens") \
  "split = [{ from = 'model.layers.*.shared_mlp.input_linear.weight', to = ['model.layers.*.shared_mlp.gate_proj.weight', 'model.layers.*.shared_mlp.up_proj.weight'] }]\n" \
  "[provides.pretrained.fixed]\n" \
  DECODER_FIXED DECODER_WHOLE_HEADS \
  "normalization_function = 'rmsnorm'\n" \
  "[provides.pretrained.write]\n" \
  "attention_dropout = 0.0\n" \
  "[provides.presets]\n" \
  "'tiny' = { vocab_size = 256, hidden_size = 128, shared_intermediate_size = 256, num_hidden_layers = 5, num_attention_heads = 4, num_key_value_heads = 2, layer_types = ['mamba', 'mamba', 'attention', 'mamba', 'mamba'], mamba_n_heads = 8, mamba_d_state = 32, embedding_multiplier = 12.0, attention_multiplier = 0.03125, residual_multiplier = 0.246, logits_scaling = 3.0, tie_word_embeddings = true }\n" \
  "'granite-4.0-h-tiny' = { hidden_size = 1536, num_attention_heads = 12, num_key_value_heads = 4, mamba_n_heads = 48, intermediate_size = 512, shared_intermediate_size = 1024, num_local_experts = 64, num_experts_per_tok = 6, logits_scaling = 6.0, vocab_size = 100352, num_hidden_layers = 40, max_position_embeddings = 131072, layer_types = " HYBRID_GRANITE_LAYERS ", rms_norm_eps = 1e-5, embedding_multiplier = 12.0, attention_multiplier = 0.0078125, residual_multiplier = 0.22, tie_word_embeddings = true, mamba_d_state = 128, output_router_logits = true }\n" \
  "'granite-4.0-h-small' = { hidden_size = 4096, num_attention_heads = 32, num_key_value_heads = 8, mamba_n_heads = 128, intermediate_size = 768, shared_intermediate_size = 1536, num_local_experts = 72, num_experts_per_tok = 10, logits_scaling = 16.0, vocab_size = 100352, num_hidden_layers = 40, max_position_embeddings = 131072, layer_types = " HYBRID_GRANITE_LAYERS ", rms_norm_eps = 1e-5, embedding_multiplier = 12.0, attention_multiplier = 0.0078125, residual_multiplier = 0.22, tie_word_embeddings = true, mamba_d_state = 128, output_router_logits = true }\n"

// llama.cpp has no layers with experts and others without in one model: these have no names here.
#define HYBRID_NEMOTRON_EXPERTS(where) \
  "[[provides.gguf.variants]]\n" \
  "where = { " where " }\n" \
  "architecture = 'nemotron_h_moe'\n" \
  "[provides.gguf.variants.tensors]\n" \
  "'backbone.layers.*.mixer.gate.weight' = 'blk.*.ffn_gate_inp.weight'\n" \
  "'backbone.layers.*.mixer.gate.e_score_correction_bias' = 'blk.*.exp_probs_b.bias'\n" \
  "'backbone.layers.*.mixer.experts.up_proj' = 'blk.*.ffn_up_exps'\n" \
  "'backbone.layers.*.mixer.experts.down_proj' = 'blk.*.ffn_down_exps'\n" \
  "'backbone.layers.*.mixer.shared_experts.up_proj' = 'blk.*.ffn_up_shexp'\n" \
  "'backbone.layers.*.mixer.shared_experts.down_proj' = 'blk.*.ffn_down_shexp'\n" \
  "'backbone.layers.*.mixer.fc1_latent_proj' = 'blk.*.ffn_latent_down'\n" \
  "'backbone.layers.*.mixer.fc2_latent_proj' = 'blk.*.ffn_latent_up'\n" \
  "[provides.gguf.variants.keys]\n" \
  "expert_count = 'n_routed_experts'\n" \
  "expert_used_count = 'num_experts_per_tok'\n" \
  "expert_feed_forward_length = 'moe_intermediate_size'\n" \
  "expert_shared_feed_forward_length = 'moe_shared_expert_intermediate_size'\n" \
  "expert_shared_count = 1\n" \
  "expert_group_count = 'n_group'\n" \
  "expert_group_used_count = 'topk_group'\n" \
  "expert_weights_norm = 'norm_topk_prob'\n" \
  "expert_weights_scale = 'routed_scaling_factor'\n" \
  "moe_latent_size = ['moe_latent_size', 0]\n"
#define HYBRID_NEMOTRON \
  HYBRID_MODEL("nemotron_h", "Nemotron-H: layers that are a mixer of Mamba-2, attention without positions, a feed-forward layer with a squared relu, or experts of that kind") \
  "hybrid_override_pattern = { type = 'string', help = 'a letter for each layer: M for a mixer, * for attention, - for a feed-forward layer, E for experts' }\n" \
  "layers_block_type = { type = 'strings', help = 'the same as a list of linear_attention (or mamba), full_attention (or attention), mlp and moe' }\n" \
  "num_hidden_layers = { type = 'int', min = 1, max = 4096, help = 'number of layers, which the pattern has, too' }\n" \
  "vocab_size = { type = 'int', default = 131072, min = 1, max = 2147483647, help = 'token ids are below this' }\n" \
  "hidden_size = { type = 'int', default = 4096, min = 1, max = 1048576, help = 'width of the residual stream' }\n" \
  "intermediate_size = { type = 'int', default = 21504, min = 1, max = 4194304, help = 'width of the feed-forward layers' }\n" \
  "num_attention_heads = { type = 'int', default = 32, min = 1, max = 65536, help = 'query heads of a layer' }\n" \
  DECODER_GROUPED_HEADS("default = 8, ", "8") \
  "head_dim = { type = 'int', default = 128, min = 1, max = 65536, help = 'size of one head of attention', json = ['head_dim', 'attention_head_dim'] }\n" \
  "max_position_embeddings = { type = 'int', default = 4096, min = 1, max = 1073741824, help = 'longest sequence the model is trained for', adjustable = true }\n" \
  "mamba_num_heads = { type = 'int', default = 128, min = 1, max = 65536, help = 'heads of a mixer', json = ['mamba_num_heads', 'mamba_n_heads'] }\n" \
  "mamba_head_dim = { type = 'int', default = 64, min = 1, max = 65536, help = 'channels of a head of a mixer' }\n" \
  "ssm_state_size = { type = 'int', default = 128, min = 1, max = 4096, help = 'states per channel' }\n" \
  "n_groups = { type = 'int', default = 8, min = 1, max = 65536, help = 'groups of heads; those of a group share B and C. A divisor of mamba_num_heads', json = ['n_groups', 'mamba_n_groups'] }\n" \
  "conv_kernel = { type = 'int', default = 4, min = 2, max = 4, help = 'taps of the causal convolution', json = ['conv_kernel', 'mamba_d_conv'] }\n" \
  HYBRID_CHUNK("chunk_size", 128) \
  "time_step_min = { type = 'float', default = 0.001, above = 0.0, help = 'shortest time step, initially and at any time', json = ['time_step_min', 'mamba_dt_min'] }\n" \
  "time_step_max = { type = 'float', default = 0.1, above = 0.0, help = 'longest initial time step', json = ['time_step_max', 'mamba_dt_max'], adjustable = true }\n" \
  "time_step_floor = { type = 'float', default = 1e-4, above = 0.0, help = 'lower limit of initial time steps', json = ['time_step_floor', 'mamba_dt_init_floor'], adjustable = true }\n" \
  "time_step_limit = { type = 'floats', help = 'shortest and longest time step, which must be none: 0 and 1.7976931348623157e308. time_step_min is the limit', json = ['time_step_limit', 'mamba_dt_limit'] }\n" \
  "use_bias = { type = 'bool', default = false, help = 'biases on in_proj and out_proj of the mixers' }\n" \
  "use_conv_bias = { type = 'bool', default = true, help = 'bias on the convolution', json = ['use_conv_bias', 'mamba_conv_bias'] }\n" \
  DECODER_BIAS(mlp_bias, "up and down") \
  "layer_norm_epsilon = { type = 'float', default = 1e-5, above = 0.0, max = 1.0, help = 'added to the mean square before the root', json = ['layer_norm_epsilon', 'rms_norm_eps'] }\n" \
  "n_routed_experts = { type = 'int', default = 8, min = 1, max = 65536, help = 'experts of a layer of experts' }\n" \
  "num_experts_per_tok = { type = 'int', default = 2, min = 1, max = 65536, help = 'experts of a token' }\n" \
  "moe_intermediate_size = { type = 'int', default = 7688, min = 1, max = 4194304, help = 'width of an expert' }\n" \
  "moe_shared_expert_intermediate_size = { type = 'int', default = 7688, min = 1, max = 4194304, help = 'width of the expert of every token' }\n" \
  "moe_latent_size = { type = 'int', min = 1, max = 4194304, help = 'width of what experts read and write, which two maps make of the hidden state, and the hidden state of; absent: the hidden state itself' }\n" \
  "norm_topk_prob = { type = 'bool', default = true, help = 'the weights of the experts of a token are divided by their sum' }\n" \
  "routed_scaling_factor = { type = 'float', default = 1.0, above = 0.0, help = 'factor of these weights' }\n" \
  "n_group = { type = 'int', default = 1, min = 1, max = 65536, help = 'equal groups of experts' }\n" \
  "topk_group = { type = 'int', default = 1, min = 1, max = 65536, help = 'groups whose experts a token may get' }\n" \
  "residual_in_fp32 = { type = 'bool', default = false, help = 'the residual stream is f32 where compute has 16 bits; false: it has 16 bits, too', adjustable = true }\n" \
  "initializer_range = { type = 'float', default = 0.02, min = 0.0, max = 1.0, help = 'standard deviation of new matrices', adjustable = true }\n" \
  "rescale_prenorm_residual = { type = 'bool', default = true, help = 'new out_proj matrices are drawn by their width and divided by sqrt(number of layers)', adjustable = true }\n" \
  DECODER_TIED(false) \
  HYBRID_GGUF("nemotron_h", "notes = [{ text = 'llama.cpp has no shortest time step for this family: it computes otherwise where one is below time_step_min' }]\n", \
    "mamba_num_heads", "n_groups", "use_bias = false\nuse_conv_bias = true\nmlp_bias = false\n") \
  "[provides.gguf.by_layer]\n" \
  "'attention.head_count_kv' = { of = ['layers_block_type', 'hybrid_override_pattern'], entries = ['full_attention', 'attention', '*'], is = 'num_key_value_heads', others = 0 }\n" \
  "feed_forward_length = { of = ['layers_block_type', 'hybrid_override_pattern'], entries = ['mlp', '-', 'moe', 'E'], is = 'intermediate_size', others = 0 }\n" \
  "[provides.gguf.tensors]\n" \
  "'backbone.embeddings' = 'token_embd'\n" \
  "'backbone.norm_f' = 'output_norm'\n" \
  "'lm_head' = 'output'\n" \
  "'backbone.layers.*.norm' = 'blk.*.attn_norm'\n" \
  "'backbone.layers.*.mixer.q_proj' = 'blk.*.attn_q'\n" \
  "'backbone.layers.*.mixer.k_proj' = 'blk.*.attn_k'\n" \
  "'backbone.layers.*.mixer.v_proj' = 'blk.*.attn_v'\n" \
  "'backbone.layers.*.mixer.o_proj' = 'blk.*.attn_output'\n" \
  HYBRID_GGUF_MIXER("backbone.layers.*", "mixer") \
  HYBRID_NEMOTRON_EXPERTS("layers_block_type = 'moe'") HYBRID_NEMOTRON_EXPERTS("hybrid_override_pattern = 'E'") \
  "[[provides.gguf.variants]]\n" \
  "where = {}\n" \
  "[provides.gguf.variants.tensors]\n" \
  "'backbone.layers.*.mixer.up_proj' = 'blk.*.ffn_up'\n" \
  "'backbone.layers.*.mixer.down_proj' = 'blk.*.ffn_down'\n" \
  "[provides.gguf.keys]\n" \
  "block_count = [{ length = 'layers_block_type' }, { length = 'hybrid_override_pattern' }]\n" \
  "context_length = 'max_position_embeddings'\n" \
  "embedding_length = 'hidden_size'\n" \
  "'attention.head_count' = 'num_attention_heads'\n" \
  "'attention.key_length' = 'head_dim'\n" \
  "'attention.value_length' = 'head_dim'\n" \
  "'attention.layer_norm_epsilon' = 'layer_norm_epsilon'\n" \
  "'attention.layer_norm_rms_epsilon' = 'layer_norm_epsilon'\n" \
  "'rope.dimension_count' = 'head_dim'\n" \
  HYBRID_GGUF_SCAN("mamba_num_heads", "n_groups", "ssm_state_size", "conv_kernel", "{ product = ['mamba_num_heads', 'mamba_head_dim'] }") \
  HYBRID_FILES("nemotron_h", "NemotronH", "'expand', 'mamba_expand', 'time_step_rank', 'num_logits_to_keep', 'use_mamba_kernels', 'mamba_ssm_cache_dtype', 'n_shared_experts', 'moe_shared_expert_overlap', 'mtp_layers_block_type', 'mtp_hybrid_override_pattern'") \
  "rename = [['model.', 'backbone.'], ['backbone.embedding.', 'backbone.embeddings.']]\n" \
  HYBRID_TIED("backbone.embeddings") \
  "join = [\n" \
  "  { from = ['backbone.layers.*.mixer.experts.#.up_proj.weight'], to = 'backbone.layers.*.mixer.experts.up_proj.weight', optional = true },\n" \
  "  { from = ['backbone.layers.*.mixer.experts.#.down_proj.weight'], to = 'backbone.layers.*.mixer.experts.down_proj.weight', optional = true },\n" \
  "]\n" \
  "[provides.pretrained.fixed]\n" \
  "attention_bias = false\n" \
  "attention_dropout = 0.0\n" \
  "mamba_hidden_act = ['silu', 'swish']\n" \
  "mamba_proj_bias = false\n" \
  "mlp_hidden_act = 'relu2'\n" \
  "[provides.pretrained.write]\n" \
  "attention_bias = false\n" \
  "attention_dropout = 0.0\n" \
  "mamba_hidden_act = 'silu'\n" \
  "mamba_proj_bias = false\n" \
  "mlp_hidden_act = 'relu2'\n" \
  "num_nextn_predict_layers = 0\n" \
  "[provides.presets]\n" \
  "'tiny' = { hybrid_override_pattern = 'M-M*-M-', vocab_size = 256, hidden_size = 128, intermediate_size = 384, num_attention_heads = 4, num_key_value_heads = 2, head_dim = 32, max_position_embeddings = 2048, mamba_num_heads = 8, mamba_head_dim = 32, ssm_state_size = 32, n_groups = 2 }\n" \
  "'nemotron-h-8b' = { hybrid_override_pattern = 'M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-', max_position_embeddings = 8192 }\n" \
  "'nemotron-3-nano-30b-a3b' = { hybrid_override_pattern = 'MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME', hidden_size = 2688, intermediate_size = 1856, num_key_value_heads = 2, max_position_embeddings = 262144, mamba_num_heads = 64, n_routed_experts = 128, num_experts_per_tok = 6, moe_intermediate_size = 1856, moe_shared_expert_intermediate_size = 3712, routed_scaling_factor = 2.5 }\n"

// llama.cpp has no factors: they are in the matrices of the file.
#define HYBRID_FALCON_INNER "['mamba_d_ssm', { product = ['mamba_expand', 'hidden_size'] }]"
#define HYBRID_FALCON_ROWS(place, rows) \
  "{ rows = " rows ", by = ['ssm_in_multiplier', [{ entry = ['ssm_multipliers', " place "] }, 1.0]] }"
#define HYBRID_FALCON_H1 \
  HYBRID_MODEL("falcon_h1", "Falcon-H1: attention and a mixer of Mamba-2 side by side in every layer, and factors of nearly everything") \
  DECODER_SIZE_OPTIONS(128000, 4096, 14336, 32, 32, 8192) \
  DECODER_GROUPED_HEADS("default = 8, ", "8") \
  "head_dim = { type = 'int', min = 2, max = 65536, help = 'size of one head of attention, even; absent: hidden_size / num_attention_heads' }\n" \
  "mamba_d_ssm = { type = 'int', min = 1, max = 4194304, help = 'channels of a mixer; absent: mamba_expand x hidden_size' }\n" \
  HYBRID_MIXER \
  "mamba_rms_norm = { type = 'bool', default = false, help = 'a norm of the output of the scan; false: the gate alone' }\n" \
  "mamba_norm_before_gate = { type = 'bool', default = true, help = 'that norm is before the gate, not behind it; without effect unless mamba_rms_norm = true' }\n" \
  "projectors_bias = { type = 'bool', default = false, help = 'bias on out_proj of the mixers; that of mamba_proj_bias is on in_proj alone' }\n" \
  DECODER_FACTOR(embedding_multiplier, 1.0, "factor of the embeddings") \
  DECODER_FACTOR(lm_head_multiplier, 1.0, "factor of the logits") \
  DECODER_FACTOR(key_multiplier, 1.0, "factor of the keys") \
  DECODER_FACTOR(attention_in_multiplier, 1.0, "factor of what attention reads") \
  DECODER_FACTOR(attention_out_multiplier, 1.0, "factor of what attention adds") \
  DECODER_FACTOR(ssm_in_multiplier, 1.0, "factor of what the mixer reads") \
  DECODER_FACTOR(ssm_out_multiplier, 1.0, "factor of what the mixer adds") \
  "ssm_multipliers = { type = 'floats', help = 'factors of the columns of in_proj: of the gate, x, B, C and the time steps; absent: ones' }\n" \
  "mlp_multipliers = { type = 'floats', help = 'factors of the gate and of the output of the feed-forward layer; absent: ones' }\n" \
  HYBRID_ACTIVATION \
  DECODER_RMS_NORM(1e-5) \
  DECODER_INIT("o_proj, out_proj and down_proj") \
  DECODER_TIED(false) \
  DECODER_BIAS(attention_bias, "q, k, v and o") \
  DECODER_BIAS(mlp_bias, "gate, up and down") \
  DECODER_ROPE_OPTIONS \
  HYBRID_GGUF("falcon-h1", "rope = ['default']\n", "mamba_n_heads", "mamba_n_groups", \
    "attention_bias = false\nmlp_bias = false\nmamba_proj_bias = false\nprojectors_bias = false\nmamba_conv_bias = true\n" HYBRID_GGUF_NO_LIMIT) \
  "[provides.gguf.require]\n" \
  "embedding_multiplier = [{ value = 'lm_head_multiplier', where = { tie_word_embeddings = true } }, 'embedding_multiplier']\n" \
  "mamba_rms_norm = [{ value = false, where = { mamba_norm_before_gate = true } }, 'mamba_rms_norm']\n" \
  "[provides.gguf.scale]\n" \
  "'token_embd' = [{ by = ['embedding_multiplier'] }]\n" \
  "'output' = [{ by = ['lm_head_multiplier'] }]\n" \
  "'blk.*.attn_q' = [{ by = ['attention_in_multiplier'] }]\n" \
  "'blk.*.attn_k' = [{ by = ['attention_in_multiplier', 'key_multiplier'] }]\n" \
  "'blk.*.attn_v' = [{ by = ['attention_in_multiplier'] }]\n" \
  "'blk.*.attn_output' = [{ by = ['attention_out_multiplier'] }]\n" \
  "'blk.*.ffn_gate' = [{ by = [[{ entry = ['mlp_multipliers', 0] }, 1.0]] }]\n" \
  "'blk.*.ffn_down' = [{ by = [[{ entry = ['mlp_multipliers', 1] }, 1.0]] }]\n" \
  "'blk.*.ssm_out' = [{ by = ['ssm_out_multiplier'] }]\n" \
  "'blk.*.ssm_in' = [" HYBRID_FALCON_ROWS("0", HYBRID_FALCON_INNER) ", " HYBRID_FALCON_ROWS("1", HYBRID_FALCON_INNER) ", " \
    HYBRID_FALCON_ROWS("2", "{ product = ['mamba_n_groups', 'mamba_d_state'] }") ", " \
    HYBRID_FALCON_ROWS("3", "{ product = ['mamba_n_groups', 'mamba_d_state'] }") ", " HYBRID_FALCON_ROWS("4", "'mamba_n_heads'") "]\n" \
  "[provides.gguf.tensors]\n" \
  HYBRID_GGUF_FEEDS("ffn_norm") HYBRID_GGUF_MIXER("model.layers.*", "mamba") \
  DECODER_GGUF_KEYS("'max_position_embeddings'", DECODER_GGUF_OWN_HEAD, DECODER_GGUF_OWN_HEAD, "") \
  HYBRID_GGUF_SCAN("mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_conv", HYBRID_FALCON_INNER) \
  HYBRID_FILES("falcon_h1", "FalconH1", "'num_logits_to_keep', 'use_mamba_kernels', 'rope_scaling.mscale', 'rope_parameters.mscale'") \
  HYBRID_TIED("model.embed_tokens") \
  "[provides.pretrained.fixed]\n" \
  DECODER_FIXED DECODER_WHOLE_HEADS \
  "[provides.pretrained.write]\n" \
  "attention_dropout = 0.0\n" \
  "[provides.presets]\n" \
  "'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 256, num_hidden_layers = 4, num_attention_heads = 4, num_key_value_heads = 2, max_position_embeddings = 2048, mamba_n_heads = 4, mamba_d_ssm = 128, mamba_d_state = 32 }\n"
// clang-format on
