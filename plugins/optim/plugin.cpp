// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "../common/plugin.hpp"
#include "engine/optimizer.h"
#include "optim.hpp"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.optim'
name = 'Optimizers'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'AdamW and stochastic gradient descent'

[[provides]]
kind = ')" ENG_OPTIMIZER_DRAFT R"('
name = 'adamw'
summary = 'Adam with decoupled weight decay (Loshchilov and Hutter 2019)'

[provides.options]
beta1 = { type = 'float', default = 0.9, min = 0.0, max = 0.9999999, help = 'decay of the mean of gradients' }
beta2 = { type = 'float', default = 0.95, min = 0.0, max = 0.9999999, help = 'decay of the mean of squared gradients' }
eps = { type = 'float', default = 1e-8, min = 0.0, max = 1.0, help = 'added to the root of the mean square' }
weight_decay = { type = 'float', default = 0.1, min = 0.0, max = 10.0, per_group = true, help = 'decoupled from the gradient; norms and biases are not decayed' }

[[provides]]
kind = ')" ENG_OPTIMIZER_DRAFT R"('
name = 'sgd'
summary = 'stochastic gradient descent with momentum'

[provides.options]
momentum = { type = 'float', default = 0.0, min = 0.0, max = 0.9999999, help = 'decay of the sum of gradients; 0: no momentum and no optimizer state' }
nesterov = { type = 'bool', default = false, help = 'Nesterov momentum; needs momentum above 0' }
weight_decay = { type = 'float', default = 0.0, min = 0.0, max = 10.0, per_group = true, help = 'added to the gradient; norms and biases are not decayed' }
)")
// clang-format on

namespace {

const char* describe() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  if (std::strcmp(kind, ENG_OPTIMIZER_KIND) != 0) return nullptr;
  if (std::strcmp(name, "adamw") == 0) return &adamw_table;
  return std::strcmp(name, "sgd") == 0 ? &sgd_table : nullptr;
}

const eng_plugin plugin = common::plain_plugin(describe, get_interface);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
