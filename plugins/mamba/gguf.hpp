// SPDX-License-Identifier: Apache-2.0
// The layers of Mamba as llama.cpp calls them: [provides.gguf] of mamba and falcon_mamba.
#pragma once

// clang-format off
// `scale`, `keys`: of one of them alone. A model without attention has no context length of its own; 2^20 is
// that of the files that llama.cpp's own conversion makes.
#define MAMBA_GGUF(scale, keys) \
  "[provides.gguf]\n" \
  "architecture = 'mamba'\n" \
  "negative_exp = ['blk.*.ssm_a']\n" \
  "squeeze = ['blk.*.ssm_conv1d.weight']\n" \
  "f32 = ['blk.*.ssm_conv1d.weight']\n" \
  "[provides.gguf.fixed]\n" \
  "use_bias = false\n" \
  "use_conv_bias = true\n" \
  "[provides.gguf.require]\n" \
  "'ssm.inner_size' = { product = ['hidden_size', 2] }\n" \
  scale \
  "[provides.gguf.tensors]\n" \
  "'backbone.embeddings' = 'token_embd'\n" \
  "'backbone.norm_f' = 'output_norm'\n" \
  "'lm_head' = 'output'\n" \
  "'backbone.layers.*.norm' = 'blk.*.attn_norm'\n" \
  "'backbone.layers.*.mixer.in_proj' = 'blk.*.ssm_in'\n" \
  "'backbone.layers.*.mixer.conv1d' = 'blk.*.ssm_conv1d'\n" \
  "'backbone.layers.*.mixer.x_proj' = 'blk.*.ssm_x'\n" \
  "'backbone.layers.*.mixer.dt_proj' = 'blk.*.ssm_dt'\n" \
  "'backbone.layers.*.mixer.A_log' = 'blk.*.ssm_a'\n" \
  "'backbone.layers.*.mixer.D' = 'blk.*.ssm_d'\n" \
  "'backbone.layers.*.mixer.out_proj' = 'blk.*.ssm_out'\n" \
  "[provides.gguf.keys]\n" \
  "block_count = 'num_hidden_layers'\n" \
  "context_length = 1048576\n" \
  "embedding_length = 'hidden_size'\n" \
  "feed_forward_length = 0\n" \
  "'attention.head_count' = 0\n" \
  "'attention.layer_norm_rms_epsilon' = 'layer_norm_epsilon'\n" \
  "'ssm.conv_kernel' = 'conv_kernel'\n" \
  "'ssm.inner_size' = ['intermediate_size', { product = ['expand', 'hidden_size'] }]\n" \
  "'ssm.state_size' = 'state_size'\n" \
  "'ssm.time_step_rank' = ['time_step_rank', { quotient = ['hidden_size', 16] }]\n" \
  keys

// With norms of the time step, B and C. llama.cpp has one epsilon for all norms. The inner norms have no weights, and so a
// factor of their input makes this epsilon theirs: s x / sqrt(mean((s x)^2) + e) = x / sqrt(mean(x^2) + e / s^2).
#define MAMBA_GGUF_NORMED \
  MAMBA_GGUF( \
    "[provides.gguf.scale]\n" \
    "'blk.*.ssm_x' = [{ by = [{ root = { ratio = ['layer_norm_epsilon', 'mixer_rms_eps'] } }] }]\n", \
    "'ssm.dt_b_c_rms' = true\n")
// clang-format on
