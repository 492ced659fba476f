// SPDX-License-Identifier: Apache-2.0
// The plugin's description. The keys have the names of Hugging Face's config.json.
#pragma once

#include "../common/decoder/gguf.hpp"
#include "../common/decoder/options.hpp"
#include "engine/model.h"
#include "engine/plugin.h"
#include "gguf.hpp"
#include "gpt2.hpp"
#include "windowed.hpp"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.decoders'
name = 'decoders'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'GPT-2, Qwen3, OLMo 2, Phi-3, SmolLM3, Granite, GPT-NeoX, MiniCPM, InternLM2, Mistral, Ministral and Gemma language models'

[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'qwen3'
summary = 'Qwen3: as llama, with RMS norms of the queries and keys of each head'

[provides.options]
)" DECODER_SIZE_OPTIONS(151936, 4096, 22016, 32, 32, 32768)
  DECODER_GROUPED_HEADS("", "num_attention_heads")
  "head_dim = { type = 'int', default = 128, min = 2, max = 65536, help = 'size of one head, even' }\n"
  DECODER_ACTIVATION("silu", "gate")
  DECODER_RMS_NORM(1e-6)
  DECODER_INIT("o_proj and down_proj")
  DECODER_TIED(false)
  DECODER_BIAS(attention_bias, "q, k, v and o")
  DECODER_ROPE_OPTIONS R"(
[provides.pretrained]
model_type = 'qwen3'
architectures = ['Qwen3ForCausalLM', 'Qwen3Model']
ignore = ['sliding_window', 'rope_scaling.mscale', 'rope_parameters.mscale']
ignore_tensors = ['.rotary_emb.inv_freq']
tied = [['lm_head.weight', 'model.embed_tokens.weight']]

[provides.pretrained.fixed]
)" DECODER_FIXED DECODER_WHOLE_HEADS R"(
[provides.pretrained.write]
# sliding_window has an effect together with use_sliding_window alone
attention_dropout = 0.0
use_sliding_window = false
# where it is absent, transformers takes 32
num_key_value_heads = { product = ['num_attention_heads'] }

[provides.gguf]
architecture = 'qwen3'
rope = ['default', 'linear', 'yarn']
[provides.gguf.fixed]
hidden_act = ['silu', 'swish']
attention_bias = false
)" DECODER_GGUF_OF(DECODER_GGUF_NORMS DECODER_GGUF_HEAD_NORMS, "'head_dim'", "") R"(
[provides.presets]
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 352, num_hidden_layers = 5, num_attention_heads = 4, max_position_embeddings = 2048, head_dim = 32 }
# 596,049,920 parameters
'qwen3-0.6b' = { vocab_size = 151936, hidden_size = 1024, intermediate_size = 3072, num_hidden_layers = 28, num_attention_heads = 16, num_key_value_heads = 8, max_position_embeddings = 40960, head_dim = 128, tie_word_embeddings = true, rope_theta = 1000000.0 }
# 1,720,574,976 parameters
'qwen3-1.7b' = { vocab_size = 151936, hidden_size = 2048, intermediate_size = 6144, num_hidden_layers = 28, num_attention_heads = 16, num_key_value_heads = 8, max_position_embeddings = 40960, head_dim = 128, tie_word_embeddings = true, rope_theta = 1000000.0 }
# 4,022,468,096 parameters
'qwen3-4b' = { vocab_size = 151936, hidden_size = 2560, intermediate_size = 9728, num_hidden_layers = 36, num_attention_heads = 32, num_key_value_heads = 8, max_position_embeddings = 40960, head_dim = 128, tie_word_embeddings = true, rope_theta = 1000000.0 }
# 8,190,735,360 parameters
'qwen3-8b' = { vocab_size = 151936, hidden_size = 4096, intermediate_size = 12288, num_hidden_layers = 36, num_attention_heads = 32, num_key_value_heads = 8, max_position_embeddings = 40960, head_dim = 128, rope_theta = 1000000.0 }

