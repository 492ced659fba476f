// SPDX-License-Identifier: Apache-2.0
// Descriptions of the families with windows of attention, up to their presets.
#pragma once

#include "../common/decoder/gguf.hpp"
#include "../common/decoder/options.hpp"

// clang-format off
#define DECODERS_MISTRAL(id, class_name, what, layer_types) \
  "[[provides]]\n" \
  "kind = '" ENG_MODEL_DRAFT "'\n" \
  "name = '" id "'\n" \
  "summary = '" class_name ": " what "'\n" \
  "[provides.options]\n" \
  DECODER_SIZE_OPTIONS(32000, 4096, 14336, 32, 32, 131072) \
  DECODER_GROUPED_HEADS("default = 8, ", "8") \
  "head_dim = { type = 'int', min = 2, max = 65536, help = 'size of one head, even; absent: hidden_size / num_attention_heads' }\n" \
  DECODER_ACTIVATION("silu", "gate") \
  DECODER_RMS_NORM(1e-6) \
  DECODER_INIT("o_proj and down_proj") \
  DECODER_TIED(false) \
  DECODER_WINDOW("", "; absent: all before it") \
  layer_types \
  DECODER_ROPE_OPTIONS \
  "[provides.pretrained]\n" \
  "model_type = '" id "'\n" \
  "architectures = ['" class_name "ForCausalLM', '" class_name "Model']\n" \
  "ignore = ['rope_scaling.mscale', 'rope_parameters.mscale']\n" \
  "ignore_tensors = ['.rotary_emb.inv_freq']\n" \
  "tied = [['lm_head.weight', 'model.embed_tokens.weight']]\n" \
  "[provides.pretrained.fixed]\n" \
  "attention_bias = false\n" \
  "mlp_bias = false\n" \
  DECODER_FIXED DECODER_WHOLE_HEADS \
  "[provides.pretrained.write]\n" \
  "attention_dropout = 0.0\n" \
  "[provides.gguf]\n" \
  "architecture = 'llama'\n" \
  "rope = ['default', 'linear', 'yarn', 'llama3']\n" \
  "notes = [" DECODER_GGUF_WINDOW_NOTE "]\n" \
  "[provides.gguf.fixed]\n" \
  "hidden_act = ['silu', 'swish']\n" \
  DECODER_GGUF_INTERLEAVED \
  DECODER_GGUF_IN(DECODER_GGUF_WINDOW, DECODER_GGUF_NORMS, DECODER_GGUF_OWN_HEAD, DECODER_GGUF_OWN_HEAD, "") \
  "[provides.presets]\n"

#define DECODERS_GEMMA(id, model_type, classes, what, vocabulary, positions, options, fixed, write, gguf) \
  "[[provides]]\n" \
  "kind = '" ENG_MODEL_DRAFT "'\n" \
  "name = '" id "'\n" \
  "summary = '" what "'\n" \
  "[provides.options]\n" \
  DECODER_SIZE_OPTIONS(vocabulary, 2304, 9216, 26, 8, positions) \
  DECODER_GROUPED_HEADS("default = 4, ", "4") \
  "head_dim = { type = 'int', default = 256, min = 2, max = 65536, help = 'size of one head, even' }\n" \
  DECODER_ACTIVATION_AS("hidden_activation", "gelu_pytorch_tanh", "gate") \
  DECODER_RMS_NORM(1e-6) \
  DECODER_INIT("o_proj and down_proj") \
  DECODER_TIED(true) \
  DECODER_BIAS(attention_bias, "q, k, v and o") \
  "query_pre_attn_scalar = { type = 'int', default = 256, min = 1, max = 1048576, help = 'products of queries and keys are divided by its root' }\n" \
  DECODER_WINDOW("default = 4096, ", "") \
  options \
  "[provides.pretrained]\n" \
  "model_type = '" model_type "'\n" \
  "architectures = [" classes "]\n" \
  "ignore = ['hidden_act', '_sliding_window_pattern', 'rope_scaling.mscale', 'rope_parameters.mscale']\n" \
  "ignore_tensors = ['.rotary_emb.inv_freq']\n" \
  "tied = [['lm_head.weight', 'model.embed_tokens.weight']]\n" \
  "[provides.pretrained.fixed]\n" \
  "use_bidirectional_attention = false\n" \
  fixed \
  "[provides.pretrained.write]\n" \
  "attention_dropout = 0.0\n" \
  write \
  gguf \
  "[provides.presets]\n"

