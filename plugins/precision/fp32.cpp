// SPDX-License-Identifier: Apache-2.0
// Everything is in single precision. No two homes differ in dtype, so nothing is ever converted.
#include "../common/error.hpp"
#include "precision.hpp"

namespace precision {
namespace {

// The policy has no options and no memory, so the address of one variable stands for every object.
const char fp32_object = 0;

eng_status create_fp32(const eng_options*, eng_build*, void** self, eng_error*) {
  *self = const_cast<char*>(&fp32_object);
  return ENG_OK;
}

void destroy_fp32(void*) {}

eng_status place_fp32(void*, const eng_unit*, int32_t role, eng_view* io, eng_error*) {
  if (role != ENG_ROLE_STATE) io->dtype = ENG_F32;  // the optimizer decides a state's dtype
  return ENG_OK;
}

eng_status move_fp32(void*, eng_build*, const eng_move*, eng_error* error) {
  return common::report(
      error, ENG_UNSUPPORTED,
      "fp32 keeps everything in f32 and has nothing to convert; the caller asked for this move by mistake");
}

}  // namespace

const eng_axis fp32 = {.struct_size = sizeof(eng_axis),
                       .minor = 0,
                       .create = create_fp32,
                       .destroy = destroy_fp32,
                       .place = place_fp32,
                       .move = move_fp32,
                       .states = nullptr,
                       .update = nullptr,
                       .flags = 0,
                       .reserved = 0,
                       .begin = nullptr};

}  // namespace precision