[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'olmo2'
summary = 'OLMo 2: RMS norms behind attention and the feed-forward layer, and of all queries and all keys'

[provides.options]
)" DECODER_SIZE_OPTIONS(50304, 4096, 11008, 32, 32, 2048)
  DECODER_GROUPED_HEADS("", "num_attention_heads")
  DECODER_ACTIVATION("silu", "gate")
  DECODER_RMS_NORM(1e-5)
  DECODER_INIT("o_proj and down_proj")
  DECODER_TIED(false)
  DECODER_BIAS(attention_bias, "q, k, v and o")
  DECODER_ROPE_OPTIONS R"(
[provides.pretrained]
model_type = 'olmo2'
architectures = ['Olmo2ForCausalLM', 'Olmo2Model']
ignore = ['rope_scaling.mscale', 'rope_parameters.mscale']
ignore_tensors = ['.rotary_emb.inv_freq']
tied = [['lm_head.weight', 'model.embed_tokens.weight']]

[provides.pretrained.fixed]
)" DECODER_FIXED DECODER_WHOLE_HEADS R"(
[provides.pretrained.write]
attention_dropout = 0.0

[provides.gguf]
architecture = 'olmo2'
rope = ['default']
[provides.gguf.fixed]
hidden_act = ['silu', 'swish']
attention_bias = false
tie_word_embeddings = false
)" DECODER_GGUF_OF("'model.layers.*.post_attention_layernorm' = 'blk.*.post_attention_norm'\n'model.layers.*.post_feedforward_layernorm' = 'blk.*.post_ffw_norm'\n" DECODER_GGUF_HEAD_NORMS, DECODER_GGUF_SHARE, "") R"(
[provides.presets]
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 352, num_hidden_layers = 5, num_attention_heads = 4, max_position_embeddings = 2048 }
# 1,484,916,736 parameters
'olmo2-1b' = { vocab_size = 100352, hidden_size = 2048, intermediate_size = 8192, num_hidden_layers = 16, num_attention_heads = 16, max_position_embeddings = 4096, rms_norm_eps = 1e-6, rope_theta = 500000.0 }
# 7,298,617,344 parameters
'olmo2-7b' = { vocab_size = 100352, hidden_size = 4096, intermediate_size = 11008, num_hidden_layers = 32, num_attention_heads = 32, max_position_embeddings = 4096, rms_norm_eps = 1e-6, rope_theta = 500000.0 }

[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'phi3'
summary = 'Phi-3 and Phi-4: as llama; its files have q, k and v in one matrix, and gate and up in another'

[provides.options]
)" DECODER_SIZE_OPTIONS(32064, 3072, 8192, 32, 32, 4096)
  DECODER_GROUPED_HEADS("", "num_attention_heads")
  DECODER_ACTIVATION("silu", "gate")
  DECODER_RMS_NORM(1e-5)
  DECODER_INIT("o_proj and down_proj")
  DECODER_TIED(false)
  "resid_pdrop = { type = 'float', default = 0.0, min = 0.0, max = 0.999, help = 'share of elements dropped after attention and after down_proj, in training', adjustable = true, resume = 'note' }\n"
  DECODER_WINDOW("", "; absent: all before it")
  "partial_rotary_factor = { type = 'float', default = 1.0, above = 0.0, max = 1.0, help = 'part of each head that is turned', json = ['partial_rotary_factor', 'rope_parameters.partial_rotary_factor', 'rope_scaling.partial_rotary_factor'] }\n"
  "original_max_position_embeddings = { type = 'int', default = 4096, min = 1, max = 1073741824, help = 'sequence length before scaling, for longrope', json = ['original_max_position_embeddings', 'rope_parameters.original_max_position_embeddings', 'rope_scaling.original_max_position_embeddings'], adjustable = true }\n"
  DECODER_ROPE_OPTIONS_OF(10000.0, "'rope_theta'", "'default', 'longrope', 'su'", "") R"(