#define DECODERS_GEMMA3_OPTIONS \
  "sliding_window_pattern = { type = 'int', min = 1, max = 4096, help = 'every layer with a number that it divides, counted from 1, has no window; absent: 6; without effect beside layer_types' }\n" \
  DECODER_LAYER_TYPES("as sliding_window_pattern says") \
  "rope_theta = { type = 'float', default = 1000000.0, min = 1.0, help = 'base of the rotary frequencies in layers without the window', json = ['rope_theta', 'rope_parameters.full_attention.rope_theta'], adjustable = true }\n" \
  "rope_local_base_freq = { type = 'float', default = 10000.0, above = 1.0, help = 'base of the rotary frequencies in layers with the window', json = ['rope_local_base_freq', 'rope_parameters.sliding_attention.rope_theta'], adjustable = true }\n" \
  "rope_type = { type = 'string', default = 'default', choices = ['default', 'linear'], help = 'how the rotary frequencies of layers without the window are scaled for long sequences', json = ['rope_scaling.rope_type', 'rope_scaling.type', 'rope_parameters.full_attention.rope_type'], adjustable = true }\n" \
  "rope_factor = { type = 'float', min = 1.0, help = 'linear: how many times longer the sequences become', json = ['rope_scaling.factor', 'rope_parameters.full_attention.factor'], adjustable = true }\n"
#define DECODERS_GEMMA3_FIXED \
  "attention_dropout = 0.0\n" \
  "'rope_parameters.sliding_attention.rope_type' = 'default'\n"

#define DECODERS_GEMMA2_OPTIONS \
  DECODER_LAYER_TYPES("every other layer, from the first on, has it") \
  "attn_logit_softcapping = { type = 'float', above = 0.0, help = 'scores of attention become this x tanh(score / this); absent: they stay' }\n" \
  "final_logit_softcapping = { type = 'float', above = 0.0, help = 'logits become this x tanh(logit / this); absent: they stay' }\n" \
  DECODER_ROPE_OPTIONS
#define DECODERS_GEMMA2_FIXED DECODER_FIXED DECODER_WHOLE_HEADS

// llama.cpp: a window in all layers but each `every`-th one, and scores divided by the root of the size of a head. In
// models of `big` layers, which it takes for 27B, it is that of hidden_size / num_attention_heads.
#define DECODERS_GEMMA_GGUF(id, every, big, norms, plus_one, fixed, keys) \
  "[provides.gguf]\n" \
  "architecture = '" id "'\n" \
  "rope = ['default', 'linear']\n" \
  "plus_one = ['output_norm', 'blk.*.attn_norm', 'blk.*.post_attention_norm', 'blk.*.ffn_norm', 'blk.*.post_ffw_norm'" plus_one "]\n" \
  "[provides.gguf.fixed]\n" \
  "hidden_activation = ['gelu_pytorch_tanh', 'gelu_new', 'gelu_fast', 'gelu_accurate', 'gelu_python_tanh']\n" \
  "attention_bias = false\n" \
  "tie_word_embeddings = true\n" \
  fixed \
  "[provides.gguf.layers]\n" \
  "layer_types = { every = " #every ", is = 'full_attention', others = 'sliding_attention' }\n" \
  "[provides.gguf.require]\n" \
  "query_pre_attn_scalar = [{ quotient = ['hidden_size', 'num_attention_heads'], where = { num_hidden_layers = " #big " } }, 'head_dim']\n" \
  DECODER_GGUF_OF( \
      "'model.layers.*.input_layernorm' = 'blk.*.attn_norm'\n" \
      "'model.layers.*.post_attention_layernorm' = 'blk.*.post_attention_norm'\n" \
      "'model.layers.*.pre_feedforward_layernorm' = 'blk.*.ffn_norm'\n" \
      "'model.layers.*.post_feedforward_layernorm' = 'blk.*.post_ffw_norm'\n" norms, \
      "'head_dim'", "'attention.sliding_window' = 'sliding_window'\n" keys)
// It always caps scores and logits: a cap of a million changes nothing.
#define DECODERS_GEMMA2_GGUF \
  DECODERS_GEMMA_GGUF("gemma2", 2, 46, "", "", "", \
                      "attn_logit_softcapping = ['attn_logit_softcapping', 1000000.0]\n" \
                      "final_logit_softcapping = ['final_logit_softcapping', 1000000.0]\n")
#define DECODERS_GEMMA3_GGUF \
  DECODERS_GEMMA_GGUF("gemma3", 6, 62, DECODER_GGUF_HEAD_NORMS, ", 'blk.*.attn_q_norm', 'blk.*.attn_k_norm'", \
                      "sliding_window_pattern = [{}, 6]\n", "'rope.freq_base_swa' = 'rope_local_base_freq'\n")
// clang-format on
