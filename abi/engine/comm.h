/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/comm.h - kind "eng.comm/1": many ranks that work on one step.
 *
 * A communicator has two sides. Its collectives are kernels like any other (kind "eng.kernels/1" under the
 * communicator's name): the ops eng.all_gather/1, eng.all_to_all/1, eng.broadcast/1 and, where it has them, the
 * library's own reductions. They are bound to addresses when every address is known and launched on a queue of
 * their own, in an order that is the same on all ranks of a group. A launch may wait for other ranks, never longer
 * than the deadline given at `create`; then, or when a rank is gone, it fails with ENG_UNAVAILABLE and a text that
 * names the ranks that are missing, the collective, its number in the group and how long it has waited.
 * Beside them there is a channel for the host's own few bytes: counts, hashes, flags between steps.
 */
#ifndef ENGINE_COMM_H_
#define ENGINE_COMM_H_

#include "kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_COMM_KIND "eng.comm/1"
#define ENG_COMM_DRAFT "comm-2" /* see engine/plugin.h */
#undef ENG_DRAFT_COMM_
#define ENG_DRAFT_COMM_ "'" ENG_COMM_KIND "' = '" ENG_COMM_DRAFT "'\n"

/* Who is there; rank < size, local_rank < local_size <= size. The host zeroes it and sets struct_size.  since 1.0 */
typedef struct eng_world {
  uint32_t struct_size;
  uint32_t rank;
  uint32_t size;
  uint32_t local_rank; /* among those of this machine, by rank */
  uint32_t local_size;
  uint32_t reserved;
} eng_world;

/* Its kernels take memory of any device, and work on the queue they are given. Without this flag they are kernels of the
 * host (ENG_KERNEL_HOST), and where a device's memory is apart the plan copies to and from pinned memory around them. */
#define ENG_COMM_DEVICE_MEMORY 1u

typedef struct eng_comm {
  uint32_t struct_size;
  uint32_t flags; /* ENG_COMM_* */
  /* Joins the ranks that were started together; at most once in a process. `deadline` bounds this and every later
   * wait, in seconds.  Owner: caller, until destroy.  Thread: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, double deadline, eng_world *out, void **self, eng_error *);
  /* Takes leave of the others: all ranks call it, after every object bound to it was dropped.  Thread: [setup] */
  void (*destroy)(void *self);
  /* Makes group `id` (1 is all ranks, made by create) of the given ranks: member k is ranks[k]. Every rank calls it
   * for every group in the same order, whether it is a member or not. `ranks` is copied.  Thread: [setup]  since 1.0 */
  eng_status (*group)(void *self, eng_id id, const uint32_t *ranks, uint32_t n, eng_error *);
  /* all[r * bytes ...] = what rank r gave as `mine`, the caller's own included; all ranks call it with equal `bytes`. 0
   * bytes: a barrier, and both may be NULL.
   *   Owner of both: caller.  Valid: during the call.
   * Thread: [any] but [step], one at a time; collectives of a step may run beside it  since 1.0 */
  eng_status (*exchange)(void *self, const void *mine, uint64_t bytes, void *all, eng_error *);
  /* ENG_OK while the others are there as far as is known, else what happened. Does not wait. An engine need not ask.
   *   Thread: [any] */
  eng_status (*poll)(void *self, eng_error *);
  /* Makes every wait of this and the other ranks fail, now or within seconds. `reason` is told to the others where
   * that is possible, and copied. After it nothing but destroy may be called.  Thread: [any] */
  void (*abort)(void *self, const char *reason);
  uint64_t overhead_bytes; /* of a process with it, beyond the arenas: libraries, buffers between ranks; measured once
                              per build, the same for every model */
} eng_comm;

#ifdef __cplusplus
}
#endif
#endif
