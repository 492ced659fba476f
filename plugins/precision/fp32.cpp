// SPDX-License-Identifier: Apache-2.0
// Everything is in single precision. No two homes differ in dtype but for frozen weights that are packed.
#include <new>

#include "../common/error.hpp"
#include "frozen.hpp"
#include "precision.hpp"

namespace precision {
namespace {

eng_status create_fp32(const eng_options* options, eng_build*, void** self, eng_error* error) {
  Frozen made;
  if (eng_status s = made.read(options, error)) return s;
  Frozen* const kept = new (std::nothrow) Frozen(made);
  if (!kept) return common::report(error, ENG_NO_MEMORY, "out of memory");
  *self = kept;
  return ENG_OK;
}

void destroy_fp32(void* self) {
  delete static_cast<Frozen*>(self);
}

eng_status place_fp32(void* self, const eng_unit* unit, int32_t role, eng_view* io, eng_error*) {
  if (static_cast<const Frozen*>(self)->place(unit, role, io)) return ENG_OK;
  if (role != ENG_ROLE_STATE) io->dtype = ENG_F32;  // the optimizer decides a state's dtype
  return ENG_OK;
}

eng_status move_fp32(void* self, eng_build* b, const eng_move* m, eng_error* error) {
  const auto& frozen = *static_cast<const Frozen*>(self);
  if (frozen.moves(m)) return frozen.move(b, m, error);
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
                       .begin = nullptr,
                       .flags_of = nullptr};

}  // namespace precision
