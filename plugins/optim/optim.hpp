// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstring>

#include "../common/error.hpp"
#include "engine/ops.h"
#include "engine/optimizer.h"

extern const eng_optimizer adamw_table;
extern const eng_optimizer sgd_table;

using common::report;

// Reads a number that must lie in [0, limit); `text` is the error message otherwise.
inline eng_status read_below(const eng_options* options, const char* key, double limit, const char* text, double* out,
                             eng_error* error) {
  double value = 0;
  if (eng_status s = options->get_float(options, key, &value, error)) return s;
  if (!(value >= 0.0 && value < limit)) return report(error, ENG_INVALID, text);  // also refuses nan
  *out = value;
  return ENG_OK;
}

// The weight decay of the run's group, or 0 if its parameters take no decay. `weight_decay` is the value of the
// section.
inline eng_status decay_of(const eng_update& run, double weight_decay, double* out, eng_error* error) {
  *out = (run.flags & ENG_PARAM_NO_DECAY) ? 0.0 : weight_decay;
  if ((run.flags & ENG_PARAM_NO_DECAY) || run.n_ranges == 0) return ENG_OK;  // no ranges: only padding
  const eng_options* own = run.ranges[0].parameter->options;
  return read_below(own, "weight_decay", HUGE_VAL, "weight_decay must be a finite number, at least 0", out, error);
}

// Bias corrections of update k.
inline eng_status adam_scalars(double beta1, double beta2, uint64_t k, float* out, uint32_t cap, uint32_t* n,
                               eng_error* error) {
  if (cap < 2) return report(error, ENG_OUT_OF_RANGE, "adamw has 2 scalars; the host has room for fewer");
  if (k < 1) return report(error, ENG_INVALID, "updates are counted from 1");
  const double step = static_cast<double>(k);
  out[0] = static_cast<float>(1.0 - std::pow(beta1, step));
  out[1] = static_cast<float>(std::sqrt(1.0 - std::pow(beta2, step)));
  *n = 2;
  return ENG_OK;
}

// `states`: exp_avg, exp_avg_sq.
inline eng_status emit_adamw(eng_build* b, const eng_update& run, const eng_id* states, double beta1, double beta2,
                             double eps, double weight_decay, eng_error* error) {
  const eng_id in[5] = {run.master, run.grad, states[0], states[1], run.scalars};
  eng_id out[3] = {run.master, states[0], states[1]};
  const eng_attr attrs[4] = {
      {"beta1", 0, beta1}, {"beta2", 0, beta2}, {"eps", 0, eps}, {"weight_decay", 0, weight_decay}};
  return b->api->emit(b, ENG_OP_ADAMW, in, 5, out, 3, attrs, 4, error);
}
