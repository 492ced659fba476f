// SPDX-License-Identifier: Apache-2.0
#include "../../common/plugin.hpp"
#include "neurons.hpp"

// clang-format off
// The options of both optimizers.
#define MUON_OPTIONS \
  "momentum = { type = 'float', default = 0.95, min = 0.0, max = 0.9999999, help = 'decay of the sum of gradients, for matrices' }\n" \
  "nesterov = { type = 'bool', default = true, help = 'Nesterov momentum' }\n" \
  "steps = { type = 'int', default = 5, min = 1, max = 20, help = 'steps of the Newton-Schulz iteration' }\n" \
  "coefficients = { type = 'string', default = 'jordan', choices = ['jordan', 'polar_express'], help = 'of the iteration. jordan: the same in each step (Jordan et al. 2024), singular values end between 0.7 and 1.2; polar_express: the best ones for each step (Amsel et al. 2025), nearer to 1' }\n" \
  "products = { type = 'string', default = 'bf16', choices = ['bf16', 'f32'], help = 'what the iteration multiplies. bf16: 16 bits, summed in f32, as its authors do; f32: no rounding, more memory, and on a GPU many times slower' }\n" \
  "scale = { type = 'string', default = 'rms', choices = ['rms', 'shape', 'none'], help = 'factor of an orthogonal M x N matrix. rms: 0.2 sqrt(max(M, N)), so that updates are as large as those of AdamW (Liu et al. 2025); shape: sqrt(max(1, M / N)) (Jordan et al. 2024); none: 1' }\n" \
  "matrix_rate = { type = 'float', default = 1.0, min = 0.0, max = 1e6, help = 'the learning rate of matrices is learning_rate times this' }\n" \
  "beta1 = { type = 'float', default = 0.9, min = 0.0, max = 0.9999999, help = 'AdamW: decay of the mean of gradients' }\n" \
  "beta2 = { type = 'float', default = 0.95, min = 0.0, max = 0.9999999, help = 'AdamW: decay of the mean of squared gradients' }\n" \
  "eps = { type = 'float', default = 1e-8, min = 0.0, max = 1.0, help = 'AdamW: added to the root of the mean square' }\n" \
  "weight_decay = { type = 'float', default = 0.1, min = 0.0, max = 10.0, per_group = true, help = 'decoupled from the gradient, for all parameters; norms and biases are not decayed' }\n" \
  "update = { type = 'string', default = 'auto', choices = ['auto', 'muon', 'adamw'], per_group = true, help = 'auto: muon for matrices of the layers, adamw for embeddings, head, norms and biases' }\n"

ENG_DESCRIPTION(R"([plugin]
id = 'eng.muon'
name = 'Muon'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'orthogonal updates of matrices, AdamW for all other parameters'

[[provides]]
kind = ')" ENG_OPS_DRAFT R"('
name = 'muon'
summary = 'momentum, normalize, apply, neurons'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'cpu'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'reference'

[[provides]]
kind = ')" ENG_OPTIMIZER_DRAFT R"('
name = 'muon'
summary = 'momentum made orthogonal by Newton-Schulz (Jordan et al. 2024) for matrices of the layers, AdamW elsewhere'

[provides.options]
)" MUON_OPTIONS R"(
[[provides]]
kind = ')" ENG_OPTIMIZER_DRAFT R"('
name = 'normuon'
summary = 'muon, and each row of the orthogonal matrix scaled by its size so far (NorMuon, Li et al. 2025)'

[provides.options]
neuron_beta = { type = 'float', default = 0.95, min = 0.0, max = 0.9999999, help = 'decay of the mean square of each row of the orthogonal matrices' }
)" MUON_OPTIONS)
// clang-format on

namespace {

const char* describe() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  const common::Asked is{kind, name};
  if (is(ENG_OPTIMIZER_KIND, "muon")) return &muon::optimizer;
  if (is(ENG_OPTIMIZER_KIND, "normuon")) return &muon::normuon;
  if (is(ENG_OPS_KIND, "muon")) return &muon::ops;
  if (is(ENG_KERNELS_KIND, "cpu")) return &muon::cpu_kernels;
  return is(ENG_KERNELS_KIND, "reference") ? &muon::reference_kernels : nullptr;
}

const eng_plugin plugin = common::plain_plugin(describe, get_interface);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
