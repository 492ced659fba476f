// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "../../common/plugin.hpp"
#include "adamw8bit.hpp"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.adamw8bit'
name = 'AdamW with 8-bit moments'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'AdamW whose moments have one byte per element'

[[provides]]
kind = ')" ENG_OPS_DRAFT R"('
name = 'adamw8bit'
summary = 'update'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'cpu'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'reference'

[[provides]]
kind = ')" ENG_OPTIMIZER_DRAFT R"('
name = 'adamw8bit'
summary = 'AdamW with moments of 8 bits in blocks of 256 elements (Dettmers et al. 2022)'
fit = { order = 10, instead_of = ['adamw'], effect = 'optimizer states of 8 bits' }

[provides.options]
beta1 = { type = 'float', default = 0.9, min = 0.0, max = 0.9999999, help = 'decay of the mean of gradients' }
beta2 = { type = 'float', default = 0.95, min = 0.0, max = 0.9999999, help = 'decay of the mean of squared gradients' }
eps = { type = 'float', default = 1e-8, min = 0.0, max = 1.0, help = 'added to the root of the mean square' }
weight_decay = { type = 'float', default = 0.1, min = 0.0, max = 10.0, per_group = true, help = 'decoupled from the gradient; norms and biases are not decayed' }
min_8bit_size = { type = 'int', default = 4096, min = 0, help = 'parameters with fewer elements have moments in f32' }
moments = { type = 'string', default = 'auto', choices = ['auto', '8bit', 'f32'], per_group = true, help = 'auto: f32 for embeddings and for parameters with fewer than min_8bit_size elements, 8 bits elsewhere' }
)")
// clang-format on

namespace {

const char* describe() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  const common::Asked is{kind, name};
  if (is(ENG_OPTIMIZER_KIND, "adamw8bit")) return &adamw8bit::optimizer;
  if (is(ENG_OPS_KIND, "adamw8bit")) return &adamw8bit::ops;
  if (is(ENG_KERNELS_KIND, "cpu")) return adamw8bit::cpu_kernels();
  if (is(ENG_KERNELS_KIND, "reference")) return &adamw8bit::reference_kernels;
  // Not in the description: for tests and measurements.
  return std::strcmp(kind, "eng.adamw8bit.kernels/1") == 0 ? adamw8bit::isa_kernels(name) : nullptr;
}

const eng_plugin plugin = common::plain_plugin(describe, get_interface);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