[provides.pretrained]
model_type = 'phi3'
architectures = ['Phi3ForCausalLM', 'Phi3Model']
ignore = ['rope_scaling.mscale', 'rope_parameters.mscale']
ignore_tensors = ['.rotary_emb.inv_freq']
tied = [['lm_head.weight', 'model.embed_tokens.weight']]
split = [
  { from = 'model.layers.*.self_attn.qkv_proj.weight', to = ['model.layers.*.self_attn.q_proj.weight', 'model.layers.*.self_attn.k_proj.weight', 'model.layers.*.self_attn.v_proj.weight'] },
  { from = 'model.layers.*.mlp.gate_up_proj.weight', to = ['model.layers.*.mlp.gate_proj.weight', 'model.layers.*.mlp.up_proj.weight'] },
]

[provides.pretrained.fixed]
)" DECODER_FIXED R"(
[provides.pretrained.write]
attention_dropout = 0.0

)" DECODERS_PHI3_GGUF R"(
[provides.presets]
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 352, num_hidden_layers = 5, num_attention_heads = 4, max_position_embeddings = 2048 }
# 3,821,079,552 parameters
'phi-3-mini' = { vocab_size = 32064, hidden_size = 3072, intermediate_size = 8192, num_hidden_layers = 32, num_attention_heads = 32, max_position_embeddings = 4096 }
# 14,659,507,200 parameters
'phi-4' = { vocab_size = 100352, hidden_size = 5120, intermediate_size = 17920, num_hidden_layers = 40, num_attention_heads = 40, num_key_value_heads = 10, max_position_embeddings = 16384, original_max_position_embeddings = 16384, rope_theta = 250000.0 }

[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'smollm3'
summary = 'SmolLM3: as llama, without rotary embedding in every fourth layer'

[provides.options]
)" DECODER_SIZE_OPTIONS(128256, 2048, 11008, 36, 16, 32768)
  DECODER_GROUPED_HEADS("default = 4, ", "4")
  DECODER_ACTIVATION("silu", "gate")
  DECODER_RMS_NORM(1e-6)
  DECODER_INIT("o_proj and down_proj")
  DECODER_TIED(true)
  DECODER_BIAS(attention_bias, "q, k, v and o")
  DECODER_BIAS(mlp_bias, "gate, up and down")
  "no_rope_layer_interval = { type = 'int', default = 4, min = 1, max = 4096, help = 'every layer with a number that it divides, counted from 1, has no rotary embedding; without effect beside no_rope_layers' }\n"
  "no_rope_layers = { type = 'floats', help = 'for each layer 1 if it has rotary embedding, or 0; absent: as no_rope_layer_interval says' }\n"
  DECODER_ROPE_OPTIONS_OF(2000000.0, "'rope_theta'", DECODER_ROPE_TYPES, DECODER_ROPE_ORIGINAL) R"(
[provides.pretrained]
model_type = 'smollm3'
architectures = ['SmolLM3ForCausalLM', 'SmolLM3Model']
ignore = ['sliding_window', 'rope_scaling.mscale', 'rope_parameters.mscale']
ignore_tensors = ['.rotary_emb.inv_freq']
tied = [['lm_head.weight', 'model.embed_tokens.weight']]

[provides.pretrained.fixed]
)" DECODER_FIXED DECODER_WHOLE_HEADS R"(
[provides.pretrained.write]
# sliding_window has an effect together with use_sliding_window alone
attention_dropout = 0.0
use_sliding_window = false

)" DECODERS_SMOLLM3_GGUF R"(
[provides.presets]
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 352, num_hidden_layers = 4, num_attention_heads = 4, num_key_value_heads = 2, max_position_embeddings = 2048 }
# 3,075,098,624 parameters
'smollm3-3b' = { vocab_size = 128256, hidden_size = 2048, intermediate_size = 11008, num_hidden_layers = 36, num_attention_heads = 16, num_key_value_heads = 4, max_position_embeddings = 65536, rope_theta = 5000000.0 }

