// SPDX-License-Identifier: Apache-2.0
// bf16, bf16_sr and fp16: compute and what moves between ranks have 16 bits, sums and masters are f32 (Micikevicius et
// al. 2018). Parameters that a model wants in f32 stay so. fp16 scales the loss, so that small gradients do not become
// zero. bf16_sr has no masters: what an update keeps is bf16, rounded stochastically (engine/ops.h).
#include <cmath>
#include <cstring>
#include <new>

#include "../common/error.hpp"
#include "engine/ops.h"
#include "frozen.hpp"
#include "precision.hpp"

namespace precision {
namespace {

using common::report;

struct Mixed {
  int32_t dtype;       // the 16-bit type
  int32_t kept;        // that of masters and optimizer states
  int32_t sum;         // that of reduced gradients
  int32_t stream;      // that of the residual stream
  bool alone;          // one rank: what makes a gradient writes the sum itself, there is nothing to move
  eng_attr scaler[5];  // of ENG_OP_SCALER and ENG_OP_LOSS_SCALE
  Frozen frozen = {};
};

eng_status create_mixed(const eng_options* options, Mixed made, eng_build* b, void** self, eng_error* error) {
  if (eng_status s = made.frozen.read(options, error)) return s;
  const char* stream = nullptr;
  if (eng_status s = options->get_string(options, "residual", &stream, error)) return s;
  made.stream = std::strcmp(stream, "f32") == 0 ? ENG_F32 : made.dtype;
  uint32_t rank = 0, size = 1;
  if (eng_status s = b->api->world(b, &rank, &size, error)) return s;
  made.alone = size == 1;
  Mixed* kept = new (std::nothrow) Mixed(made);
  if (!kept) return report(error, ENG_NO_MEMORY, "out of memory");
  *self = kept;
  return ENG_OK;
}

eng_status create_bf16(const eng_options* options, eng_build* b, void** self, eng_error* error) {
  return create_mixed(options, {ENG_BF16, ENG_F32, ENG_F32, ENG_BF16, false, {}, {}}, b, self, error);
}

eng_status create_bf16_sr(const eng_options* options, eng_build* b, void** self, eng_error* error) {
  const char* gradients = nullptr;
  if (eng_status s = options->get_string(options, "gradients", &gradients, error)) return s;
  const int32_t sum = std::strcmp(gradients, "bf16") == 0 ? ENG_BF16 : ENG_F32;
  return create_mixed(options, {ENG_BF16, ENG_BF16, sum, ENG_BF16, false, {}, {}}, b, self, error);
}

eng_status create_fp16(const eng_options* options, eng_build* b, void** self, eng_error* error) {
  double fixed = 0, least = 1;
  int64_t power = 0, window = 0, hysteresis = 0;
  int32_t consecutive = 0;
  eng_status s = options->get_float(options, "loss_scale", &fixed, error);
  if (!s) s = options->get_int(options, "initial_scale_power", &power, error);
  if (!s) s = options->get_int(options, "loss_scale_window", &window, error);
  if (!s) s = options->get_int(options, "hysteresis", &hysteresis, error);
  if (!s) s = options->get_bool(options, "consecutive_hysteresis", &consecutive, error);
  if (!s) s = options->get_float(options, "min_loss_scale", &least, error);
  if (s) return s;
  const double initial = fixed > 0 ? fixed : std::ldexp(1.0, static_cast<int>(power));
  if (fixed > 0) least = fixed, window = 0;  // a fixed scale cannot become smaller, and does not grow
  if (initial < least)
    return report(error, ENG_INVALID,
                  "the first loss scale, 2^initial_scale_power, is below min_loss_scale; raise the former or lower the "
                  "latter");
  return create_mixed(options,
                      {ENG_F16,
                       ENG_F32,
                       ENG_F32,
                       ENG_F16,
                       false,
                       {{"initial", 0, initial},
                        {"minimum", 0, least},
                        {"window", window, 0},
                        {"hysteresis", hysteresis, 0},
                        {"consecutive", consecutive, 0}},
                       {}},
                      b, self, error);
}

void destroy_mixed(void* self) {
  delete static_cast<Mixed*>(self);
}

eng_status place_mixed(void* self, const eng_unit* unit, int32_t role, eng_view* io, eng_error*) {
  const auto& m = *static_cast<const Mixed*>(self);
  if (m.frozen.place(unit, role, io)) return ENG_OK;
  const bool wide = unit && (unit->flags & ENG_PARAM_FP32);
  const auto narrow = [&](int32_t dtype) { io->dtype = wide ? ENG_F32 : dtype; };
  switch (role) {
    case ENG_ROLE_PARTIAL:
      narrow(m.alone ? m.sum : m.dtype);
      break;
    case ENG_ROLE_WEIGHT:
    case ENG_ROLE_ACT:
      narrow(m.dtype);
      break;
    case ENG_ROLE_STREAM:
      io->dtype = m.stream;
      break;
    case ENG_ROLE_MASTER:
    case ENG_ROLE_STATE:
      narrow(m.kept);
      break;
    case ENG_ROLE_GRAD:
      narrow(m.sum);
      break;
    default:
      break;
  }
  return ENG_OK;
}

eng_status move_mixed(void* self, eng_build* b, const eng_move* m, eng_error* error) {
  const Frozen& frozen = static_cast<const Mixed*>(self)->frozen;
  if (frozen.moves(m)) return frozen.move(b, m, error);
  eng_id out = m->dst;
  const eng_attr dtype = {"dtype", m->to->dtype, 0};
  return b->api->emit(b, ENG_OP_CAST, &m->src, 1, &out, 1, &dtype, 1, error);
}

eng_status fp16_states(void*, eng_policy_state* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < 1) return report(error, ENG_OUT_OF_RANGE, "fp16 has a state; the host has no room for it");
  out[0].name = "scaler";
  out[0].shape = {};
  out[0].shape.dtype = ENG_F32, out[0].shape.ndim = 1, out[0].shape.dims[0] = ENG_SCALER_COUNT;
  *n = 1;
  return ENG_OK;
}

eng_status emit_scaler(void* self, eng_build* b, const char* op, const eng_policy_update* u, eng_id out,
                       eng_error* error) {
  const auto& m = *static_cast<const Mixed*>(self);
  const eng_id in[2] = {u->states[0], u->scalars};
  return b->api->emit(b, op, in, 2, &out, 1, m.scaler, 5, error);
}

eng_status begin_fp16(void* self, eng_build* b, const eng_policy_update* u, eng_error* error) {
  return emit_scaler(self, b, ENG_OP_LOSS_SCALE, u, u->scalars, error);
}

eng_status update_fp16(void* self, eng_build* b, const eng_policy_update* u, eng_error* error) {
  return emit_scaler(self, b, ENG_OP_SCALER, u, u->states[0], error);
}

}  // namespace

