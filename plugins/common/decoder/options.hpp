// SPDX-License-Identifier: Apache-2.0
// Options of decoders, as parts of descriptions: `R"(...)" DECODER_ROPE_OPTIONS R"(...)"`. The keys of Hugging Face's
// rope_parameters (rope_scaling in older files) get the prefix rope_.
#pragma once

// clang-format off
#define DECODER_ROPE_OPTIONS \
  "rope_theta = { type = 'float', default = 10000.0, min = 1.0, help = 'base of the rotary frequencies', json = ['rope_theta', 'rope_parameters.rope_theta', 'rope_scaling.rope_theta'], adjustable = true }\n" \
  "rope_type = { type = 'string', default = 'default', choices = ['default', 'linear', 'dynamic', 'yarn', 'longrope', 'llama3'], help = 'how the rotary frequencies are scaled for long sequences', json = ['rope_scaling.rope_type', 'rope_scaling.type', 'rope_parameters.rope_type', 'rope_parameters.type'], adjustable = true }\n" \
  "rope_factor = { type = 'float', min = 1.0, help = 'how many times longer the sequences become; for all types except default. yarn and longrope, if absent: max_position_embeddings / rope_original_max_position_embeddings', json = ['rope_scaling.factor', 'rope_parameters.factor'], adjustable = true }\n" \
  "rope_original_max_position_embeddings = { type = 'int', min = 1, max = 1073741824, help = 'sequence length before scaling (yarn, longrope, llama3); absent: max_position_embeddings', json = ['rope_scaling.original_max_position_embeddings', 'rope_parameters.original_max_position_embeddings', 'original_max_position_embeddings'], adjustable = true }\n" \
  "rope_attention_factor = { type = 'float', above = 0.0, help = 'multiplies cos and sin (yarn, longrope); absent: the formula of the type', json = ['rope_scaling.attention_factor', 'rope_parameters.attention_factor'], adjustable = true }\n" \
  "rope_low_freq_factor = { type = 'float', min = 0.0, help = 'llama3: frequencies with fewer turns over the original length are divided by rope_factor', json = ['rope_scaling.low_freq_factor', 'rope_parameters.low_freq_factor'], adjustable = true }\n" \
  "rope_high_freq_factor = { type = 'float', min = 0.0, help = 'llama3: frequencies with more turns over the original length stay unchanged', json = ['rope_scaling.high_freq_factor', 'rope_parameters.high_freq_factor'], adjustable = true }\n" \
  "rope_beta_fast = { type = 'float', default = 32.0, above = 0.0, help = 'yarn: channels with more turns over the original length stay unchanged', json = ['rope_scaling.beta_fast', 'rope_parameters.beta_fast'], adjustable = true }\n" \
  "rope_beta_slow = { type = 'float', default = 1.0, above = 0.0, help = 'yarn: channels with fewer turns over the original length are divided by rope_factor', json = ['rope_scaling.beta_slow', 'rope_parameters.beta_slow'], adjustable = true }\n" \
  "rope_short_factor = { type = 'floats', help = 'longrope: divisor of each frequency for sequences up to the original length', json = ['rope_scaling.short_factor', 'rope_parameters.short_factor'], adjustable = true }\n" \
  "rope_long_factor = { type = 'floats', help = 'longrope: divisor of each frequency for longer sequences', json = ['rope_scaling.long_factor', 'rope_parameters.long_factor'], adjustable = true }\n"
// clang-format on
