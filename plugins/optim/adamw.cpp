// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <new>

#include "optim.hpp"

namespace {

struct AdamW {
  double beta1, beta2, eps, weight_decay;
};

eng_status create(const eng_options* options, void** self, eng_error* error) {
  AdamW a{};
  if (eng_status s = read_below(options, "beta1", 1.0, "beta1 must be at least 0 and below 1", &a.beta1, error))
    return s;
  if (eng_status s = read_below(options, "beta2", 1.0, "beta2 must be at least 0 and below 1", &a.beta2, error))
    return s;
  if (eng_status s = read_below(options, "eps", HUGE_VAL, "eps must be a finite number, at least 0", &a.eps, error))
    return s;
  if (eng_status s = read_below(options, "weight_decay", HUGE_VAL, "weight_decay must be a finite number, at least 0",
                                &a.weight_decay, error))
    return s;
  AdamW* made = new (std::nothrow) AdamW(a);
  if (!made) return report(error, ENG_NO_MEMORY, "out of memory");
  *self = made;
  return ENG_OK;
}

void destroy(void* self) {
  delete static_cast<AdamW*>(self);
}

eng_status states(void*, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < 2) return report(error, ENG_OUT_OF_RANGE, "adamw has 2 states; the host has room for fewer");
  out[0] = {"exp_avg", ENG_F32, 0, nullptr};
  out[1] = {"exp_avg_sq", ENG_F32, 0, nullptr};
  *n = 2;
  return ENG_OK;
}

eng_status scalars(void* self, uint64_t k, float* out, uint32_t cap, uint32_t* n, eng_error* error) {
  const AdamW& a = *static_cast<AdamW*>(self);
  return adam_scalars(a.beta1, a.beta2, k, out, cap, n, error);
}

eng_status update(void* self, eng_build* b, const eng_update* run, eng_error* error) {
  if (run->n_states != 2) return report(error, ENG_INVALID, "adamw needs its 2 states");
  const AdamW& a = *static_cast<AdamW*>(self);
  double decay = 0;
  if (eng_status s = decay_of(*run, a.weight_decay, &decay, error)) return s;
  return emit_adamw(b, *run, run->states, a.beta1, a.beta2, a.eps, decay, error);
}

}  // namespace

const eng_optimizer adamw_table = {.struct_size = sizeof(eng_optimizer),
                                   .granularity = 1,
                                   .create = create,
                                   .destroy = destroy,
                                   .states = states,
                                   .scalars = scalars,
                                   .update = update};
