// SPDX-License-Identifier: Apache-2.0
// [provides.gguf] of families whose tensors differ from LLaMA's, as parts of the plugin's description.
#pragma once

#include "../common/decoder/gguf.hpp"

// clang-format off
#define DECODERS_PHI3_GGUF \
  "[provides.gguf]\n" \
  "architecture = 'phi3'\n" \
  "rope = ['default', 'longrope', 'su']\n" \
  "split = [\n" \
  "  { from = 'blk.*.attn_qkv.weight', to = ['model.layers.*.self_attn.q_proj.weight', 'model.layers.*.self_attn.k_proj.weight', 'model.layers.*.self_attn.v_proj.weight'] },\n" \
  "  { from = 'blk.*.ffn_up.weight', to = ['model.layers.*.mlp.gate_proj.weight', 'model.layers.*.mlp.up_proj.weight'] },\n" \
  "]\n" \
  "notes = [\n" \
  "  " \
  DECODER_GGUF_WINDOW_NOTE \
  ",\n" \
  "  { text = 'llama.cpp takes rope_long_factor for every sequence if it is started with a context above original_max_position_embeddings, and rope_short_factor otherwise', where = { rope_type = 'longrope' } },\n" \
  "]\n" \
  "[provides.gguf.fixed]\n" \
  "hidden_act = ['silu', 'swish']\n" \
  DECODER_GGUF_IN(DECODER_GGUF_WINDOW, DECODER_GGUF_NORMS, DECODER_GGUF_SHARE, "{ product = [" DECODER_GGUF_SHARE ", 'partial_rotary_factor'] }", "'attention.sliding_window' = 0\n")

#define DECODERS_SMOLLM3_GGUF \
  "[provides.gguf]\n" \
  "architecture = 'smollm3'\n" \
  "rope = ['default', 'linear', 'yarn']\n" \
  "[provides.gguf.fixed]\n" \
  "hidden_act = ['silu', 'swish']\n" \
  "attention_bias = false\n" \
  "mlp_bias = false\n" \
  "no_rope_layer_interval = 4\n" \
  "[provides.gguf.layers]\n" \
  "no_rope_layers = { every = 4, is = 0, others = 1 }\n" \
  DECODER_GGUF_INTERLEAVED DECODER_GGUF_OF(DECODER_GGUF_NORMS, DECODER_GGUF_SHARE, "")

#define DECODERS_GPT_NEOX_GGUF \
  "[provides.gguf]\n" \
  "architecture = 'gptneox'\n" \
  "rope = ['default', 'linear', 'yarn']\n" \
  "grouped = [{ from = 'gpt_neox.layers.*.attention.query_key_value', groups = 'num_attention_heads', parts = [1, 1, 1], to = ['blk.*.attn_qkv'] }]\n" \
  "notes = [{ text = 'llama.cpp computes gelu in its tanh form, which differs by up to 5e-4', where = { hidden_act = 'gelu' } }]\n" \
  "[provides.gguf.fixed]\n" \
  "hidden_act = ['gelu', 'gelu_new', 'gelu_pytorch_tanh', 'gelu_fast', 'gelu_accurate', 'gelu_python_tanh']\n" \
  "attention_bias = true\n" \
  "tie_word_embeddings = false\n" \
  "[provides.gguf.tensors]\n" \
  "'gpt_neox.embed_in' = 'token_embd'\n" \
  "'gpt_neox.final_layer_norm' = 'output_norm'\n" \
  "'embed_out' = 'output'\n" \
  "'gpt_neox.layers.*.input_layernorm' = 'blk.*.attn_norm'\n" \
  "'gpt_neox.layers.*.attention.dense' = 'blk.*.attn_output'\n" \
  "'gpt_neox.layers.*.post_attention_layernorm' = 'blk.*.ffn_norm'\n" \
  "'gpt_neox.layers.*.mlp.dense_h_to_4h' = 'blk.*.ffn_up'\n" \
  "'gpt_neox.layers.*.mlp.dense_4h_to_h' = 'blk.*.ffn_down'\n" \
  "[provides.gguf.keys]\n" \
  "block_count = 'num_hidden_layers'\n" \
  "context_length = 'max_position_embeddings'\n" \
  "embedding_length = 'hidden_size'\n" \
  "feed_forward_length = 'intermediate_size'\n" \
  "use_parallel_residual = 'use_parallel_residual'\n" \
  "'attention.head_count' = 'num_attention_heads'\n" \
  "'attention.layer_norm_epsilon' = 'layer_norm_eps'\n" \
  "'rope.dimension_count' = { product = [" \
  DECODER_GGUF_SHARE \
  ", 'rotary_pct'] }\n"

#define DECODERS_MINICPM_GGUF \
  "[provides.gguf]\n" \
  "architecture = 'minicpm'\n" \
  "rope = ['default', 'linear', 'yarn']\n" \
  "[provides.gguf.fixed]\n" \
  "hidden_act = ['silu', 'swish']\n" \
  "attention_bias = false\n" \
  DECODER_GGUF_INTERLEAVED DECODER_GGUF_OF(DECODER_GGUF_NORMS, DECODER_GGUF_SHARE, "embedding_scale = 'scale_emb'\nresidual_scale = { ratio = ['scale_depth', { root = 'num_hidden_layers' }] }\nlogit_scale = { ratio = ['hidden_size', 'dim_model_base'] }\n")

#define DECODERS_INTERNLM2_GGUF \
  "[provides.gguf]\n" \
  "architecture = 'internlm2'\n" \
  "rope = ['default', 'linear', 'yarn']\n" \
  "grouped = [{ from = 'model.layers.*.attention.wqkv', groups = ['num_key_value_heads', 'num_attention_heads'], parts = [[{ quotient = ['num_attention_heads', 'num_key_value_heads'] }, 1], 1, 1], to = ['blk.*.attn_q', 'blk.*.attn_k', 'blk.*.attn_v'] }]\n" \
  "[provides.gguf.fixed]\n" \
  "hidden_act = ['silu', 'swish']\n" \
  "bias = false\n" \
  "tie_word_embeddings = false\n" \
  DECODER_GGUF_INTERLEAVED \
  "[provides.gguf.tensors]\n" \
  "'model.tok_embeddings' = 'token_embd'\n" \
  "'model.norm' = 'output_norm'\n" \
  "'output' = 'output'\n" \
  "'model.layers.*.attention_norm' = 'blk.*.attn_norm'\n" \
  "'model.layers.*.attention.wo' = 'blk.*.attn_output'\n" \
  "'model.layers.*.ffn_norm' = 'blk.*.ffn_norm'\n" \
  "'model.layers.*.feed_forward.w1' = 'blk.*.ffn_gate'\n" \
  "'model.layers.*.feed_forward.w3' = 'blk.*.ffn_up'\n" \
  "'model.layers.*.feed_forward.w2' = 'blk.*.ffn_down'\n" \
  DECODER_GGUF_KEYS("'max_position_embeddings'", DECODER_GGUF_SHARE, DECODER_GGUF_SHARE, "")
// clang-format on
