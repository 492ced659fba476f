// SPDX-License-Identifier: Apache-2.0
#include "../../common/plugin.hpp"
#include "stats.hpp"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.stats'
name = 'Statistics of a step'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'norms and largest magnitudes per block'

[[provides]]
kind = ')" ENG_OPS_DRAFT R"('
name = 'stats'
summary = 'sum of squares and largest magnitude'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'cpu'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'reference'

[[provides]]
kind = ')" ENG_OBSERVER_DRAFT R"('
name = 'stats'
summary = 'norms and largest magnitudes of gradients, activations and updates, per block'

[provides.options]
gradients = { type = 'bool', default = true, help = 'gradient_norm.BLOCK: of the gradient before clipping' }
activations = { type = 'bool', default = true, help = 'activation_norm.BLOCK: of the outputs of the blocks, over all tokens of the step' }
updates = { type = 'bool', default = true, help = 'update_norm.BLOCK: of what the update adds to the masters' }
parameters = { type = 'bool', default = false, help = 'parameter_norm.BLOCK: of the masters after the update' }
maxima = { type = 'bool', default = true, help = 'gradient_max.BLOCK and so on as well: the largest magnitudes' }
)")
// clang-format on

namespace {

const char* describe() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  const common::Asked is{kind, name};
  if (is(ENG_OBSERVER_KIND, "stats")) return &stats::observer;
  if (is(ENG_OPS_KIND, "stats")) return &stats::ops;
  if (is(ENG_KERNELS_KIND, "cpu")) return &stats::cpu_kernels;
  return is(ENG_KERNELS_KIND, "reference") ? &stats::reference_kernels : nullptr;
}

const eng_plugin plugin = common::plain_plugin(describe, get_interface);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
