// SPDX-License-Identifier: Apache-2.0
// The plugin's description. The keys have the names of Hugging Face's config.json.
#pragma once

#include "engine/model.h"
#include "engine/op.h"
#include "engine/plugin.h"
#include "gguf.hpp"
#include "hybrid/description.hpp"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.mamba'
name = 'Mamba'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'Mamba-1, Mamba-2 and Falcon-Mamba language models, and their ops: two scans, the causal convolution, the gated norm'

[[provides]]
kind = ')" ENG_OPS_DRAFT R"('
name = 'mamba'
summary = 'selective_scan, ssd, causal_conv1d and gated_norm, with their gradients'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'cpu'
summary = 'f32, vectorised over channels, on all threads of the device'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'reference'
summary = 'plain loops, f32 and f64'

[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'mamba'
summary = 'selective state spaces: no attention, time and memory linear in the length'

[provides.options]
vocab_size = { type = 'int', default = 50280, min = 1, max = 2147483647, help = 'token ids are below this', json_multiple = 'pad_vocab_size_multiple' }
hidden_size = { type = 'int', default = 768, min = 1, max = 1048576, help = 'width of the residual stream', json = ['hidden_size', 'd_model'] }
num_hidden_layers = { type = 'int', default = 32, min = 1, max = 4096, help = 'number of layers', json = ['num_hidden_layers', 'n_layer'] }
state_size = { type = 'int', default = 16, min = 1, max = 256, help = 'states per channel', json = ['state_size', 'ssm_cfg.d_state'] }
conv_kernel = { type = 'int', default = 4, min = 2, max = 4, help = 'taps of the causal convolution', json = ['conv_kernel', 'ssm_cfg.d_conv'] }
expand = { type = 'float', default = 2.0, min = 0.0, max = 1024.0, help = 'the number of channels is expand x hidden_size, rounded down; may be a fraction', json = ['expand', 'ssm_cfg.expand'] }
intermediate_size = { type = 'int', min = 1, max = 4194304, help = 'number of channels; overrides expand. absent: expand x hidden_size', json = ['intermediate_size', 'd_inner'] }
time_step_rank = { type = 'int', min = 1, max = 1048576, help = 'rank of the time step; absent (auto): hidden_size / 16, rounded up', json = ['time_step_rank', 'ssm_cfg.dt_rank'], json_none = 'auto' }
time_step_scale = { type = 'float', default = 1.0, min = 0.0, help = 'elements of new dt_proj matrices lie within +-time_step_scale / sqrt(time_step_rank)', json = ['time_step_scale', 'ssm_cfg.dt_scale'], adjustable = true }
time_step_min = { type = 'float', default = 0.001, min = 0.0, help = 'shortest initial time step', json = ['time_step_min', 'ssm_cfg.dt_min'], adjustable = true }
time_step_max = { type = 'float', default = 0.1, min = 0.0, help = 'longest initial time step', json = ['time_step_max', 'ssm_cfg.dt_max'], adjustable = true }
time_step_floor = { type = 'float', default = 1e-4, min = 0.0, help = 'lower limit of initial time steps', json = ['time_step_floor', 'ssm_cfg.dt_init_floor'], adjustable = true }
time_step_init_scheme = { type = 'string', default = 'random', choices = ['random', 'constant'], help = 'how new dt_proj matrices are filled', json = ['time_step_init_scheme', 'ssm_cfg.dt_init'], adjustable = true }
use_bias = { type = 'bool', default = false, help = 'biases on in_proj and out_proj', json = ['use_bias', 'ssm_cfg.bias'] }
use_conv_bias = { type = 'bool', default = true, help = 'bias on the convolution', json = ['use_conv_bias', 'ssm_cfg.conv_bias'] }
hidden_act = { type = 'string', default = 'silu', choices = ['silu', 'swish'], help = 'activation of the convolution and of the gate; the two are the same' }
layer_norm_epsilon = { type = 'float', default = 1e-5, min = 0.0, max = 1.0, help = 'added to the mean square before the root', json = ['layer_norm_epsilon', 'norm_epsilon'] }
residual_in_fp32 = { type = 'bool', default = true, help = 'the residual stream is f32 where compute has 16 bits; false: it has 16 bits, too', adjustable = true }
tie_word_embeddings = { type = 'bool', default = true, help = 'the head uses the embedding matrix', json = ['tie_word_embeddings', 'tie_embeddings'] }
init = { type = 'string', default = 'mamba_ssm', choices = ['mamba_ssm', 'huggingface'], help = 'rules of initialisation: those of mamba_ssm, or those of transformers; new models differ between the two', json = [] }
initializer_range = { type = 'float', min = 0.0, max = 1.0, help = 'standard deviation of new embeddings (init huggingface: also of in_proj and x_proj); absent: 0.02, or 0.1 with init huggingface', adjustable = true }
rescale_prenorm_residual = { type = 'bool', help = 'new out_proj matrices are divided by sqrt(num_hidden_layers); absent: true, or false with init huggingface', adjustable = true }
)" R"(

[provides.pretrained]
model_type = 'mamba'
architectures = ['MambaForCausalLM', 'MambaLMHeadModel', 'MambaModel']
recognise = ['d_model', 'n_layer', 'ssm_cfg']
ignore = ['fused_add_norm', 'ssm_cfg.use_fast_path', 'use_mambapy', 'use_associative_scan', 'attn_cfg']
rename = [['backbone.embedding.weight', 'backbone.embeddings.weight']]
tied = [['lm_head.weight', 'backbone.embeddings.weight']]

[provides.pretrained.fixed]
rms_norm = true
d_intermediate = 0
attn_layer_idx = [[]]
'ssm_cfg.layer' = 'Mamba1'

# transformers accepts only a whole number for expand; it prefers intermediate_size
[provides.pretrained.write]
expand = 2
intermediate_size = { product = ['expand', 'hidden_size'] }

)" MAMBA_GGUF("", "") R"(
# about one million parameters over bytes, for a first run
[provides.presets.'tiny']
vocab_size = 256
hidden_size = 128
num_hidden_layers = 8

[provides.presets.'130m']
hidden_size = 768
num_hidden_layers = 24

[provides.presets.'370m']
hidden_size = 1024
num_hidden_layers = 48

[provides.presets.'790m']
hidden_size = 1536
num_hidden_layers = 48

[provides.presets.'1.4b']
hidden_size = 2048
num_hidden_layers = 48

[provides.presets.'2.8b']
hidden_size = 2560
num_hidden_layers = 64

# Four models under the names that their users gave them.
[provides.presets.'7b_mamba']
called = '6.89B'
vocab_size = 50257
hidden_size = 4864
num_hidden_layers = 45

[provides.presets.'3b_mamba']
called = '2.84B'
vocab_size = 50257
hidden_size = 2560
num_hidden_layers = 64

[provides.presets.'1b_mamba']
called = '1B'
vocab_size = 50257
hidden_size = 2048
num_hidden_layers = 34

[provides.presets.'3b_mamba_lite']
called = '3B'
vocab_size = 50257
hidden_size = 2560
num_hidden_layers = 24
state_size = 8
expand = 1.5
)" R"(
[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'mamba2'
summary = 'state-space duality: as mamba, with larger states that heads of channels share, computed as products of matrices'

[provides.options]
vocab_size = { type = 'int', default = 32768, min = 1, max = 2147483647, help = 'token ids are below this' }
hidden_size = { type = 'int', default = 4096, min = 1, max = 1048576, help = 'width of the residual stream' }
num_hidden_layers = { type = 'int', default = 64, min = 1, max = 4096, help = 'number of layers' }
num_heads = { type = 'int', default = 128, min = 1, max = 65536, help = 'heads of a layer; num_heads x head_dim must be expand x hidden_size' }
head_dim = { type = 'int', default = 64, min = 1, max = 65536, help = 'channels of a head' }
state_size = { type = 'int', default = 128, min = 1, max = 4096, help = 'states per channel' }
n_groups = { type = 'int', default = 8, min = 1, max = 65536, help = 'groups of heads; those of a group share B and C. A divisor of num_heads' }
expand = { type = 'int', default = 2, min = 1, max = 1024, help = 'the number of channels is expand x hidden_size' }
conv_kernel = { type = 'int', default = 4, min = 2, max = 4, help = 'taps of the causal convolution' }
chunk_size = { type = 'int', default = 256, min = 1, max = 65536, help = 'has no effect; kept because config.json files have it. The kernels have chunks of their own', adjustable = true }
time_step_min = { type = 'float', default = 0.001, min = 0.0, help = 'shortest initial time step', adjustable = true }
time_step_max = { type = 'float', default = 0.1, min = 0.0, help = 'longest initial time step', adjustable = true }
time_step_floor = { type = 'float', default = 1e-4, min = 0.0, help = 'lower limit of initial time steps', adjustable = true }
time_step_limit = { type = 'floats', help = 'shortest and longest time step at any time; absent: no limits. A longest one of 1.7976931348623157e308 is none' }
use_bias = { type = 'bool', default = false, help = 'biases on in_proj and out_proj' }
use_conv_bias = { type = 'bool', default = true, help = 'bias on the convolution' }
hidden_act = { type = 'string', default = 'silu', choices = ['silu', 'swish'], help = 'activation of the convolution; the two are the same' }
layer_norm_epsilon = { type = 'float', default = 1e-5, min = 0.0, max = 1.0, help = 'added to the mean square before the root' }
residual_in_fp32 = { type = 'bool', default = true, help = 'the residual stream is f32 where compute has 16 bits; false: it has 16 bits, too', adjustable = true }
tie_word_embeddings = { type = 'bool', default = false, help = 'the head uses the embedding matrix' }
init = { type = 'string', default = 'mamba_ssm', choices = ['mamba_ssm', 'huggingface'], help = 'rules of initialisation: those of mamba_ssm, or those of transformers; new models differ between the two', json = [] }
initializer_range = { type = 'float', min = 0.0, max = 1.0, help = 'standard deviation of new embeddings (init huggingface: also of in_proj); absent: 0.02, or 0.1 with init huggingface', adjustable = true }
rescale_prenorm_residual = { type = 'bool', help = 'new out_proj matrices are divided by sqrt(num_hidden_layers); absent: true, or false with init huggingface', adjustable = true }

[provides.pretrained]
model_type = 'mamba2'
architectures = ['Mamba2ForCausalLM', 'Mamba2Model']
ignore = ['time_step_rank']
rename = [['backbone.embedding.weight', 'backbone.embeddings.weight']]
tied = [['lm_head.weight', 'backbone.embeddings.weight']]

[provides.gguf]
architecture = 'mamba2'
negative_exp = ['blk.*.ssm_a']
squeeze = ['blk.*.ssm_conv1d.weight']
f32 = ['blk.*.ssm_conv1d.weight', 'blk.*.ssm_norm.weight']

[provides.gguf.fixed]
use_bias = false
use_conv_bias = true
time_step_limit = [{}, [0.0, 1.7976931348623157e308]]

[provides.gguf.rows]
'blk.*.ssm_a' = 'num_heads'
'blk.*.ssm_d' = 'num_heads'
'blk.*.ssm_norm' = 'n_groups'

[provides.gguf.tensors]
'backbone.embeddings' = 'token_embd'
'backbone.norm_f' = 'output_norm'
'lm_head' = 'output'
'backbone.layers.*.norm' = 'blk.*.attn_norm'
'backbone.layers.*.mixer.in_proj' = 'blk.*.ssm_in'
'backbone.layers.*.mixer.conv1d' = 'blk.*.ssm_conv1d'
'backbone.layers.*.mixer.dt_bias' = 'blk.*.ssm_dt.bias'
'backbone.layers.*.mixer.A_log' = 'blk.*.ssm_a'
'backbone.layers.*.mixer.D' = 'blk.*.ssm_d'
'backbone.layers.*.mixer.norm' = 'blk.*.ssm_norm'
'backbone.layers.*.mixer.out_proj' = 'blk.*.ssm_out'

[provides.gguf.keys]
block_count = 'num_hidden_layers'
context_length = 1048576
embedding_length = 'hidden_size'
feed_forward_length = 0
'attention.head_count' = 0
'attention.layer_norm_rms_epsilon' = 'layer_norm_epsilon'
'ssm.conv_kernel' = 'conv_kernel'
'ssm.inner_size' = { product = ['expand', 'hidden_size'] }
'ssm.state_size' = 'state_size'
'ssm.time_step_rank' = 'num_heads'
'ssm.group_count' = 'n_groups'

# about one million parameters over bytes, for a first run
[provides.presets.'tiny']
vocab_size = 256
hidden_size = 128
num_hidden_layers = 8
num_heads = 8
head_dim = 32
state_size = 32
n_groups = 1
tie_word_embeddings = true

[provides.presets.'mamba2-130m']
vocab_size = 50288
hidden_size = 768
num_hidden_layers = 24
num_heads = 24
n_groups = 1
tie_word_embeddings = true

[provides.presets.'mamba2-370m']
vocab_size = 50288
hidden_size = 1024
num_hidden_layers = 48
num_heads = 32
n_groups = 1
tie_word_embeddings = true

[provides.presets.'mamba2-780m']
vocab_size = 50288
hidden_size = 1536
num_hidden_layers = 48
num_heads = 48
n_groups = 1
tie_word_embeddings = true

[provides.presets.'mamba2-1.3b']
vocab_size = 50288
hidden_size = 2048
num_hidden_layers = 48
num_heads = 64
n_groups = 1
tie_word_embeddings = true

[provides.presets.'mamba2-2.7b']
vocab_size = 50288
hidden_size = 2560
num_hidden_layers = 64
num_heads = 80
n_groups = 1
tie_word_embeddings = true
)" HYBRID_FALCON_MAMBA)
// clang-format on
