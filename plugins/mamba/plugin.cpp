// SPDX-License-Identifier: Apache-2.0
// The C side: tables and the boundary.
#include "engine/plugin.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "description.hpp"
#include "kernels.hpp"
#include "model.hpp"
#include "ops.hpp"

namespace {

using mamba::Model;

std::string whose() {
  return "mamba";
}

eng_status create(const eng_options* options, void** self, eng_error* error) {
  return cpu::guarded(error, whose, [&] { *self = new Model(mamba::read_config(options)); });
}

void destroy(void* self) {
  delete static_cast<Model*>(self);
}

eng_status model_describe(void* self, eng_model_info* out, eng_error*) {
  eng_model_info info = static_cast<Model*>(self)->describe();
  info.struct_size = out->struct_size;
  std::memcpy(out, &info, std::min<size_t>(info.struct_size, sizeof info));  // an older host has less room
  return ENG_OK;
}

eng_status declare(void* self, eng_build* b, eng_error* error) {
  const eng_status status = cpu::guarded(error, whose, [&] { static_cast<Model*>(self)->declare(b); });
  return status == ENG_OK ? b->api->status(b, error) : status;
}

eng_status trace(void* self, eng_build* b, uint32_t tmpl, const eng_id* params, uint32_t n_params, const eng_id* in,
                 uint32_t n_in, eng_id* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  eng_id result = 0;
  eng_status status = cpu::guarded(error, whose, [&] {
    if (cap < 1) throw cpu::Error{ENG_OUT_OF_RANGE, "a block has one output, there is room for none"};
    result = static_cast<Model*>(self)->trace(b, tmpl, params, n_params, in, n_in);
  });
  if (status == ENG_OK) status = b->api->status(b, error);
  if (status == ENG_OK) out[0] = result, *n_out = 1;
  return status;
}

const eng_model model = {sizeof(eng_model), 0, create, destroy, model_describe, declare, trace};

const char* describe() {
  return eng_description;
}
eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}
void stop() {}

const void* get_interface(const char* kind, const char* name) {
  const auto is = [](const char* a, const char* b) { return std::strcmp(a, b) == 0; };
  if (is(kind, ENG_MODEL_KIND) && is(name, "mamba")) return &model;
  if (is(kind, ENG_OPS_KIND) && is(name, "mamba")) return &mamba::all_ops;
  if (is(kind, ENG_KERNELS_KIND) && is(name, "cpu")) return mamba::cpu_kernels();
  if (is(kind, ENG_KERNELS_KIND) && is(name, "reference")) return &mamba::reference_kernels;
  // Not in the description: for tests and measurements.
  return is(kind, "eng.mamba.kernels/1") ? mamba::isa_kernels(name) : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