[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'granite'
summary = 'Granite 3: as llama, with factors of embeddings, sublayers, scores and logits'

[provides.options]
)" DECODER_SIZE_OPTIONS(32000, 4096, 11008, 32, 32, 2048)
  DECODER_GROUPED_HEADS("", "num_attention_heads")
  DECODER_ACTIVATION("silu", "gate")
  DECODER_RMS_NORM(1e-6)
  DECODER_INIT("o_proj and down_proj")
  DECODER_TIED(false)
  DECODER_BIAS(attention_bias, "q, k, v and o")
  DECODER_BIAS(mlp_bias, "gate, up and down")
  DECODER_FACTOR(embedding_multiplier, 1.0, "factor of the embeddings")
  DECODER_FACTOR(attention_multiplier, 1.0, "factor of the products of queries and keys, in place of 1 / sqrt(head size)")
  DECODER_FACTOR(residual_multiplier, 1.0, "factor of what attention and the feed-forward layer add to the residual stream")
  DECODER_FACTOR(logits_scaling, 1.0, "divisor of the logits")
  DECODER_ROPE_OPTIONS R"(
[provides.pretrained]
model_type = 'granite'
architectures = ['GraniteForCausalLM', 'GraniteModel']
ignore = ['rope_scaling.mscale', 'rope_parameters.mscale']
ignore_tensors = ['.rotary_emb.inv_freq']
tied = [['lm_head.weight', 'model.embed_tokens.weight']]

[provides.pretrained.fixed]
)" DECODER_FIXED DECODER_WHOLE_HEADS R"(
[provides.pretrained.write]
attention_dropout = 0.0

[provides.gguf]
architecture = 'granite'
rope = ['default']
[provides.gguf.fixed]
hidden_act = ['silu', 'swish']
attention_bias = false
mlp_bias = false
)" DECODER_GGUF_INTERLEAVED DECODER_GGUF_OF(DECODER_GGUF_NORMS, DECODER_GGUF_SHARE, "'attention.scale' = 'attention_multiplier'\nembedding_scale = 'embedding_multiplier'\nresidual_scale = 'residual_multiplier'\nlogit_scale = 'logits_scaling'\n") R"(
[provides.presets]
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 352, num_hidden_layers = 5, num_attention_heads = 4, max_position_embeddings = 2048, embedding_multiplier = 12.0, attention_multiplier = 0.03125, residual_multiplier = 0.22, logits_scaling = 8.0 }
# 2,533,531,648 parameters
'granite-3.1-2b' = { vocab_size = 49155, hidden_size = 2048, intermediate_size = 8192, num_hidden_layers = 40, num_attention_heads = 32, num_key_value_heads = 8, max_position_embeddings = 131072, rms_norm_eps = 1e-5, tie_word_embeddings = true, rope_theta = 5000000.0, embedding_multiplier = 12.0, attention_multiplier = 0.015625, residual_multiplier = 0.22, logits_scaling = 8.0 }
# 8,170,848,256 parameters
'granite-3.1-8b' = { vocab_size = 49155, hidden_size = 4096, intermediate_size = 12800, num_hidden_layers = 40, num_attention_heads = 32, num_key_value_heads = 8, max_position_embeddings = 131072, rms_norm_eps = 1e-5, tie_word_embeddings = true, rope_theta = 10000000.0, embedding_multiplier = 12.0, attention_multiplier = 0.0078125, residual_multiplier = 0.22, logits_scaling = 16.0 }

[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'gpt_neox'
summary = 'GPT-NeoX and Pythia: attention and feed-forward layer side by side, layer norms, rotary embedding of a part of each head'

[provides.options]
)" DECODER_SIZE_OPTIONS(50432, 6144, 24576, 44, 64, 2048)
  DECODER_ACTIVATION("gelu", "feed-forward layer")
  "layer_norm_eps = { type = 'float', default = 1e-5, above = 0.0, max = 1.0, help = 'added to the variance' }\n"
  DECODER_INIT("dense and dense_4h_to_h")
  DECODER_TIED(false)
  "attention_bias = { type = 'bool', default = true, help = 'biases on query_key_value and dense' }\n"
  "use_parallel_residual = { type = 'bool', default = true, help = 'attention and feed-forward layer read the same residual stream; false: one after the other' }\n"
  "rotary_pct = { type = 'float', default = 0.25, above = 0.0, max = 1.0, help = 'part of each head that is turned', json = ['rotary_pct', 'partial_rotary_factor', 'rope_parameters.partial_rotary_factor', 'rope_scaling.partial_rotary_factor'] }\n"
  DECODER_ROPE_OPTIONS_OF(10000.0, "'rotary_emb_base', 'rope_theta'", DECODER_ROPE_TYPES, DECODER_ROPE_ORIGINAL) R"(
