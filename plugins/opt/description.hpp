// SPDX-License-Identifier: Apache-2.0
// The plugin's description. The keys have the names of Hugging Face's config.json.
#pragma once

#include "engine/model.h"
#include "engine/plugin.h"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.opt'
name = 'OPT'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'OPT language models'

[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'opt'
summary = 'decoder with learned positions, layer norm before or after each sublayer, biases and a plain feed-forward layer'

[provides.options]
vocab_size = { type = 'int', default = 50272, min = 1, max = 2147483647, help = 'token ids are below this' }
hidden_size = { type = 'int', default = 768, min = 1, max = 1048576, help = 'width of the residual stream; a multiple of num_attention_heads', json = ['hidden_size', 'd_model'] }
ffn_dim = { type = 'int', default = 3072, min = 1, max = 4194304, help = 'width of the feed-forward layers' }
num_hidden_layers = { type = 'int', default = 12, min = 1, max = 4096, help = 'number of layers' }
num_attention_heads = { type = 'int', default = 12, min = 1, max = 65536, help = 'heads of a layer' }
max_position_embeddings = { type = 'int', default = 2048, min = 1, max = 1073741824, help = 'longest sequence; the table of positions has two more rows' }
word_embed_proj_dim = { type = 'int', min = 1, max = 1048576, help = 'width of the embeddings; if it differs from hidden_size they are projected to it and back; absent: hidden_size' }
do_layer_norm_before = { type = 'bool', default = true, help = 'layer norm before attention and feed-forward; false: after each sum, as in the 350M model' }
_remove_final_layer_norm = { type = 'bool', default = false, help = 'no layer norm before the head; without effect if do_layer_norm_before is false, because then there is none' }
enable_bias = { type = 'bool', default = true, help = 'biases on q, k, v, out, fc1 and fc2' }
layer_norm_elementwise_affine = { type = 'bool', default = true, help = 'layer norms have weight and bias' }
activation_function = { type = 'string', default = 'relu', choices = ['silu', 'swish', 'gelu', 'gelu_python', 'gelu_new', 'gelu_pytorch_tanh', 'gelu_fast', 'gelu_accurate', 'gelu_python_tanh', 'relu'], help = 'activation between fc1 and fc2; swish is silu, gelu_python is gelu, all other kinds of gelu are gelu_pytorch_tanh' }
tie_word_embeddings = { type = 'bool', default = true, help = 'the head uses the embedding matrix' }
dropout = { type = 'float', default = 0.1, min = 0.0, max = 1.0, help = 'share of elements dropped after attention and after fc2, in training', adjustable = true, resume = 'note' }
attention_dropout = { type = 'float', default = 0.0, min = 0.0, max = 1.0, help = 'must be 0: dropout of attention weights is not supported', adjustable = true }
layerdrop = { type = 'float', default = 0.0, min = 0.0, max = 1.0, help = 'must be 0: skipping layers at random is not supported', adjustable = true }
init = { type = 'string', default = 'hf', choices = ['hf', 'paper'], help = 'standard deviation of new matrices. hf: init_std everywhere; paper: out_proj and fc2 are divided by sqrt(2 x num_hidden_layers)', json = [] }
init_std = { type = 'float', min = 0.0, max = 1.0, help = 'standard deviation of new matrices; absent: 0.02, or 0.006 if init is paper', adjustable = true }
)" R"(

[provides.pretrained]
model_type = 'opt'
architectures = ['OPTForCausalLM', 'OPTModel']
ignore = ['activation_dropout']
rename = [['decoder.', 'model.decoder.']]
tied = [['lm_head.weight', 'model.decoder.embed_tokens.weight']]
ignore_tensors = ['decoder.version']

[provides.gguf]
none = 'llama.cpp does not know OPT'

# 891,904 parameters over bytes, for a first run
[provides.presets.'tiny']
vocab_size = 256
hidden_size = 128
ffn_dim = 512
num_hidden_layers = 4
num_attention_heads = 4
max_position_embeddings = 512

# 125,239,296 parameters
[provides.presets.'125m']
vocab_size = 50272
hidden_size = 768
ffn_dim = 3072
num_hidden_layers = 12
num_attention_heads = 12
max_position_embeddings = 2048

# 331,196,416 parameters
[provides.presets.'350m']
vocab_size = 50272
hidden_size = 1024
ffn_dim = 4096
num_hidden_layers = 24
num_attention_heads = 16
max_position_embeddings = 2048
word_embed_proj_dim = 512
do_layer_norm_before = false

# 1,315,758,080 parameters
[provides.presets.'1.3b']
vocab_size = 50272
hidden_size = 2048
ffn_dim = 8192
num_hidden_layers = 24
num_attention_heads = 32
max_position_embeddings = 2048

# 2,651,596,800 parameters
[provides.presets.'2.7b']
vocab_size = 50272
hidden_size = 2560
ffn_dim = 10240
num_hidden_layers = 32
num_attention_heads = 32
max_position_embeddings = 2048

# 6,658,473,984 parameters
[provides.presets.'6.7b']
vocab_size = 50272
hidden_size = 4096
ffn_dim = 16384
num_hidden_layers = 32
num_attention_heads = 32
max_position_embeddings = 2048

# 12,853,473,280 parameters
[provides.presets.'13b']
vocab_size = 50272
hidden_size = 5120
ffn_dim = 20480
num_hidden_layers = 40
num_attention_heads = 40
max_position_embeddings = 2048

# 29,974,540,288 parameters
[provides.presets.'30b']
vocab_size = 50272
hidden_size = 7168
ffn_dim = 28672
num_hidden_layers = 48
num_attention_heads = 56
max_position_embeddings = 2048

# 65,719,701,504 parameters
[provides.presets.'66b']
vocab_size = 50272
hidden_size = 9216
ffn_dim = 36864
num_hidden_layers = 64
num_attention_heads = 72
max_position_embeddings = 2048
)")
// clang-format on
