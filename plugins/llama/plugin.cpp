// SPDX-License-Identifier: Apache-2.0
// The C side of the model: tables and the boundary.
#include "engine/plugin.h"

#include <algorithm>
#include <cstring>

#include "description.hpp"
#include "failure.hpp"
#include "model.hpp"

namespace {

using llama::Failure;
using llama::guarded;
using llama::Model;

eng_status create(const eng_options* options, void** self, eng_error* error) {
  return guarded(error, [&] {
    *self = new Model(llama::read_config(options, error));
    return ENG_OK;
  });
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
  return guarded(error, [&] {
    static_cast<Model*>(self)->declare(b);
    return b->api->status(b, error);
  });
}

eng_status trace(void* self, eng_build* b, uint32_t tmpl, const eng_id* params, uint32_t n_params, const eng_id* in,
                 uint32_t n_in, eng_id* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  return guarded(error, [&] {
    if (cap < 1) throw Failure{ENG_OUT_OF_RANGE, "llama blocks have one output, there is room for none"};
    const eng_id result = static_cast<Model*>(self)->trace(b, tmpl, params, n_params, in, n_in);
    const eng_status status = b->api->status(b, error);
    if (status == ENG_OK) out[0] = result, *n_out = 1;
    return status;
  });
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
  return std::strcmp(kind, ENG_MODEL_KIND) == 0 && std::strcmp(name, "llama") == 0 ? &model : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
