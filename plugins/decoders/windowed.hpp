// SPDX-License-Identifier: Apache-2.0
// Descriptions of the families with windows of attention, up to their presets.
#pragma once

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
  "none = 'llama.cpp computes its layers without a window of attention'\n" \
  "[provides.presets]\n"

#define DECODERS_GEMMA(id, model_type, classes, what, vocabulary, positions, options, fixed, write) \
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
// clang-format on
