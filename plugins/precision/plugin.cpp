// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "../common/plugin.hpp"
#include "precision.hpp"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.precision'
name = 'Precision'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'dtypes of weights, gradients and activations'

[[provides]]
kind = ')" ENG_PRECISION_DRAFT R"('
name = 'fp32'
summary = 'single precision everywhere'
fit = { order = 10 }

[provides.options]
frozen = { type = 'string', choices = ['int8', 'e4m3', 'nf4', 'nf4_double'], help = 'keeps frozen matrices of layers in 8 bits, or in 4, with a scale for each 64 elements, which nf4_double keeps in 8 bits, too; if absent, as other weights' }

[[provides]]
kind = ')" ENG_PRECISION_DRAFT R"('
name = 'bf16'
summary = 'bf16 weights, activations and gradients between ranks; f32 masters and summed gradients'
fit = { order = 20 }

[provides.options]
frozen = { type = 'string', choices = ['int8', 'e4m3', 'nf4', 'nf4_double'], help = 'keeps frozen matrices of layers in 8 bits, or in 4, with a scale for each 64 elements, which nf4_double keeps in 8 bits, too; if absent, as other weights' }
residual = { type = 'string', default = 'compute', choices = ['compute', 'f32'], help = 'the type of the residual stream, to which layers add: that of compute, or f32' }

[[provides]]
kind = ')" ENG_PRECISION_DRAFT R"('
name = 'bf16_sr'
summary = 'as bf16 without masters: weights and optimizer states in bf16, rounded at random (stochastic rounding)'
fit = { order = 30 }

[provides.options]
frozen = { type = 'string', choices = ['int8', 'e4m3', 'nf4', 'nf4_double'], help = 'keeps frozen matrices of layers in 8 bits, or in 4, with a scale for each 64 elements, which nf4_double keeps in 8 bits, too; if absent, as other weights' }
residual = { type = 'string', default = 'compute', choices = ['compute', 'f32'], help = 'the type of the residual stream, to which layers add: that of compute, or f32' }
gradients = { type = 'string', default = 'f32', choices = ['f32', 'bf16'], help = 'the type of summed gradients; with bf16, micro-batches are added in bf16' }

[[provides]]
kind = ')" ENG_PRECISION_DRAFT R"('
name = 'fp16'
summary = 'as bf16 with IEEE half precision, and a loss scale'
fit = { order = 40 }

[provides.options]
frozen = { type = 'string', choices = ['int8', 'e4m3', 'nf4', 'nf4_double'], help = 'keeps frozen matrices of layers in 8 bits, or in 4, with a scale for each 64 elements, which nf4_double keeps in 8 bits, too; if absent, as other weights' }
residual = { type = 'string', default = 'compute', choices = ['compute', 'f32'], help = 'the type of the residual stream, to which layers add: that of compute, or f32' }
loss_scale = { type = 'float', default = 0.0, min = 0.0, max = 1.7e38, help = 'a fixed loss scale; 0: it follows the gradients' }
initial_scale_power = { type = 'int', default = 16, min = 0, max = 126, help = 'the first loss scale is 2 to this power' }
loss_scale_window = { type = 'int', default = 1000, min = 1, max = 1000000, help = 'updates without overflow after which the loss scale doubles' }
hysteresis = { type = 'int', default = 2, min = 1, max = 1000000, help = 'overflows before the loss scale is halved' }
consecutive_hysteresis = { type = 'bool', default = false, help = 'count overflows anew after each update' }
min_loss_scale = { type = 'float', default = 1.0, min = 1e-30, max = 1.7e38, help = 'an overflow at this loss scale ends the run' }
)")
// clang-format on

namespace {

const char* describe() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  if (std::strcmp(kind, ENG_PRECISION_KIND) != 0) return nullptr;
  if (std::strcmp(name, "fp32") == 0) return &precision::fp32;
  if (std::strcmp(name, "bf16") == 0) return &precision::bf16;
  if (std::strcmp(name, "bf16_sr") == 0) return &precision::bf16_sr;
  return std::strcmp(name, "fp16") == 0 ? &precision::fp16 : nullptr;
}

const eng_plugin plugin = common::plain_plugin(describe, get_interface);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
