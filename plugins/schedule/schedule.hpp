// SPDX-License-Identifier: Apache-2.0
// The options and checks that both schedules share.
#pragma once

#include <cmath>
#include <string>

#include "../common/error.hpp"
#include "engine/schedule.h"

extern const eng_schedule wsd_table;
extern const eng_schedule inverse_sqrt_table;

namespace schedule {

using common::Error;

// The value of a key that the section has.
inline int64_t integer(const eng_options* options, const char* key, eng_error* error) {
  int64_t value = 0;
  if (const eng_status s = options->get_int(options, key, &value, error)) throw Error(s, "");
  return value;
}
inline double number(const eng_options* options, const char* key, eng_error* error) {
  double value = 0;
  if (const eng_status s = options->get_float(options, key, &value, error)) throw Error(s, "");
  return value;
}

// The warm-up of both, k < warmup: a straight line on which update `warmup` would run at the peak.
inline double warm(double peak, int64_t warmup, uint64_t k) {
  return peak * (static_cast<double>(k) / static_cast<double>(warmup));
}

// `create` and `destroy` of a class that is made from the options and the run. `Class::rate` is `rate`.
template <class Class>
constexpr eng_schedule table_of() {
  return {.struct_size = sizeof(eng_schedule),
          .reserved = 0,
          .create = [](const eng_options* options, const eng_schedule_run* run, void** self, eng_error* error)
              -> eng_status { return common::guarded(error, [&] { *self = new Class(options, *run, error); }); },
          .destroy = [](void* self) { delete static_cast<Class*>(self); },
          .rate = [](void* self, uint64_t k, double* out, eng_error* error) -> eng_status {
            if (k < 1) return common::report(error, ENG_INVALID, "updates are counted from 1");
            *out = static_cast<const Class*>(self)->rate(k);
            return ENG_OK;
          }};
}

}  // namespace schedule
