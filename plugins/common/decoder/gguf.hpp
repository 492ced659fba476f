// SPDX-License-Identifier: Apache-2.0
// [provides.gguf] of decoders with the names of LLaMA, as a part of descriptions. Before it stand the architecture and
// what is of one family alone.
#pragma once

// clang-format off
#define DECODER_GGUF \
  "[provides.gguf.tensors]\n" \
  "'model.embed_tokens' = 'token_embd'\n" \
  "'model.norm' = 'output_norm'\n" \
  "'lm_head' = 'output'\n" \
  "'model.layers.*.input_layernorm' = 'blk.*.attn_norm'\n" \
  "'model.layers.*.self_attn.q_proj' = 'blk.*.attn_q'\n" \
  "'model.layers.*.self_attn.k_proj' = 'blk.*.attn_k'\n" \
  "'model.layers.*.self_attn.v_proj' = 'blk.*.attn_v'\n" \
  "'model.layers.*.self_attn.o_proj' = 'blk.*.attn_output'\n" \
  "'model.layers.*.post_attention_layernorm' = 'blk.*.ffn_norm'\n" \
  "'model.layers.*.mlp.gate_proj' = 'blk.*.ffn_gate'\n" \
  "'model.layers.*.mlp.up_proj' = 'blk.*.ffn_up'\n" \
  "'model.layers.*.mlp.down_proj' = 'blk.*.ffn_down'\n" \
  "[provides.gguf.keys]\n" \
  "block_count = 'num_hidden_layers'\n" \
  "context_length = 'max_position_embeddings'\n" \
  "embedding_length = 'hidden_size'\n" \
  "feed_forward_length = 'intermediate_size'\n" \
  "'attention.head_count' = 'num_attention_heads'\n" \
  "'attention.head_count_kv' = ['num_key_value_heads', 'num_attention_heads']\n" \
  "'attention.key_length' = ['head_dim', { quotient = ['hidden_size', 'num_attention_heads'] }]\n" \
  "'attention.value_length' = ['head_dim', { quotient = ['hidden_size', 'num_attention_heads'] }]\n" \
  "'attention.layer_norm_rms_epsilon' = 'rms_norm_eps'\n" \
  "'rope.dimension_count' = ['head_dim', { quotient = ['hidden_size', 'num_attention_heads'] }]\n"
// clang-format on
