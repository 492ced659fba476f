// SPDX-License-Identifier: Apache-2.0
// The plugin's description. The keys have the names of Hugging Face's config.json.
#pragma once

#include "../common/decoder/gguf.hpp"
#include "../common/decoder/options.hpp"
#include "engine/model.h"
#include "engine/plugin.h"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.llama'
name = 'LLaMA'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'LLaMA 1, 2 and 3 language models'

[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'llama'
summary = 'decoder with rotary embedding, grouped-query attention, RMS norm and a gated feed-forward layer'

[provides.options]
vocab_size = { type = 'int', default = 32000, min = 1, max = 2147483647, help = 'token ids are below this' }
hidden_size = { type = 'int', default = 4096, min = 2, max = 1048576, help = 'width of the residual stream; a multiple of num_attention_heads' }
intermediate_size = { type = 'int', default = 11008, min = 1, max = 4194304, help = 'width of the feed-forward layers' }
num_hidden_layers = { type = 'int', default = 32, min = 1, max = 4096, help = 'number of layers' }
num_attention_heads = { type = 'int', default = 32, min = 1, max = 65536, help = 'query heads of a layer' }
num_key_value_heads = { type = 'int', min = 1, max = 65536, help = 'key and value heads, a divisor of num_attention_heads; absent: num_attention_heads' }
head_dim = { type = 'int', min = 2, max = 65536, help = 'size of one head, even; absent: hidden_size / num_attention_heads' }
hidden_act = { type = 'string', default = 'silu', choices = ['silu', 'swish', 'gelu', 'gelu_python', 'gelu_new', 'gelu_pytorch_tanh', 'gelu_fast', 'gelu_accurate', 'gelu_python_tanh', 'relu'], help = 'activation of the gate; swish is silu, gelu_python is gelu, all other kinds of gelu are gelu_pytorch_tanh' }
max_position_embeddings = { type = 'int', default = 2048, min = 1, max = 1073741824, help = 'longest sequence the model is trained for', adjustable = true }
rms_norm_eps = { type = 'float', default = 1e-6, min = 0.0, max = 1.0, help = 'added to the mean square before the root; 1e-5 from LLaMA 2 on' }
initializer_range = { type = 'float', default = 0.02, min = 0.0, max = 1.0, help = 'standard deviation of new matrices', adjustable = true }
init_depth_scale = { type = 'bool', default = false, help = 'new o_proj and down_proj matrices are divided by sqrt(2 x num_hidden_layers)', json = [] }
tie_word_embeddings = { type = 'bool', default = false, help = 'the head uses the embedding matrix' }
attention_bias = { type = 'bool', default = false, help = 'biases on q, k, v and o' }
mlp_bias = { type = 'bool', default = false, help = 'biases on gate, up and down' }
)" DECODER_ROPE_OPTIONS R"(

[provides.pretrained]
model_type = 'llama'
architectures = ['LlamaForCausalLM', 'LLaMAForCausalLM', 'LlamaModel']
ignore = ['pretraining_tp', 'max_sequence_length', 'is_llama_config', 'rope_scaling.mscale', 'rope_parameters.mscale', 'rope_scaling.finetuned']
ignore_tensors = ['.rotary_emb.inv_freq', '.rotary_emb.cos_cached', '.rotary_emb.sin_cached']
tied = [['lm_head.weight', 'model.embed_tokens.weight']]

[provides.pretrained.fixed]
attention_dropout = 0.0
partial_rotary_factor = 1.0
'rope_parameters.partial_rotary_factor' = 1.0
'rope_scaling.partial_rotary_factor' = 1.0
# yarn: limits of the ramp that are no whole channels; mscale, which has an effect together with mscale_all_dim alone
'rope_parameters.truncate' = true
'rope_scaling.truncate' = true
'rope_parameters.mscale_all_dim' = 0.0
'rope_scaling.mscale_all_dim' = 0.0

[provides.pretrained.write]
attention_dropout = 0.0

[provides.gguf]
architecture = 'llama'
rope = ['default', 'linear', 'yarn', 'llama3']

[provides.gguf.fixed]
hidden_act = ['silu', 'swish']

)" DECODER_GGUF_INTERLEAVED DECODER_GGUF R"(
# about one million parameters over bytes, for a first run
[provides.presets.'tiny']
vocab_size = 256
hidden_size = 128
intermediate_size = 352
num_hidden_layers = 5
num_attention_heads = 4
max_position_embeddings = 2048
rms_norm_eps = 1e-5

# 58,073,600 parameters: the model of the speed comparison
[provides.presets.'bench']
vocab_size = 32000
hidden_size = 512
intermediate_size = 1376
num_hidden_layers = 8
num_attention_heads = 8
max_position_embeddings = 2048
rms_norm_eps = 1e-5

[provides.presets.'160m']
vocab_size = 32000
hidden_size = 768
intermediate_size = 3072
num_hidden_layers = 12
num_attention_heads = 12
max_position_embeddings = 2048
rms_norm_eps = 1e-6

[provides.presets.'tinyllama']
vocab_size = 32000
hidden_size = 2048
intermediate_size = 5632
num_hidden_layers = 22
num_attention_heads = 32
num_key_value_heads = 4
max_position_embeddings = 2048
rms_norm_eps = 1e-5

# LLaMA 1
[provides.presets.'7b']
vocab_size = 32000
hidden_size = 4096
intermediate_size = 11008
num_hidden_layers = 32
num_attention_heads = 32
max_position_embeddings = 2048
rms_norm_eps = 1e-6

# LLaMA 1
[provides.presets.'13b']
vocab_size = 32000
hidden_size = 5120
intermediate_size = 13824
num_hidden_layers = 40
num_attention_heads = 40
max_position_embeddings = 2048
rms_norm_eps = 1e-6

# LLaMA 1
[provides.presets.'30b']
vocab_size = 32000
hidden_size = 6656
intermediate_size = 17920
num_hidden_layers = 60
num_attention_heads = 52
max_position_embeddings = 2048
rms_norm_eps = 1e-6

[provides.presets.'llama-2-70b']
vocab_size = 32000
hidden_size = 8192
intermediate_size = 28672
num_hidden_layers = 80
num_attention_heads = 64
num_key_value_heads = 8
max_position_embeddings = 4096
rms_norm_eps = 1e-5

[provides.presets.'llama-3-8b']
vocab_size = 128256
hidden_size = 4096
intermediate_size = 14336
num_hidden_layers = 32
num_attention_heads = 32
num_key_value_heads = 8
max_position_embeddings = 8192
rms_norm_eps = 1e-5
rope_theta = 500000.0

[provides.presets.'llama-3.2-1b']
vocab_size = 128256
hidden_size = 2048
intermediate_size = 8192
num_hidden_layers = 16
num_attention_heads = 32
num_key_value_heads = 8
head_dim = 64
max_position_embeddings = 131072
rms_norm_eps = 1e-5
tie_word_embeddings = true
rope_theta = 500000.0
rope_type = 'llama3'
rope_factor = 32.0
rope_low_freq_factor = 1.0
rope_high_freq_factor = 4.0
rope_original_max_position_embeddings = 8192

[provides.presets.'llama-3.2-3b']
vocab_size = 128256
hidden_size = 3072
intermediate_size = 8192
num_hidden_layers = 28
num_attention_heads = 24
num_key_value_heads = 8
head_dim = 128
max_position_embeddings = 131072
rms_norm_eps = 1e-5
tie_word_embeddings = true
rope_theta = 500000.0
rope_type = 'llama3'
rope_factor = 32.0
rope_low_freq_factor = 1.0
rope_high_freq_factor = 4.0
rope_original_max_position_embeddings = 8192

[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'qwen2'
summary = 'Qwen2 and Qwen2.5: as llama, with biases on q, k and v'

[provides.options]
vocab_size = { type = 'int', default = 151936, min = 1, max = 2147483647, help = 'token ids are below this' }
hidden_size = { type = 'int', default = 4096, min = 2, max = 1048576, help = 'width of the residual stream; a multiple of num_attention_heads' }
intermediate_size = { type = 'int', default = 22016, min = 1, max = 4194304, help = 'width of the feed-forward layers' }
num_hidden_layers = { type = 'int', default = 32, min = 1, max = 4096, help = 'number of layers' }
num_attention_heads = { type = 'int', default = 32, min = 1, max = 65536, help = 'query heads of a layer' }
num_key_value_heads = { type = 'int', min = 1, max = 65536, help = 'key and value heads, a divisor of num_attention_heads; absent: num_attention_heads' }
head_dim = { type = 'int', min = 2, max = 65536, help = 'size of one head, even; absent: hidden_size / num_attention_heads' }
hidden_act = { type = 'string', default = 'silu', choices = ['silu', 'swish', 'gelu', 'gelu_python', 'gelu_new', 'gelu_pytorch_tanh', 'gelu_fast', 'gelu_accurate', 'gelu_python_tanh', 'relu'], help = 'activation of the gate; swish is silu, gelu_python is gelu, all other kinds of gelu are gelu_pytorch_tanh' }
max_position_embeddings = { type = 'int', default = 32768, min = 1, max = 1073741824, help = 'longest sequence the model is trained for', adjustable = true }
rms_norm_eps = { type = 'float', default = 1e-6, min = 0.0, max = 1.0, help = 'added to the mean square before the root' }
initializer_range = { type = 'float', default = 0.02, min = 0.0, max = 1.0, help = 'standard deviation of new matrices', adjustable = true }
init_depth_scale = { type = 'bool', default = false, help = 'new o_proj and down_proj matrices are divided by sqrt(2 x num_hidden_layers)', json = [] }
tie_word_embeddings = { type = 'bool', default = false, help = 'the head uses the embedding matrix' }
)" DECODER_ROPE_OPTIONS R"(
[provides.pretrained]
model_type = 'qwen2'
architectures = ['Qwen2ForCausalLM', 'Qwen2Model']
ignore = ['sliding_window', 'rope_scaling.mscale', 'rope_parameters.mscale']
ignore_tensors = ['.rotary_emb.inv_freq']
tied = [['lm_head.weight', 'model.embed_tokens.weight']]

[provides.pretrained.fixed]
attention_dropout = 0.0
partial_rotary_factor = 1.0
'rope_parameters.partial_rotary_factor' = 1.0
'rope_scaling.partial_rotary_factor' = 1.0
'rope_parameters.truncate' = true
'rope_scaling.truncate' = true
'rope_parameters.mscale_all_dim' = 0.0
'rope_scaling.mscale_all_dim' = 0.0

# sliding_window has an effect together with use_sliding_window alone
[provides.pretrained.write]
attention_dropout = 0.0
use_sliding_window = false
# where it is absent, transformers takes 32
num_key_value_heads = { product = ['num_attention_heads'] }

[provides.gguf]
architecture = 'qwen2'
rope = ['default', 'linear', 'yarn']

[provides.gguf.fixed]
hidden_act = ['silu', 'swish']

)" DECODER_GGUF R"(
# 1,072,384 parameters over bytes, for a first run
[provides.presets.'tiny']
vocab_size = 256
hidden_size = 128
intermediate_size = 352
num_hidden_layers = 5
num_attention_heads = 4
max_position_embeddings = 2048

# 494,032,768 parameters
[provides.presets.'qwen2.5-0.5b']
vocab_size = 151936
hidden_size = 896
intermediate_size = 4864
num_hidden_layers = 24
num_attention_heads = 14
num_key_value_heads = 2
max_position_embeddings = 32768
tie_word_embeddings = true
rope_theta = 1000000.0

# 1,543,714,304 parameters
[provides.presets.'qwen2.5-1.5b']
vocab_size = 151936
hidden_size = 1536
intermediate_size = 8960
num_hidden_layers = 28
num_attention_heads = 12
num_key_value_heads = 2
max_position_embeddings = 131072
tie_word_embeddings = true
rope_theta = 1000000.0

# 7,615,616,512 parameters
[provides.presets.'qwen2.5-7b']
vocab_size = 152064
hidden_size = 3584
intermediate_size = 18944
num_hidden_layers = 28
num_attention_heads = 28
num_key_value_heads = 4
max_position_embeddings = 131072
rope_theta = 1000000.0
)")
// clang-format on
