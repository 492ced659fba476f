// SPDX-License-Identifier: Apache-2.0
// Options of decoders, as parts of descriptions: `R"(...)" DECODER_ROPE_OPTIONS R"(...)"`. The keys of Hugging Face's
// rope_parameters (rope_scaling in older files) get the prefix rope_. Arguments of macros are the defaults.
#pragma once

// clang-format off
#define DECODER_SIZE_OPTIONS(vocabulary, hidden, ffn, layers, heads, positions) \
  "vocab_size = { type = 'int', default = " #vocabulary ", min = 1, max = 2147483647, help = 'token ids are below this' }\n" \
  "hidden_size = { type = 'int', default = " #hidden ", min = 2, max = 1048576, help = 'width of the residual stream; a multiple of num_attention_heads' }\n" \
  "intermediate_size = { type = 'int', default = " #ffn ", min = 1, max = 4194304, help = 'width of the feed-forward layers' }\n" \
  "num_hidden_layers = { type = 'int', default = " #layers ", min = 1, max = 4096, help = 'number of layers' }\n" \
  "num_attention_heads = { type = 'int', default = " #heads ", min = 1, max = 65536, help = 'query heads of a layer' }\n" \
  "max_position_embeddings = { type = 'int', default = " #positions ", min = 1, max = 1073741824, help = 'longest sequence the model is trained for', adjustable = true }\n"
// `default_or_none`: "default = 4, " or "".
#define DECODER_GROUPED_HEADS(default_or_none, absent) \
  "num_key_value_heads = { type = 'int', " default_or_none "min = 1, max = 65536, help = 'key and value heads, a divisor of num_attention_heads; absent: " absent "' }\n"
#define DECODER_ACTIVATION(usual, what) DECODER_ACTIVATION_AS("hidden_act", usual, what)
#define DECODER_ACTIVATION_AS(key, usual, what) \
  key " = { type = 'string', default = '" usual "', choices = ['silu', 'swish', 'gelu', 'gelu_python', 'gelu_new', 'gelu_pytorch_tanh', 'gelu_fast', 'gelu_accurate', 'gelu_python_tanh', 'relu'], help = 'activation of the " what "; swish is silu, gelu_python is gelu, all other kinds of gelu are gelu_pytorch_tanh' }\n"
#define DECODER_RMS_NORM(eps) \
  "rms_norm_eps = { type = 'float', default = " #eps ", min = 0.0, max = 1.0, help = 'added to the mean square before the root' }\n"
// `out`: the matrices that init_depth_scale is about.
#define DECODER_INIT(out) \
  "initializer_range = { type = 'float', default = 0.02, min = 0.0, max = 1.0, help = 'standard deviation of new matrices', adjustable = true }\n" \
  "init_depth_scale = { type = 'bool', default = false, help = 'new " out " matrices are divided by sqrt(2 x num_hidden_layers)', json = [] }\n"
#define DECODER_TIED(tied) \
  "tie_word_embeddings = { type = 'bool', default = " #tied ", help = 'the head uses the embedding matrix' }\n"
#define DECODER_BIAS(key, maps) \
  #key " = { type = 'bool', default = false, help = 'biases on " maps "' }\n"
#define DECODER_FACTOR(key, usual, what) \
  #key " = { type = 'float', default = " #usual ", above = 0.0, help = '" what "' }\n"

// `default_or_none`: "default = 4096, " or "".
#define DECODER_WINDOW(default_or_none, absent) \
  "sliding_window = { type = 'int', " default_or_none "min = 1, max = 1073741824, help = 'window of attention: as many keys as a query sees, its own included" absent "' }\n"
#define DECODER_LAYER_TYPES(absent) \
  "layer_types = { type = 'strings', help = 'for each layer sliding_attention if it has the window, or full_attention; absent: " absent "' }\n"

