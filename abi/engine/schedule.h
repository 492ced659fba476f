/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/schedule.h - kind "eng.schedule/1": the learning rate of every update.
 *
 * A configuration selects a schedule by name: `[schedule] kind = "NAME"`. The section then has the options of the
 * schedule and no others. The engine's own kinds come first: a schedule named "cosine" cannot be selected.
 *
 * A schedule is one formula. It sees neither time nor losses, so a run that was stopped and resumed has the rates of one
 * that was not.
 *
 * Frozen as 1.0 since 2026-11-28 (docs/abi-policy.md).
 */
#ifndef ENGINE_SCHEDULE_H_
#define ENGINE_SCHEDULE_H_

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_SCHEDULE_KIND "eng.schedule/1"

/* The run that a schedule is for.
 *   Owner: host.  Valid: during create.  since 1.0 */
typedef struct eng_schedule_run {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t steps; /* train.steps, at least 1: the number of steps. If steps are skipped, there are fewer updates. */
  double peak;   /* optimizer.learning_rate, above 0: the highest rate that `rate` may return */
} eng_schedule_run;

typedef struct eng_schedule {
  uint32_t struct_size;
  uint32_t reserved;
  /* ENG_INVALID: options that contradict each other or the run. The text names the key and says what to change.
   *   Owner: caller, until destroy.  Call: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, const eng_schedule_run *, void **self, eng_error *);
  /* Call: [setup & created]  since 1.0 */
  void (*destroy)(void *self);
  /* The learning rate of update k = 1, 2, ...: a finite number from 0 to `peak`, where one part in 10^9 more is allowed
   * for rounding. The engine refuses any other, and names the update. A pure function of k: the same k always gets the
   * same rate, and k come in any order. k may be greater than the run's steps, because a run that is made longer is
   * compared with what it was. Called for every update of the run before its first step, and between steps.
   *   Call: [setup & created]  since 1.0 */
  eng_status (*rate)(void *self, uint64_t k, double *out, eng_error *);
} eng_schedule;

#ifdef __cplusplus
}
#endif
#endif