[provides.pretrained]
model_type = 'gpt_neox'
architectures = ['GPTNeoXForCausalLM', 'GPTNeoXModel']
ignore = ['rope_scaling.mscale', 'rope_parameters.mscale']
ignore_tensors = ['.rotary_emb.inv_freq']
tied = [['embed_out.weight', 'gpt_neox.embed_in.weight']]
rename = [['lm_head.', 'embed_out.']]

[provides.pretrained.fixed]
)" DECODER_FIXED R"(
[provides.pretrained.write]
attention_dropout = 0.0

)" DECODERS_GPT_NEOX_GGUF R"(
[provides.presets]
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 512, num_hidden_layers = 5, num_attention_heads = 4, max_position_embeddings = 2048 }
# 70,426,624 parameters
'pythia-70m' = { vocab_size = 50304, hidden_size = 512, intermediate_size = 2048, num_hidden_layers = 6, num_attention_heads = 8, max_position_embeddings = 2048 }
# 162,322,944 parameters
'pythia-160m' = { vocab_size = 50304, hidden_size = 768, intermediate_size = 3072, num_hidden_layers = 12, num_attention_heads = 12, max_position_embeddings = 2048 }
# 405,334,016 parameters
'pythia-410m' = { vocab_size = 50304, hidden_size = 1024, intermediate_size = 4096, num_hidden_layers = 24, num_attention_heads = 16, max_position_embeddings = 2048 }
# 1,011,781,632 parameters
'pythia-1b' = { vocab_size = 50304, hidden_size = 2048, intermediate_size = 8192, num_hidden_layers = 16, num_attention_heads = 8, max_position_embeddings = 2048 }
# 1,414,647,808 parameters
'pythia-1.4b' = { vocab_size = 50304, hidden_size = 2048, intermediate_size = 8192, num_hidden_layers = 24, num_attention_heads = 16, max_position_embeddings = 2048 }
# 2,775,208,960 parameters
'pythia-2.8b' = { vocab_size = 50304, hidden_size = 2560, intermediate_size = 10240, num_hidden_layers = 32, num_attention_heads = 32, max_position_embeddings = 2048 }
# 6,857,302,016 parameters
'pythia-6.9b' = { vocab_size = 50432, hidden_size = 4096, intermediate_size = 16384, num_hidden_layers = 32, num_attention_heads = 32, max_position_embeddings = 2048 }

[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'minicpm'
summary = 'MiniCPM 1 and 2: as llama, with factors of embeddings, sublayers and logits'

[provides.options]
)" DECODER_SIZE_OPTIONS(32000, 4096, 11008, 32, 32, 2048)
  DECODER_GROUPED_HEADS("", "num_attention_heads")
  DECODER_ACTIVATION("silu", "gate")
  DECODER_RMS_NORM(1e-6)
  DECODER_INIT("o_proj and down_proj")
  DECODER_TIED(true)
  DECODER_BIAS(attention_bias, "q, k, v and o")
  DECODER_FACTOR(scale_emb, 1.0, "factor of the embeddings")
  DECODER_FACTOR(scale_depth, 1.0, "what attention and the feed-forward layer add to the residual stream is multiplied by this / sqrt(num_hidden_layers)")
  "dim_model_base = { type = 'int', default = 1, min = 1, max = 1048576, help = 'logits are divided by hidden_size / this' }\n"
  DECODER_ROPE_OPTIONS R"(
[provides.pretrained]
model_type = 'minicpm'
architectures = ['MiniCPMForCausalLM', 'MiniCPMModel']
ignore = ['pretraining_tp', 'rope_scaling.mscale', 'rope_parameters.mscale']
ignore_tensors = ['.rotary_emb.inv_freq']
tied = [['lm_head.weight', 'model.embed_tokens.weight']]

