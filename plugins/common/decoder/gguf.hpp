// SPDX-License-Identifier: Apache-2.0
// [provides.gguf] of decoders with the names of LLaMA, as a part of descriptions. Before it stand the architecture and
// what is of one family alone.
#pragma once

// clang-format off
#define DECODER_GGUF DECODER_GGUF_OF(DECODER_GGUF_NORMS, "['head_dim', " DECODER_GGUF_SHARE "]", "")
// `norms`: the entries of the norms; `head`: the size of a head, DECODER_GGUF_SHARE where it is no option; `more`: further
// keys.
#define DECODER_GGUF_OF(norms, head, more) \
  "[provides.gguf.tensors]\n" \
  "'model.embed_tokens' = 'token_embd'\n" \
  "'model.norm' = 'output_norm'\n" \
  "'lm_head' = 'output'\n" \
  norms \
  "'model.layers.*.self_attn.q_proj' = 'blk.*.attn_q'\n" \
  "'model.layers.*.self_attn.k_proj' = 'blk.*.attn_k'\n" \
  "'model.layers.*.self_attn.v_proj' = 'blk.*.attn_v'\n" \
  "'model.layers.*.self_attn.o_proj' = 'blk.*.attn_output'\n" \
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
  "'attention.key_length' = " head "\n" \
  "'attention.value_length' = " head "\n" \
  "'attention.layer_norm_rms_epsilon' = 'rms_norm_eps'\n" \
  "'rope.dimension_count' = " head "\n" \
  more
#define DECODER_GGUF_SHARE "{ quotient = ['hidden_size', 'num_attention_heads'] }"
#define DECODER_GGUF_NORMS \
  "'model.layers.*.input_layernorm' = 'blk.*.attn_norm'\n" \
  "'model.layers.*.post_attention_layernorm' = 'blk.*.ffn_norm'\n"
#define DECODER_GGUF_HEAD_NORMS \
  "'model.layers.*.self_attn.q_norm' = 'blk.*.attn_q_norm'\n" \
  "'model.layers.*.self_attn.k_norm' = 'blk.*.attn_k_norm'\n"
// llama.cpp turns neighbouring channels of a head together, not those of its two halves.
#define DECODER_GGUF_INTERLEAVED \
  "[provides.gguf.interleave]\n" \
  "'blk.*.attn_q' = 'num_attention_heads'\n" \
  "'blk.*.attn_k' = ['num_key_value_heads', 'num_attention_heads']\n"
// clang-format on
