// SPDX-License-Identifier: Apache-2.0
#include "../common/plugin.hpp"

#include "description.hpp"
#include "kernels.hpp"
#include "mamba2.hpp"
#include "model.hpp"
#include "ops.hpp"

namespace {

const char* describe() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  const common::Asked is{kind, name};
  if (is(ENG_OPS_KIND, "mamba")) return &mamba::all_ops;
  if (is(ENG_KERNELS_KIND, "cpu")) return mamba::cpu_kernels();
  if (is(ENG_KERNELS_KIND, "reference")) return &mamba::reference_kernels;
  // Not in the description: for tests and measurements.
  if (std::strcmp(kind, "eng.mamba.kernels/1") == 0) return mamba::isa_kernels(name);
  return model::interface_of<mamba::Model, mamba::Mamba2, mamba::FalconMamba>(kind, name);
}

const eng_plugin plugin = common::plain_plugin(describe, get_interface);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
