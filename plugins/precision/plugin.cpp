// SPDX-License-Identifier: Apache-2.0
// fp32: everything is in single precision. No two homes differ in dtype, so nothing is ever converted.
#include "engine/plugin.h"

#include <cstring>

#include "../common/error.hpp"
#include "engine/policy.h"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.precision'
name = 'Precision'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'dtypes of weights, gradients and activations'

[[provides]]
kind = 'eng.precision/1'
name = 'fp32'
summary = 'single precision everywhere'
)")
// clang-format on

namespace {

// The policy has no options and no memory, so the address of one variable stands for every object.
const char fp32_object = 0;

eng_status create(const eng_options*, eng_build*, void** self, eng_error*) {
  *self = const_cast<char*>(&fp32_object);
  return ENG_OK;
}

void destroy(void*) {}

eng_status place(void*, const eng_unit*, uint32_t, int32_t role, eng_view* io, eng_error*) {
  if (role != ENG_ROLE_STATE) io->dtype = ENG_F32;  // the optimizer decides a state's dtype
  return ENG_OK;
}

eng_status move(void*, eng_build*, const eng_move*, eng_error* error) {
  return common::report(
      error, ENG_UNSUPPORTED,
      "fp32 keeps everything in f32 and has nothing to convert; the caller asked for this move by mistake");
}

const eng_axis fp32 = {.struct_size = sizeof(eng_axis),
                       .minor = 0,
                       .create = create,
                       .destroy = destroy,
                       .place = place,
                       .move = move,
                       .states = nullptr,
                       .update = nullptr,
                       .flags = 0,
                       .reserved = 0};

const char* describe() {
  return eng_description;
}
eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}
void stop() {}

const void* get_interface(const char* kind, const char* name) {
  return std::strcmp(kind, ENG_PRECISION_KIND) == 0 && std::strcmp(name, "fp32") == 0 ? &fp32 : nullptr;
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
