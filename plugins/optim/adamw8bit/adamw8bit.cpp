// SPDX-License-Identifier: Apache-2.0
#include "adamw8bit.hpp"

#include <cmath>
#include <cstring>

#include "../optim.hpp"

namespace adamw8bit {
namespace {

struct Adam8 {
  double beta1, beta2, eps, weight_decay;
  int64_t least;  // elements of a parameter with moments of 8 bits
};

eng_status create(const eng_options* options, void** self, eng_error* error) {
  Adam8 a{};
  const struct {
    const char* key;
    double limit;
    const char* text;
    double* out;
  } numbers[] = {{"beta1", 1.0, "beta1 must be at least 0 and below 1", &a.beta1},
                 {"beta2", 1.0, "beta2 must be at least 0 and below 1", &a.beta2},
                 {"eps", HUGE_VAL, "eps must be a finite number, at least 0", &a.eps},
                 {"weight_decay", HUGE_VAL, "weight_decay must be a finite number, at least 0", &a.weight_decay}};
  for (const auto& [key, limit, text, out] : numbers)
    if (eng_status s = read_below(options, key, limit, text, out, error)) return s;
  if (eng_status s = options->get_int(options, "min_8bit_size", &a.least, error)) return s;
  if (a.least < 0) return report(error, ENG_INVALID, "min_8bit_size must be at least 0");
  Adam8* made = new (std::nothrow) Adam8(a);
  if (!made) return report(error, ENG_NO_MEMORY, "out of memory");
  *self = made;
  return ENG_OK;
}

void destroy(void* self) {
  delete static_cast<Adam8*>(self);
}

// Decides whether the moments of a parameter have 8 bits. The tables of the first block are embeddings. In one row of
// them most gradients are 0 and a few are large, which a block of 8 bits represents badly (Dettmers et al. 2022,
// section 2.3).
eng_status has_codes(const Adam8& a, const eng_parameter* p, bool* out, eng_error* error) {
  const char* moments = nullptr;
  if (eng_status s = p->options->get_string(p->options, "moments", &moments, error)) return s;
  int64_t n = 1;
  for (uint32_t k = 0; k < p->shape->ndim; ++k) n *= p->shape->dims[k];
  const bool embedding = p->block == 0 && p->shape->ndim == 2;
  *out = std::strcmp(moments, "auto") == 0 ? n >= a.least && !embedding : std::strcmp(moments, "8bit") == 0;
  return ENG_OK;
}

template <bool codes, uint32_t kind>
eng_status shape(void* self, const eng_parameter* p, eng_state_shape* io, eng_error* error) {
  bool has = false;
  if (eng_status s = has_codes(*static_cast<Adam8*>(self), p, &has, error)) return s;
  io->kind = has == codes ? kind : ENG_STATE_NONE;
  if (kind == ENG_STATE_BLOCKS) io->block = block;
  return ENG_OK;
}

eng_status states(void*, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < 6) return report(error, ENG_OUT_OF_RANGE, "adamw8bit has 6 states; the host has room for fewer");
  out[0] = {"exp_avg", ENG_F32, 0, shape<false, ENG_STATE_ELEMENTS>};
  out[1] = {"exp_avg_sq", ENG_F32, 0, shape<false, ENG_STATE_ELEMENTS>};
  out[2] = {"exp_avg_codes", ENG_U8, 0, shape<true, ENG_STATE_ELEMENTS>};
  out[3] = {"exp_avg_scales", ENG_F32, 0, shape<true, ENG_STATE_BLOCKS>};
  out[4] = {"exp_avg_sq_codes", ENG_U8, 0, shape<true, ENG_STATE_ELEMENTS>};
  out[5] = {"exp_avg_sq_scales", ENG_F32, 0, shape<true, ENG_STATE_BLOCKS>};
  *n = 6;
  return ENG_OK;
}

eng_status scalars(void* self, uint64_t k, float* out, uint32_t cap, uint32_t* n, eng_error* error) {
  const Adam8& a = *static_cast<Adam8*>(self);
  return adam_scalars(a.beta1, a.beta2, k, out, cap, n, error);
}

eng_status update(void* self, eng_build* b, const eng_update* run, eng_error* error) {
  const Adam8& a = *static_cast<Adam8*>(self);
  if (run->n_states != 6) return report(error, ENG_INVALID, "adamw8bit needs its 6 states");
  if (eng_status s = needs_f32(b, *run, "adamw8bit", error)) return s;
  double decay = 0;
  if (eng_status s = decay_of(*run, a.weight_decay, &decay, error)) return s;
  const eng_id* const has = run->states;
  if (!has[2]) return emit_adamw(b, *run, has, a.beta1, a.beta2, a.eps, decay, error);
  return emit_last(b, *run, ADAMW8BIT_OP_UPDATE, {run->master, run->grad, has[2], has[3], has[4], has[5], run->scalars},
                   {run->master, has[2], has[3], has[4], has[5]},
                   {{"beta1", 0, a.beta1}, {"beta2", 0, a.beta2}, {"eps", 0, a.eps}, {"weight_decay", 0, decay}},
                   error);
}

}  // namespace

const eng_optimizer optimizer = {.struct_size = sizeof(eng_optimizer),
                                 .granularity = block,
                                 .create = create,
                                 .destroy = destroy,
                                 .states = states,
                                 .scalars = scalars,
                                 .update = update};

}  // namespace adamw8bit
