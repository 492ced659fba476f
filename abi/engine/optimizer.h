/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/optimizer.h - kind "eng.optimizer/1": hyper-parameters, state tensors, and the op that updates.
 *
 * The optimizer never sees memory, devices or shards: it says which states an element has and emits one
 * update op per run of elements. Per-update numbers (bias corrections) are a table the host fills from
 * `scalars`, so the step itself needs no host.
 */
#ifndef ENGINE_OPTIMIZER_H_
#define ENGINE_OPTIMIZER_H_

#include "build.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_OPTIMIZER_KIND "eng.optimizer/1"

/* One state per element, for example { "exp_avg", ENG_F32 }; zero before the first update. Names differ, are no longer
 * than 1000 bytes, and neither "parameter" nor "gradient"; the dtype is a floating one. Frozen.  since 1.0 */
typedef struct eng_state {
  const char *name; /* Owner: plugin.  Valid: for ever */
  int32_t dtype;
  int32_t reserved;
} eng_state;

/* A run of elements to update: all ids are flat values of equal length, except `scalars` (f32[32],
 * layout in engine/ops.h). `weight_out` is 0 when the master is the weight itself. master, grad and states may be written,
 * scalars may not. The run may hold padding: elements of no parameter, whose gradient is 0.
 *   Owner: host.  Valid: during the call.  since 1.0 */
typedef struct eng_update {
  uint32_t struct_size;
  uint32_t flags; /* ENG_PARAM_* of the run */
  eng_id master;
  eng_id grad;
  eng_id weight_out;
  eng_id scalars;
  const eng_id *states;
  uint32_t n_states;
  uint32_t reserved;
} eng_update;

typedef struct eng_optimizer {
  uint32_t struct_size;
  uint32_t granularity; /* elements that must stay together, a divisor of 4,096; 1 for element-wise updates */
  /*   Owner: caller, until destroy.  Thread: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, void **self, eng_error *);
  void (*destroy)(void *self);
  /* Writes up to `cap` states and their number.  Thread: [plan]  since 1.0 */
  eng_status (*states)(void *self, eng_state *out, uint32_t cap, uint32_t *n, eng_error *);
  /* Numbers for update k (k = 1, 2, ...), put behind the learning rate into the scalars. n is at most 7, and the same for
   * every k. A pure function.  Thread: [setup]  since 1.0 */
  eng_status (*scalars)(void *self, uint64_t k, float *out, uint32_t cap, uint32_t *n, eng_error *);
  /* Emits the ops that update one run in place. None: the run stays as it is.  Thread: [plan]  since 1.0 */
  eng_status (*update)(void *self, eng_build *, const eng_update *, eng_error *);
} eng_optimizer;

#ifdef __cplusplus
}
#endif
#endif
