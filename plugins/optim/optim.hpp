// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstring>

#include "engine/ops.h"
#include "engine/optimizer.h"

extern const eng_optimizer adamw_table;
extern const eng_optimizer sgd_table;

inline eng_status report(eng_error* error, eng_status code, const char* text) {
  if (error) error->set(error, code, text, std::strlen(text));
  return code;
}

// Reads a number that must lie in [0, limit); `text` is the complaint.
inline eng_status read_below(const eng_options* options, const char* key, double limit, const char* text, double* out,
                             eng_error* error) {
  double value = 0;
  if (eng_status s = options->get_float(options, key, &value, error)) return s;
  if (!(value >= 0.0 && value < limit)) return report(error, ENG_INVALID, text);  // also refuses nan
  *out = value;
  return ENG_OK;
}

inline double decay_of(const eng_update& run, double weight_decay) {
  return (run.flags & ENG_PARAM_NO_DECAY) ? 0.0 : weight_decay;
}
