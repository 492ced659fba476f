// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <new>

#include "optim.hpp"

namespace {

struct Sgd {
  double momentum, weight_decay;
  int64_t nesterov;
};

uint32_t state_count(const Sgd& s) {
  return s.momentum > 0.0 ? 1 : 0;
}

eng_status create(const eng_options* options, void** self, eng_error* error) {
  Sgd made{};
  int32_t nesterov = 0;
  if (eng_status s =
          read_below(options, "momentum", 1.0, "momentum must be at least 0 and below 1", &made.momentum, error))
    return s;
  if (eng_status s = read_below(options, "weight_decay", HUGE_VAL, "weight_decay must be a finite number, at least 0",
                                &made.weight_decay, error))
    return s;
  if (eng_status s = options->get_bool(options, "nesterov", &nesterov, error)) return s;
  if (nesterov && made.momentum == 0.0)
    return report(error, ENG_INVALID,
                  "nesterov needs momentum above 0; set momentum (0.9 is usual) or remove nesterov");
  made.nesterov = nesterov != 0;
  Sgd* kept = new (std::nothrow) Sgd(made);
  if (!kept) return report(error, ENG_NO_MEMORY, "out of memory");
  *self = kept;
  return ENG_OK;
}

void destroy(void* self) {
  delete static_cast<Sgd*>(self);
}

eng_status states(void* self, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  const uint32_t count = state_count(*static_cast<Sgd*>(self));
  if (cap < count) return report(error, ENG_OUT_OF_RANGE, "sgd with momentum has 1 state; the host has no room for it");
  if (count) out[0] = {"momentum_buffer", ENG_F32, 0, nullptr};
  *n = count;
  return ENG_OK;
}

eng_status scalars(void*, uint64_t k, float* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < 1) return report(error, ENG_OUT_OF_RANGE, "sgd has 1 scalar; the host has no room for it");
  if (k < 1) return report(error, ENG_INVALID, "updates are counted from 1");
  out[0] = k == 1 ? 1.0f : 0.0f;
  *n = 1;
  return ENG_OK;
}

eng_status update(void* self, eng_build* b, const eng_update* run, eng_error* error) {
  const Sgd& s = *static_cast<Sgd*>(self);
  const uint32_t count = state_count(s);
  if (run->n_states != count) return report(error, ENG_INVALID, "sgd needs 1 state with momentum and 0 states without");
  double decay = 0;
  if (eng_status e = decay_of(*run, s.weight_decay, &decay, error)) return e;
  const eng_id buffer = count ? run->states[0] : 0;
  const eng_attr attrs[3] = {{"momentum", 0, s.momentum}, {"weight_decay", 0, decay}, {"nesterov", s.nesterov, 0}};
  if (!buffer)
    return emit_update(b, *run, ENG_OP_SGD, {run->master, run->grad, 0, run->scalars}, {run->master}, attrs, error);
  return emit_update(b, *run, ENG_OP_SGD, {run->master, run->grad, buffer, run->scalars}, {run->master, buffer}, attrs,
                     error);
}

}  // namespace

const eng_optimizer sgd_table = {.struct_size = sizeof(eng_optimizer),
                                 .granularity = 1,
                                 .create = create,
                                 .destroy = destroy,
                                 .states = states,
                                 .scalars = scalars,
                                 .update = update};
