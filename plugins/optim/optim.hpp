// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

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

// True if the precision policy keeps masters and states in bf16.
inline eng_status in_bf16(eng_build* b, const eng_update& run, bool* out, eng_error* error) {
  eng_desc master{};
  if (eng_status s = b->api->shape(b, run.master, &master, error)) return s;
  *out = master.dtype == ENG_BF16;
  return ENG_OK;
}

// For optimizers whose ops cannot round stochastically; `name` is the optimizer's.
inline eng_status needs_f32(eng_build* b, const eng_update& run, const std::string& name, eng_error* error) {
  bool narrow = false;
  if (!run.master) return ENG_OK;  // a stage without one
  if (eng_status s = in_bf16(b, run, &narrow, error)) return s;
  if (!narrow) return ENG_OK;
  const std::string text = name +
                           " needs masters in f32, and this precision.plugin keeps them in bf16; set precision.plugin "
                           "= \"bf16\", or optimizer.plugin = \"adamw\" or \"sgd\"";
  return report(error, ENG_UNSUPPORTED, text.c_str());
}

// Emits an op that rounds stochastically (engine/ops.h): once for each parameter of the run, since the numbers depend
// on the parameter. Padding stays as it is.
template <uint32_t n_in, uint32_t n_out, uint32_t n_attrs>
eng_status emit_rounded(eng_build* b, const eng_update& run, const char* op, const eng_id (&in)[n_in],
                        const eng_id (&out)[n_out], const eng_attr (&attrs)[n_attrs], eng_error* error) {
  for (uint32_t r = 0; r < run.n_ranges; ++r) {
    const eng_range& range = run.ranges[r];
    eng_id ins[n_in + 1] = {}, outs[n_out] = {};
    for (uint32_t k = 0; k < n_in; ++k) {
      ins[k] = in[k];
      if (!in[k] || in[k] == run.scalars) continue;
      if (eng_status s = b->api->slice(b, in[k], range.offset, range.count, &ins[k], error)) return s;
    }
    for (uint32_t k = 0; k < n_out; ++k) outs[k] = ins[std::find(in, in + n_in, out[k]) - in];
    ins[n_in] = run.counters;
    eng_attr all[n_attrs + 3];
    eng_attr* const own = std::copy_n(attrs, n_attrs, all);
    own[0] = {"seed", run.seed, 0};
    own[1] = {"stream", range.parameter->number, 0};
    own[2] = {"first", static_cast<int64_t>(range.first), 0};
    if (eng_status s = b->api->emit(b, op, ins, n_in + 1, outs, n_out, all, n_attrs + 3, error)) return s;
  }
  return ENG_OK;
}

// Emits the op that ends an update. If it can, it also writes the 16-bit weight: it then has the attribute "weight" and
// one more output. Otherwise the engine makes the weight, if it differs from the master.
template <uint32_t n_in, uint32_t n_out, uint32_t n_attrs>
eng_status emit_last(eng_build* b, const eng_update& run, const char* op, const eng_id (&in)[n_in],
                     const eng_id (&out)[n_out], const eng_attr (&attrs)[n_attrs], eng_error* error) {
  eng_desc master{}, weight{};
  if (run.weight_out) {
    if (eng_status s = b->api->shape(b, run.master, &master, error)) return s;
    if (eng_status s = b->api->shape(b, run.weight_out, &weight, error)) return s;
  }
  const bool writes = master.dtype == ENG_F32 && (weight.dtype == ENG_BF16 || weight.dtype == ENG_F16);
  eng_id outs[n_out + 1];
  eng_attr all[n_attrs + 1];
  std::copy_n(out, n_out, outs)[0] = run.weight_out;
  std::copy_n(attrs, n_attrs, all)[0] = {"weight", weight.dtype, 0};
  return b->api->emit(b, op, in, n_in, outs, n_out + writes, all, n_attrs + writes, error);
}

// Emits an op that can also round stochastically, and does so where masters are kept in bf16.
template <uint32_t n_in, uint32_t n_out, uint32_t n_attrs>
eng_status emit_update(eng_build* b, const eng_update& run, const char* op, const eng_id (&in)[n_in],
                       const eng_id (&out)[n_out], const eng_attr (&attrs)[n_attrs], eng_error* error) {
  bool narrow = false;
  if (eng_status s = in_bf16(b, run, &narrow, error)) return s;
  return narrow ? emit_rounded(b, run, op, in, out, attrs, error) : emit_last(b, run, op, in, out, attrs, error);
}

// `states`: exp_avg, exp_avg_sq.
inline eng_status emit_adamw(eng_build* b, const eng_update& run, const eng_id* states, double beta1, double beta2,
                             double eps, double weight_decay, eng_error* error) {
  return emit_update(b, run, ENG_OP_ADAMW, {run.master, run.grad, states[0], states[1], run.scalars},
                     {run.master, states[0], states[1]},
                     {{"beta1", 0, beta1}, {"beta2", 0, beta2}, {"eps", 0, eps}, {"weight_decay", 0, weight_decay}},
                     error);
}
