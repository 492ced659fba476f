// SPDX-License-Identifier: Apache-2.0
// Jamba, as a part of the plugin's description.
#pragma once

#include "description.hpp"

// clang-format off
#define HYBRID_JAMBA \
  HYBRID_MODEL("jamba", "Jamba: mixers of Mamba with norms of the time step, B and C, attention without positions, feed-forward layers and experts in turn") \
  DECODER_SIZE_OPTIONS(65536, 4096, 14336, 32, 32, 262144) \
  DECODER_GROUPED_HEADS("default = 8, ", "8") \
  "attn_layer_period = { type = 'int', default = 8, min = 1, max = 4096, help = 'layers with a number, counted from 0, that leaves attn_layer_offset when it is divided by this have attention, the others mixers' }\n" \
  "attn_layer_offset = { type = 'int', default = 4, min = 0, max = 4095, help = 'number of the first layer with attention; below attn_layer_period' }\n" \
  "expert_layer_period = { type = 'int', default = 2, min = 1, max = 4096, help = 'the same for layers with experts; the others have a feed-forward layer' }\n" \
  "expert_layer_offset = { type = 'int', default = 1, min = 0, max = 4095, help = 'number of the first layer with experts; below expert_layer_period' }\n" \
  "num_experts = { type = 'int', default = 16, min = 1, max = 65536, help = 'experts of such a layer, as wide as the feed-forward layers; 1: it has a feed-forward layer, too', json = ['num_experts', 'num_local_experts'] }\n" \
  "num_experts_per_tok = { type = 'int', default = 2, min = 1, max = 65536, help = 'experts of a token; without effect if num_experts = 1' }\n" \
  HYBRID_TERMS \
  "mamba_d_state = { type = 'int', default = 16, min = 1, max = 256, help = 'states per channel' }\n" \
  "mamba_d_conv = { type = 'int', default = 4, min = 2, max = 4, help = 'taps of the causal convolution' }\n" \
  "mamba_expand = { type = 'int', default = 2, min = 1, max = 1024, help = 'the number of channels of a mixer is mamba_expand x hidden_size' }\n" \
  "mamba_dt_rank = { type = 'int', min = 1, max = 1048576, help = 'rank of the time step; absent (auto): hidden_size / 16, rounded up', json_none = 'auto' }\n" \
  "mamba_conv_bias = { type = 'bool', default = true, help = 'bias on the convolution' }\n" \
  "mamba_proj_bias = { type = 'bool', default = false, help = 'biases on in_proj and out_proj of the mixers' }\n" \
  HYBRID_ACTIVATION \
  DECODER_RMS_NORM(1e-6) \
  DECODER_INIT("o_proj, out_proj and down_proj") \
  DECODER_TIED(false) \
  "[provides.gguf]\n" \
  "architecture = 'jamba'\n" \
  "negative_exp = ['blk.*.ssm_a']\n" \
  "squeeze = ['blk.*.ssm_conv1d.weight']\n" \
  "f32 = ['blk.*.ssm_conv1d.weight', 'blk.*.ffn_gate_inp.weight']\n" \
  HYBRID_GGUF_EXPERTS("feed_forward.experts.gate_up_proj") \
  "[provides.gguf.fixed]\n" \
  "mamba_conv_bias = true\n" \
  "mamba_proj_bias = false\n" \
  "[provides.gguf.require]\n" \
  "'ssm.inner_size' = { product = ['hidden_size', 2] }\n" \
  "[provides.gguf.by_layer]\n" \
  "'attention.head_count_kv' = { every = 'attn_layer_period', from = 'attn_layer_offset', is = 'num_key_value_heads', others = 0 }\n" \
  "[provides.gguf.tensors]\n" \
  HYBRID_GGUF_FEEDS("ffn_norm.weight") \
  "'model.layers.*.feed_forward.router' = 'blk.*.ffn_gate_inp'\n" \
  "'model.layers.*.feed_forward.experts.down_proj' = 'blk.*.ffn_down_exps'\n" \
  "'model.layers.*.mamba.in_proj' = 'blk.*.ssm_in'\n" \
  "'model.layers.*.mamba.conv1d' = 'blk.*.ssm_conv1d'\n" \
  "'model.layers.*.mamba.x_proj' = 'blk.*.ssm_x'\n" \
  "'model.layers.*.mamba.dt_proj' = 'blk.*.ssm_dt'\n" \
  "'model.layers.*.mamba.A_log' = 'blk.*.ssm_a'\n" \
  "'model.layers.*.mamba.D' = 'blk.*.ssm_d'\n" \
  "'model.layers.*.mamba.dt_layernorm' = 'blk.*.ssm_dt_norm'\n" \
  "'model.layers.*.mamba.b_layernorm' = 'blk.*.ssm_b_norm'\n" \
  "'model.layers.*.mamba.c_layernorm' = 'blk.*.ssm_c_norm'\n" \
  "'model.layers.*.mamba.out_proj' = 'blk.*.ssm_out'\n" \
  "[provides.gguf.keys]\n" \
  "block_count = 'num_hidden_layers'\n" \
  "context_length = 'max_position_embeddings'\n" \
  "embedding_length = 'hidden_size'\n" \
  "feed_forward_length = 'intermediate_size'\n" \
  "expert_count = [{ value = 0, where = { num_experts = 1 } }, 'num_experts']\n" \
  "expert_used_count = [{ value = 0, where = { num_experts = 1 } }, 'num_experts_per_tok']\n" \
  "'attention.head_count' = 'num_attention_heads'\n" \
  "'attention.layer_norm_rms_epsilon' = 'rms_norm_eps'\n" \
  "'ssm.conv_kernel' = 'mamba_d_conv'\n" \
  "'ssm.inner_size' = { product = ['mamba_expand', 'hidden_size'] }\n" \
  "'ssm.state_size' = 'mamba_d_state'\n" \
  "'ssm.time_step_rank' = ['mamba_dt_rank', { quotient = ['hidden_size', 16] }]\n" \
  HYBRID_FILES("jamba", "Jamba", "'num_logits_to_keep', 'calc_logits_for_entire_prompt', 'n_ctx', 'use_mamba_kernels', 'use_mambapy', 'use_associative_scan'") \
  HYBRID_TIED("model.embed_tokens") \
  "join = [\n" \
  "  { from = ['model.layers.*.feed_forward.experts.#.gate_proj.weight', 'model.layers.*.feed_forward.experts.#.up_proj.weight'], to = 'model.layers.*.feed_forward.experts.gate_up_proj.weight', optional = true },\n" \
  "  { from = ['model.layers.*.feed_forward.experts.#.down_proj.weight'], to = 'model.layers.*.feed_forward.experts.down_proj.weight', optional = true },\n" \
  "]\n" \
  "[provides.pretrained.fixed]\n" \
  "attention_dropout = 0.0\n" \
  "mamba_inner_layernorms = true\n" \
  "[provides.pretrained.write]\n" \
  "attention_dropout = 0.0\n" \
  "[provides.presets]\n" \
  "'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 128, num_hidden_layers = 4, num_attention_heads = 4, num_key_value_heads = 2, max_position_embeddings = 2048, attn_layer_period = 4, attn_layer_offset = 2, num_experts = 4, output_router_logits = true, router_aux_loss_coef = 0.01 }\n" \
  "'jamba-v0.1' = { mamba_dt_rank = 256 }\n"
// clang-format on