const eng_axis bf16 = {.struct_size = sizeof(eng_axis),
                       .minor = 0,
                       .create = create_bf16,
                       .destroy = destroy_mixed,
                       .place = place_mixed,
                       .move = move_mixed,
                       .states = nullptr,
                       .update = nullptr,
                       .flags = ENG_AXIS_CASTS,
                       .reserved = 0,
                       .begin = nullptr,
                       .flags_of = nullptr};

const eng_axis bf16_sr = {.struct_size = sizeof(eng_axis),
                          .minor = 0,
                          .create = create_bf16_sr,
                          .destroy = destroy_mixed,
                          .place = place_mixed,
                          .move = move_mixed,
                          .states = nullptr,
                          .update = nullptr,
                          .flags = ENG_AXIS_CASTS,
                          .reserved = 0,
                          .begin = nullptr,
                          .flags_of = nullptr};

const eng_axis fp16 = {.struct_size = sizeof(eng_axis),
                       .minor = 0,
                       .create = create_fp16,
                       .destroy = destroy_mixed,
                       .place = place_mixed,
                       .move = move_mixed,
                       .states = fp16_states,
                       .update = update_fp16,
                       .flags = ENG_AXIS_CASTS,
                       .reserved = 0,
                       .begin = begin_fp16,
                       .flags_of = nullptr};

}  // namespace precision
