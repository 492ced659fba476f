// SPDX-License-Identifier: Apache-2.0
#include "engine/plugin.h"

#include "description.hpp"
#include "kernels.hpp"
#include "model.hpp"
#include "ops.hpp"

namespace {

using Boundary = model::Boundary<mamba::Model>;

const char* describe() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  const auto is = [&](const char* k, const char* n) { return std::strcmp(kind, k) == 0 && std::strcmp(name, n) == 0; };
  if (is(ENG_OPS_KIND, "mamba")) return &mamba::all_ops;
  if (is(ENG_KERNELS_KIND, "cpu")) return mamba::cpu_kernels();
  if (is(ENG_KERNELS_KIND, "reference")) return &mamba::reference_kernels;
  // Not in the description: for tests and measurements.
  if (std::strcmp(kind, "eng.mamba.kernels/1") == 0) return mamba::isa_kernels(name);
  return Boundary::get_interface(kind, name);
}

const eng_plugin plugin = {.struct_size = sizeof(eng_plugin),
                           .abi_minor = ENG_ABI_MINOR,
                           .draft_id = ENG_ABI_DRAFT_ID,
                           .describe = describe,
                           .start = Boundary::start,
                           .stop = Boundary::stop,
                           .get_interface = get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
