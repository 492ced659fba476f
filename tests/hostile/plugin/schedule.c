/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "hostile.h"

static double peak;

static eng_status create(const eng_options* options, const eng_schedule_run* run, void** self, eng_error* error) {
  take_fault(options);
  ENTER("schedule.create");
  peak = run->peak;
  *self = NULL;
  return ENG_OK;
}

static void destroy(void* self) {
  (void)self;
}

static eng_status rate(void* self, uint64_t k, double* out, eng_error* error) {
  (void)self;
  ENTER("rate");
  *out = peak / 2;
  if (k == 3 && is("rate: nan")) *out = NAN;
  if (k == 3 && is("rate: below 0")) *out = -peak;
  if (k == 3 && is("rate: too high")) *out = 2 * peak;
  if (k == 3 && is("rate: forgotten")) *out = INFINITY;
  return ENG_OK;
}

const eng_schedule hostile_schedule = {sizeof(eng_schedule), 0, create, destroy, rate};
