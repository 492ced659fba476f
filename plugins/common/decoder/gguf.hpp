// SPDX-License-Identifier: Apache-2.0
// [provides.gguf] of decoders with the names of LLaMA, as a part of descriptions. Before it stand the architecture and
// what is of one family alone.
#pragma once

// clang-format off
#define DECODER_GGUF DECODER_GGUF_OF(DECODER_GGUF_NORMS, DECODER_GGUF_OWN_HEAD, "")
// `norms`: the entries of the norms; `head`: the size of a head, DECODER_GGUF_SHARE where it is no option; `more`: further
// keys.
#define DECODER_GGUF_OF(norms, head, more) DECODER_GGUF_IN("'max_position_embeddings'", norms, head, head, more)
// `context`: the length for which llama.cpp computes the same; `turned`: the channels of a head that are turned.
#define DECODER_GGUF_IN(context, norms, head, turned, more) \
  "[provides.gguf.tensors]\n" \
  "'model.embed_tokens' = 'token_embd'\n" \
  "'model.norm' = 'output_norm'\n" \
  "'lm_head' = 'output'\n" \
  norms \
  DECODER_GGUF_ATTENTION \
  "'model.layers.*.mlp.gate_proj' = 'blk.*.ffn_gate'\n" \
  "'model.layers.*.mlp.up_proj' = 'blk.*.ffn_up'\n" \
  "'model.layers.*.mlp.down_proj' = 'blk.*.ffn_down'\n" \
  DECODER_GGUF_KEYS(context, head, turned, more)
#define DECODER_GGUF_ATTENTION \
  "'model.layers.*.self_attn.q_proj' = 'blk.*.attn_q'\n" \
  "'model.layers.*.self_attn.k_proj' = 'blk.*.attn_k'\n" \
  "'model.layers.*.self_attn.v_proj' = 'blk.*.attn_v'\n" \
  "'model.layers.*.self_attn.o_proj' = 'blk.*.attn_output'\n"
#define DECODER_GGUF_KEYS(context, head, turned, more) DECODER_GGUF_KEYS_OF("intermediate_size", context, head, turned, more)
// `ffn`: the option of the width of feed-forward layers.
#define DECODER_GGUF_KEYS_OF(ffn, context, head, turned, more) \
  "[provides.gguf.keys]\n" \
  "block_count = 'num_hidden_layers'\n" \
  "context_length = " context "\n" \
  "embedding_length = 'hidden_size'\n" \
  "feed_forward_length = '" ffn "'\n" \
  "'attention.head_count' = 'num_attention_heads'\n" \
  "'attention.head_count_kv' = ['num_key_value_heads', 'num_attention_heads']\n" \
  "'attention.key_length' = " head "\n" \
  "'attention.value_length' = " head "\n" \
  "'attention.layer_norm_rms_epsilon' = 'rms_norm_eps'\n" \
  "'rope.dimension_count' = " turned "\n" \
  more
#define DECODER_GGUF_SHARE "{ quotient = ['hidden_size', 'num_attention_heads'] }"
#define DECODER_GGUF_OWN_HEAD "['head_dim', " DECODER_GGUF_SHARE "]"
// Up to the length of the window, a window leaves out nothing.
#define DECODER_GGUF_WINDOW "[{ least = ['sliding_window', 'max_position_embeddings'] }, 'max_position_embeddings']"
#define DECODER_GGUF_WINDOW_NOTE \
  "{ text = 'llama.cpp has no window of attention for this family; if a window is shorter than max_position_embeddings, the context_length of the file is the window, up to which the results are the same', given = 'sliding_window' }"
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