[provides.pretrained.fixed]
)" DECODER_FIXED DECODER_WHOLE_HEADS R"(
[provides.pretrained.write]
attention_dropout = 0.0

)" DECODERS_MINICPM_GGUF R"(
[provides.presets]
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 352, num_hidden_layers = 5, num_attention_heads = 4, max_position_embeddings = 2048, scale_emb = 12.0, scale_depth = 1.4, dim_model_base = 64 }
# 2,724,880,896 parameters
'minicpm-2b' = { vocab_size = 122753, hidden_size = 2304, intermediate_size = 5760, num_hidden_layers = 40, num_attention_heads = 36, max_position_embeddings = 4096, rms_norm_eps = 1e-5, scale_emb = 12.0, scale_depth = 1.4, dim_model_base = 256 }

[[provides]]
kind = ')" ENG_MODEL_DRAFT R"('
name = 'internlm2'
summary = 'InternLM2 and 2.5: as llama, with q, k and v of each group of heads in one matrix'

[provides.options]
)" DECODER_SIZE_OPTIONS(103168, 4096, 11008, 32, 32, 2048)
  DECODER_GROUPED_HEADS("", "num_attention_heads")
  DECODER_ACTIVATION("silu", "gate")
  DECODER_RMS_NORM(1e-6)
  DECODER_INIT("wo and w2")
  DECODER_TIED(false)
  "bias = { type = 'bool', default = true, help = 'biases on wqkv and wo' }\n"
  DECODER_ROPE_OPTIONS R"(
[provides.pretrained]
model_type = 'internlm2'
architectures = ['InternLM2ForCausalLM', 'InternLM2Model']
ignore = ['pretraining_tp', 'rope_scaling.mscale', 'rope_parameters.mscale']
ignore_tensors = ['.rotary_emb.inv_freq']
tied = [['output.weight', 'model.tok_embeddings.weight']]