#define DECODER_ROPE_OPTIONS DECODER_ROPE_OPTIONS_OF(10000.0, "'rope_theta'", DECODER_ROPE_TYPES, DECODER_ROPE_ORIGINAL)
#define DECODER_ROPE_TYPES "'default', 'linear', 'dynamic', 'yarn', 'longrope', 'llama3'"
#define DECODER_ROPE_ORIGINAL \
  "rope_original_max_position_embeddings = { type = 'int', min = 1, max = 1073741824, help = 'sequence length before scaling (yarn, longrope, llama3); absent: max_position_embeddings', json = ['rope_scaling.original_max_position_embeddings', 'rope_parameters.original_max_position_embeddings', 'original_max_position_embeddings'], adjustable = true }\n"
// `keys`: where the base is at the top of config.json; `original`: the option of the length before scaling.
#define DECODER_ROPE_OPTIONS_OF(theta, keys, types, original) \
  "rope_theta = { type = 'float', default = " #theta ", min = 1.0, help = 'base of the rotary frequencies', json = [" keys ", 'rope_parameters.rope_theta', 'rope_scaling.rope_theta'], adjustable = true }\n" \
  "rope_type = { type = 'string', default = 'default', choices = [" types "], help = 'how the rotary frequencies are scaled for long sequences', json = ['rope_scaling.rope_type', 'rope_scaling.type', 'rope_parameters.rope_type', 'rope_parameters.type'], adjustable = true }\n" \
  "rope_factor = { type = 'float', min = 1.0, help = 'how many times longer the sequences become; for all types except default. yarn and longrope, if absent: max_position_embeddings / rope_original_max_position_embeddings', json = ['rope_scaling.factor', 'rope_parameters.factor'], adjustable = true }\n" \
  original \
  "rope_attention_factor = { type = 'float', above = 0.0, help = 'multiplies cos and sin (yarn, longrope); absent: the formula of the type', json = ['rope_scaling.attention_factor', 'rope_parameters.attention_factor'], adjustable = true }\n" \
  "rope_low_freq_factor = { type = 'float', min = 0.0, help = 'llama3: frequencies with fewer turns over the original length are divided by rope_factor', json = ['rope_scaling.low_freq_factor', 'rope_parameters.low_freq_factor'], adjustable = true }\n" \
  "rope_high_freq_factor = { type = 'float', min = 0.0, help = 'llama3: frequencies with more turns over the original length stay unchanged', json = ['rope_scaling.high_freq_factor', 'rope_parameters.high_freq_factor'], adjustable = true }\n" \
  "rope_beta_fast = { type = 'float', default = 32.0, above = 0.0, help = 'yarn: channels with more turns over the original length stay unchanged', json = ['rope_scaling.beta_fast', 'rope_parameters.beta_fast'], adjustable = true }\n" \
  "rope_beta_slow = { type = 'float', default = 1.0, above = 0.0, help = 'yarn: channels with fewer turns over the original length are divided by rope_factor', json = ['rope_scaling.beta_slow', 'rope_parameters.beta_slow'], adjustable = true }\n" \
  "rope_short_factor = { type = 'floats', help = 'longrope: divisor of each frequency for sequences up to the original length', json = ['rope_scaling.short_factor', 'rope_parameters.short_factor'], adjustable = true }\n" \
  "rope_long_factor = { type = 'floats', help = 'longrope: divisor of each frequency for longer sequences', json = ['rope_scaling.long_factor', 'rope_parameters.long_factor'], adjustable = true }\n"

// In [provides.pretrained.fixed]: yarn with limits of the ramp that are no whole channels, or with mscale, which has an
// effect together with mscale_all_dim alone; dropout of attention weights.
#define DECODER_FIXED \
  "attention_dropout = 0.0\n" \
  "'rope_parameters.truncate' = true\n" \
  "'rope_scaling.truncate' = true\n" \
  "'rope_parameters.mscale_all_dim' = 0.0\n" \
  "'rope_scaling.mscale_all_dim' = 0.0\n"
// Rotary embedding of whole heads.
#define DECODER_WHOLE_HEADS \
  "partial_rotary_factor = 1.0\n" \
  "'rope_parameters.partial_rotary_factor' = 1.0\n" \
  "'rope_scaling.partial_rotary_factor' = 1.0\n"
// clang-format on
