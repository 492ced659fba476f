// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "../common/plugin.hpp"
#include "job.hpp"
#include "ops.hpp"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.curvature'
name = 'Curvature analysis'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'diagonal Hessian, activation sparsity, a partition of the weights and their response to noise'

[[provides]]
kind = ')" ENG_OPS_DRAFT R"('
name = 'curvature'
summary = 'random directions, noise, running moments and counts'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'cpu'

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'reference'

[[provides]]
kind = ')" ENG_JOB_DRAFT R"('
name = 'curvature'
usual = true
devices = ['cpu', 'reference', 'cuda']
summary = 'diagonal Hessian, activation sparsity, classes of weights, their response to noise, an embedding'

[provides.options]
method = { type = 'string', default = 'hutchinson', choices = ['hutchinson', 'fisher'], help = 'hutchinson: the diagonal of the Hessian, by two gradients for each probe; fisher: the mean of squared gradients, by one' }
probes = { type = 'int', default = 32, min = 2, max = 1e6, help = 'random directions, or with fisher gradients; intervals shrink with the square root of their number' }
step = { type = 'float', default = 5e-3, above = 0, max = 1, help = 'a probe moves every measured parameter by this times the root mean square of a typical tensor (docs/analysis.md); about the cube root of the rounding of f32, where the rounding and the curvature of the gradient err alike' }
windows = { type = 'int', default = 8, min = 1, max = 1e9, help = 'training windows of a gradient: the first ones; with fisher each gradient has the next ones' }
micro_batch = { type = 'int', default = 1, min = 1, max = 1e6, help = 'windows that are computed together; the losses of the response map are those of so many windows' }
samples_per_tensor = { type = 'int', default = 0, min = 0, help = 'about so many elements of each tensor are measured, drawn at random; 0: all' }
max_parameters = { type = 'int', default = 0, min = 0, help = 'about so many elements of the model are measured at most; 0: all' }
confidence = { type = 'float', default = 0.95, min = 0.01, max = 0.9999, help = 'of the intervals' }
held_windows = { type = 'int', default = 32, min = 1, max = 1e9, help = 'held-out windows whose activations are counted and whose loss is measured' }
train_windows = { type = 'int', default = 32, min = 1, max = 1e9, help = 'training windows whose losses are compared with those of held-out windows' }
sparsity_threshold = { type = 'float', default = 1e-3, min = 0, max = 1e9, help = 'an activation whose magnitude is at most this counts as sparse' }
activations = { type = 'strings', default = ['eng.activation/1', 'eng.linear_relu/1', 'eng.gated/1', 'eng.mamba.causal_conv1d/1'], help = 'ops whose outputs are activations; their last dimension are the units' }
unit_tensors = { type = 'strings', default = ['fc1.', 'gate_proj.', 'up_proj.', 'conv1d.'], help = 'parts of the names of tensors whose rows are the units of the activation of their block' }
partition = { type = 'string', default = 'tensor', choices = ['tensor', 'row'], help = 'what is put into classes; a row is one index of the first dimension' }
max_rows = { type = 'int', default = 32768, min = 0, max = 1e9, help = 'rows are measured one by one if the model has at most so many; each takes about 1 KiB of host memory' }
thresholds = { type = 'string', default = 'quantile', choices = ['quantile', 'absolute'], help = 'whether the four thresholds are quantiles of what was measured, or values' }
h_functional = { type = 'float', help = 'functional: mean |H| above this, and sparsity below sparsity_functional; default 0.5, absolute 0.1' }
sparsity_functional = { type = 'float', help = 'see h_functional; default 0.5' }
h_sensitive = { type = 'float', help = 'sensitive: mean |H| below this, and sparsity above sparsity_sensitive; default 0.5, absolute 0.05' }
sparsity_sensitive = { type = 'float', help = 'see h_sensitive; default 0.5, absolute 0.8' }
noise = { type = 'floats', default = [0.0, 1e-5, 1e-4, 1e-3], help = 'standard deviations of the Gaussian noise of the response map' }
noise_relative = { type = 'bool', default = false, help = 'they are multiplied by the standard deviation of each tensor' }
noise_seeds = { type = 'int', default = 3, min = 0, max = 1000, help = 'repetitions of each noise; 0: no response map' }
embedding = { type = 'string', default = 'auto', choices = ['auto', 'umap', 'pca', 'none'], help = 'auto: UMAP if this build has it, else PCA' }
neighbours = { type = 'int', default = 15, min = 2, max = 1000, help = 'of UMAP' }
points = { type = 'int', default = 2000, min = 3, max = 100000, help = 'tensors or rows in the embedding at most; more are drawn at random' }
cluster_radius = { type = 'float', default = 0.5, above = 0, max = 1e9, help = 'of DBSCAN, in the embedding' }
cluster_points = { type = 'int', default = 5, min = 1, max = 1e6, help = 'points within the radius that make a cluster' }
seed = { type = 'int', default = 1, min = 0, help = 'of directions, samples and noise' }
save_every = { type = 'int', default = 1, min = 1, max = 1e9, help = 'the state is saved after so many probes, or cells of the response map' }
)")
// clang-format on

namespace {

const char* describe() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  const common::Asked is{kind, name};
  if (is(ENG_OPS_KIND, "curvature")) return &curvature::ops;
  if (is(ENG_KERNELS_KIND, "cpu")) return curvature::cpu_kernels();
  if (is(ENG_KERNELS_KIND, "reference")) return &curvature::reference_kernels;
  if (is(ENG_JOB_KIND, "curvature")) return &curvature::job;
  // Not in the description: for tests and measurements.
  return std::strcmp(kind, "eng.curvature.kernels/1") == 0 ? curvature::isa_kernels(name) : nullptr;
}

const eng_plugin plugin = common::plain_plugin(describe, get_interface);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
