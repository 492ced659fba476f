// SPDX-License-Identifier: Apache-2.0
// The description of GPT-2, up to its presets. config.json has n_embd, n_layer, n_head and n_positions for the sizes,
// and transformers knows both names.
#pragma once

#include "../common/decoder/options.hpp"

// clang-format off
#define DECODERS_GPT2 \
  "[[provides]]\n" \
  "kind = '" ENG_MODEL_DRAFT "'\n" \
  "name = 'gpt2'\n" \
  "summary = 'GPT-2: learned positions, layer norms, biases and a plain feed-forward layer'\n" \
  "[provides.options]\n" \
  "vocab_size = { type = 'int', default = 50257, min = 1, max = 2147483647, help = 'token ids are below this' }\n" \
  "hidden_size = { type = 'int', default = 768, min = 1, max = 1048576, help = 'width of the residual stream; a multiple of num_attention_heads', json = ['n_embd', 'hidden_size'] }\n" \
  "n_inner = { type = 'int', min = 1, max = 4194304, help = 'width of the feed-forward layers; absent: 4 x hidden_size' }\n" \
  "num_hidden_layers = { type = 'int', default = 12, min = 1, max = 4096, help = 'number of layers', json = ['n_layer', 'num_hidden_layers'] }\n" \
  "num_attention_heads = { type = 'int', default = 12, min = 1, max = 65536, help = 'heads of a layer', json = ['n_head', 'num_attention_heads'] }\n" \
  "max_position_embeddings = { type = 'int', default = 1024, min = 1, max = 1073741824, help = 'longest sequence: rows of the table of positions', json = ['n_positions', 'max_position_embeddings'] }\n" \
  DECODER_ACTIVATION_AS("activation_function", "gelu_new", "feed-forward layer") \
  "layer_norm_epsilon = { type = 'float', default = 1e-5, above = 0.0, max = 1.0, help = 'added to the variance' }\n" \
  "initializer_range = { type = 'float', default = 0.02, min = 0.0, max = 1.0, help = 'standard deviation of new matrices; of those that write to the residual stream, divided by sqrt(2 x num_hidden_layers)', adjustable = true }\n" \
  DECODER_TIED(true) \
  "scale_attn_weights = { type = 'bool', default = true, help = 'products of queries and keys are divided by the root of the head size' }\n" \
  "embd_pdrop = { type = 'float', default = 0.1, min = 0.0, max = 0.999, help = 'share of elements dropped behind the embeddings, in training', adjustable = true, resume = 'note' }\n" \
  "resid_pdrop = { type = 'float', default = 0.1, min = 0.0, max = 0.999, help = 'share of elements dropped after attention and after the feed-forward layer, in training', adjustable = true, resume = 'note' }\n" \
  "attn_pdrop = { type = 'float', default = 0.0, min = 0.0, max = 1.0, help = 'must be 0: dropout of attention weights is not supported', adjustable = true }\n" \
  "[provides.pretrained]\n" \
  "model_type = 'gpt2'\n" \
  "architectures = ['GPT2LMHeadModel', 'GPT2Model']\n" \
  /* reorder_and_upcast_attn is about the types of products in 16 bits; nothing reads the others any more */ \
  "ignore = ['n_ctx', 'reorder_and_upcast_attn', 'output_past', 'predict_special_tokens', '_num_labels']\n" \
  "tied = [['lm_head.weight', 'transformer.wte.weight']]\n" \
  "transpose = ['transformer.h.*.attn.c_attn.weight', 'transformer.h.*.attn.c_proj.weight', 'transformer.h.*.mlp.c_fc.weight', 'transformer.h.*.mlp.c_proj.weight']\n" \
  "split = [\n" \
  "  { from = 'transformer.h.*.attn.c_attn.weight', to = ['transformer.h.*.attn.q.weight', 'transformer.h.*.attn.k.weight', 'transformer.h.*.attn.v.weight'], axis = 1 },\n" \
  "  { from = 'transformer.h.*.attn.c_attn.bias', to = ['transformer.h.*.attn.q.bias', 'transformer.h.*.attn.k.bias', 'transformer.h.*.attn.v.bias'] },\n" \
  "]\n" \
  "[provides.pretrained.fixed]\n" \
  "scale_attn_by_inverse_layer_idx = false\n" \
  "n_special = 0\n" \
  "[provides.gguf]\n" \
  "architecture = 'gpt2'\n" \
  "f32 = ['position_embd.weight']\n" \
  "split = [\n" \
  "  { from = 'blk.*.attn_qkv.weight', to = ['transformer.h.*.attn.q.weight', 'transformer.h.*.attn.k.weight', 'transformer.h.*.attn.v.weight'] },\n" \
  "  { from = 'blk.*.attn_qkv.bias', to = ['transformer.h.*.attn.q.bias', 'transformer.h.*.attn.k.bias', 'transformer.h.*.attn.v.bias'] },\n" \
  "]\n" \
  "[provides.gguf.fixed]\n" \
  "activation_function = ['gelu_new', 'gelu_pytorch_tanh', 'gelu_fast', 'gelu_accurate', 'gelu_python_tanh']\n" \
  "scale_attn_weights = true\n" \
  "[provides.gguf.tensors]\n" \
  "'transformer.wte' = 'token_embd'\n" \
  "'transformer.wpe' = 'position_embd'\n" \
  "'transformer.ln_f' = 'output_norm'\n" \
  "'lm_head' = 'output'\n" \
  "'transformer.h.*.ln_1' = 'blk.*.attn_norm'\n" \
  "'transformer.h.*.attn.c_proj' = 'blk.*.attn_output'\n" \
  "'transformer.h.*.ln_2' = 'blk.*.ffn_norm'\n" \
  "'transformer.h.*.mlp.c_fc' = 'blk.*.ffn_up'\n" \
  "'transformer.h.*.mlp.c_proj' = 'blk.*.ffn_down'\n" \
  "[provides.gguf.keys]\n" \
  "block_count = 'num_hidden_layers'\n" \
  "context_length = 'max_position_embeddings'\n" \
  "embedding_length = 'hidden_size'\n" \
  "feed_forward_length = ['n_inner', { product = ['hidden_size', 4] }]\n" \
  "'attention.head_count' = 'num_attention_heads'\n" \
  "'attention.layer_norm_epsilon' = 'layer_norm_epsilon'\n" \
  "[provides.presets]\n"
// clang-format on
