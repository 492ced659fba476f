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

eng_status states(void*, eng_state* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < 2) return report(error, ENG_OUT_OF_RANGE, "adamw has 2 states, there is room for fewer");
  out[0] = {"exp_avg", ENG_F32, 0};
  out[1] = {"exp_avg_sq", ENG_F32, 0};
  *n = 2;
  return ENG_OK;
}

eng_status scalars(void* self, uint64_t k, float* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < 2) return report(error, ENG_OUT_OF_RANGE, "adamw has 2 scalars, there is room for fewer");
  if (k < 1) return report(error, ENG_INVALID, "updates are counted from 1");
  const AdamW& a = *static_cast<AdamW*>(self);
  const double step = static_cast<double>(k);
  out[0] = static_cast<float>(1.0 - std::pow(a.beta1, step));
  out[1] = static_cast<float>(std::sqrt(1.0 - std::pow(a.beta2, step)));
  *n = 2;
  return ENG_OK;
}

eng_status update(void* self, eng_build* b, const eng_update* run, eng_error* error) {
  if (run->n_states != 2) return report(error, ENG_INVALID, "adamw needs its 2 states");
  if (run->weight_out) return report(error, ENG_UNSUPPORTED, "adamw updates weights in place only; use precision fp32");
  const AdamW& a = *static_cast<AdamW*>(self);
  const eng_id in[5] = {run->master, run->grad, run->states[0], run->states[1], run->scalars};
  eng_id out[3] = {run->master, run->states[0], run->states[1]};
  const eng_attr attrs[4] = {{"beta1", 0, a.beta1},
                             {"beta2", 0, a.beta2},
                             {"eps", 0, a.eps},
                             {"weight_decay", 0, decay_of(*run, a.weight_decay)}};
  return b->api->emit(b, ENG_OP_ADAMW, in, 5, out, 3, attrs, 4, error);
}

}  // namespace

const eng_optimizer adamw_table = {sizeof(eng_optimizer), 1, create, destroy, states, scalars, update};
