// SPDX-License-Identifier: Apache-2.0
#include "engine/plugin.h"

#include <cstring>

#include "ops.hpp"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.curvature'
name = 'Curvature analysis'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'diagonal Hessian, activation sparsity, a partition of the weights and their response to noise'

[[provides]]
kind = 'eng.ops/1'
name = 'curvature'
summary = 'random directions, noise, running moments and counts'

[[provides]]
kind = 'eng.kernels/1'
name = 'cpu'

[[provides]]
kind = 'eng.kernels/1'
name = 'reference'
)")
// clang-format on

namespace {

const char* describe() {
  return eng_description;
}
eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}
void stop() {}

const void* get_interface(const char* kind, const char* name) {
  const auto is = [&](const char* k, const char* n) { return std::strcmp(kind, k) == 0 && std::strcmp(name, n) == 0; };
  if (is(ENG_OPS_KIND, "curvature")) return &curvature::ops;
  if (is(ENG_KERNELS_KIND, "cpu")) return curvature::cpu_kernels();
  if (is(ENG_KERNELS_KIND, "reference")) return &curvature::reference_kernels;
  // Not in the description: for tests and measurements.
  return std::strcmp(kind, "eng.curvature.kernels/1") == 0 ? curvature::isa_kernels(name) : nullptr;
}

const eng_plugin plugin = {.struct_size = sizeof(eng_plugin),
                           .abi_minor = ENG_ABI_MINOR,
                           .draft_id = ENG_ABI_DRAFT_ID,
                           .describe = describe,
                           .start = start,
                           .stop = stop,
                           .get_interface = get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