[provides.pretrained.fixed]
)" DECODER_FIXED DECODER_WHOLE_HEADS R"(
[provides.pretrained.write]
attention_dropout = 0.0

)" DECODERS_INTERNLM2_GGUF R"(
[provides.presets]
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 352, num_hidden_layers = 5, num_attention_heads = 4, max_position_embeddings = 2048, bias = false }
# 1,889,110,016 parameters
'internlm2-1.8b' = { vocab_size = 92544, hidden_size = 2048, intermediate_size = 8192, num_hidden_layers = 24, num_attention_heads = 16, num_key_value_heads = 8, max_position_embeddings = 32768, rms_norm_eps = 1e-5, bias = false, rope_theta = 1000000.0 }
# 7,737,708,544 parameters
'internlm2-7b' = { vocab_size = 92544, hidden_size = 4096, intermediate_size = 14336, num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 8, max_position_embeddings = 32768, rms_norm_eps = 1e-5, bias = false, rope_theta = 1000000.0 }

)" DECODERS_MISTRAL("mistral", "Mistral", "as llama, with a window of attention", "") R"(
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 352, num_hidden_layers = 5, num_attention_heads = 4, num_key_value_heads = 4, max_position_embeddings = 2048, sliding_window = 64 }
# 7,241,732,096 parameters
'mistral-7b' = { vocab_size = 32000, hidden_size = 4096, intermediate_size = 14336, num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 8, max_position_embeddings = 32768, rms_norm_eps = 1e-5, sliding_window = 4096 }
)" DECODERS_MISTRAL("ministral", "Ministral", "as llama, with a window of attention in some layers", DECODER_LAYER_TYPES("all have it")) R"(
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 352, num_hidden_layers = 5, num_attention_heads = 4, num_key_value_heads = 4, max_position_embeddings = 2048, sliding_window = 64 }
# 8,019,808,256 parameters
'ministral-8b' = { vocab_size = 131072, hidden_size = 4096, intermediate_size = 12288, num_hidden_layers = 36, num_attention_heads = 32, num_key_value_heads = 8, head_dim = 128, max_position_embeddings = 32768, rms_norm_eps = 1e-5, rope_theta = 100000000.0, sliding_window = 32768 }
)" DECODERS_GEMMA("gemma2", "gemma2", "'Gemma2ForCausalLM', 'Gemma2Model'", "Gemma 2: four norms in a layer, scaled embeddings, capped scores and logits, a window in every other layer", 256000, 8192, DECODERS_GEMMA2_OPTIONS, DECODERS_GEMMA2_FIXED, "", DECODERS_GEMMA2_GGUF) R"(
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 352, num_hidden_layers = 6, num_attention_heads = 4, num_key_value_heads = 2, head_dim = 32, query_pre_attn_scalar = 32, max_position_embeddings = 2048, sliding_window = 64, attn_logit_softcapping = 50.0, final_logit_softcapping = 30.0 }
# 2,614,341,888 parameters
'gemma-2-2b' = { vocab_size = 256000, hidden_size = 2304, intermediate_size = 9216, num_hidden_layers = 26, num_attention_heads = 8, num_key_value_heads = 4, max_position_embeddings = 8192, attn_logit_softcapping = 50.0, final_logit_softcapping = 30.0 }
# 9,241,705,984 parameters
'gemma-2-9b' = { vocab_size = 256000, hidden_size = 3584, intermediate_size = 14336, num_hidden_layers = 42, num_attention_heads = 16, num_key_value_heads = 8, max_position_embeddings = 8192, attn_logit_softcapping = 50.0, final_logit_softcapping = 30.0 }
# 27,227,128,320 parameters
'gemma-2-27b' = { vocab_size = 256000, hidden_size = 4608, intermediate_size = 36864, num_hidden_layers = 46, num_attention_heads = 32, num_key_value_heads = 16, head_dim = 128, query_pre_attn_scalar = 144, max_position_embeddings = 8192, attn_logit_softcapping = 50.0, final_logit_softcapping = 30.0 }
)" DECODERS_GEMMA("gemma3", "gemma3_text", "'Gemma3ForCausalLM', 'Gemma3TextModel'", "Gemma 3, text: four norms in a layer, scaled embeddings, norms of queries and keys, a window in five of six layers", 262208, 131072, DECODERS_GEMMA3_OPTIONS, DECODERS_GEMMA3_FIXED, "use_bidirectional_attention = false\n", DECODERS_GEMMA3_GGUF) R"(
# over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, intermediate_size = 352, num_hidden_layers = 6, num_attention_heads = 4, num_key_value_heads = 2, head_dim = 32, query_pre_attn_scalar = 32, max_position_embeddings = 2048, sliding_window = 64 }
# 268,098,176 parameters
'gemma-3-270m' = { vocab_size = 262144, hidden_size = 640, intermediate_size = 2048, num_hidden_layers = 18, num_attention_heads = 4, num_key_value_heads = 1, max_position_embeddings = 32768, sliding_window = 512 }
# 999,885,952 parameters
'gemma-3-1b' = { vocab_size = 262144, hidden_size = 1152, intermediate_size = 6912, num_hidden_layers = 26, num_attention_heads = 4, num_key_value_heads = 1, max_position_embeddings = 32768, sliding_window = 512 }
)" DECODERS_GPT2 R"(
# 858,880 parameters over bytes, for a first run
'tiny' = { vocab_size = 256, hidden_size = 128, num_hidden_layers = 4, num_attention_heads = 4, max_position_embeddings = 256 }
# 124,439,808 parameters
'small' = { vocab_size = 50257, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12, max_position_embeddings = 1024 }
# 354,823,168 parameters
'medium' = { vocab_size = 50257, hidden_size = 1024, num_hidden_layers = 24, num_attention_heads = 16, max_position_embeddings = 1024 }
# 774,030,080 parameters
'large' = { vocab_size = 50257, hidden_size = 1280, num_hidden_layers = 36, num_attention_heads = 20, max_position_embeddings = 1024 }
# 1,557,611,200 parameters
'xl' = { vocab_size = 50257, hidden_size = 1600, num_hidden_layers = 48, num_attention_heads = 25, max_position_embeddings = 1024 }
)")
// clang-format on
