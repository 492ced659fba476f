/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/comm.h - kind "eng.comm/1": many ranks that work on one step.
 *
 * A communicator has two sides.
 *
 * Collectives are kernels like any other (kind "eng.kernels/1" under the communicator's name, in the same file). They
 * compute the ops eng.all_gather/1, eng.all_to_all/1, eng.broadcast/1 and, if the communicator has them, the library's
 * own reductions. They are prepared after the groups were made and after all other kernels of a plan, on all ranks in the
 * same order, so `prepare` may wait for other ranks: a connection that all must make belongs there, not into the first
 * launch. They are bound when every address is known, and launched in an order that is the same on all ranks of a group.
 * With [zero] overlap they have a queue of their own. `prepare` and a launch may wait for other ranks, but never longer
 * than the deadline given to `create`. At the deadline, or when a rank is gone, they fail with ENG_UNAVAILABLE. The text
 * names the missing ranks, the collective, its number in the group, and how long it has waited.
 *
 * With ENG_COMM_DEVICE_MEMORY, a launch may only enqueue the collective. If it fails later, its queue still completes,
 * the output is undefined, and `poll` reports the error. The engine calls `poll` before it starts a program and after
 * the queues of the program have ended; if it fails, the program has failed.
 *
 * The channel of `exchange` carries the host's own few bytes: counts, hashes, flags between steps.
 *
 * Who the ranks are. A plugin reads no environment, so the host passes on what the launcher of the ranks announced: in
 * eng_world, and, if the communicator has options of these names, in the options "address" (string) and "port" (int):
 * the variables MASTER_ADDR and MASTER_PORT, where they are set, take the place of the configuration's values. A
 * communicator whose library finds the ranks by itself, as MPI does, ignores all that.
 */
#ifndef ENGINE_COMM_H_
#define ENGINE_COMM_H_

#include "kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_COMM_KIND "eng.comm/1"
#define ENG_COMM_DRAFT "eng.comm/1-draft5" /* for the description: see engine/plugin.h */

/* eng_world.announced */
#define ENG_WORLD_RANKS 1u /* rank and size are announced */
#define ENG_WORLD_LOCAL 2u /* local_rank is announced */

/* The ranks. rank < size, local_rank < local_size <= size. The host zeroes it, and sets struct_size and what a launcher
 * announced of this process; `create` sets all but struct_size and `announced`.  since 1.0 */
typedef struct eng_world {
  uint32_t struct_size;
  uint32_t rank;
  uint32_t size;
  uint32_t local_rank; /* number among the ranks of this machine: the announced one, or in the order of ranks */
  uint32_t local_size; /* number of ranks on this machine */
  uint32_t announced;  /* ENG_WORLD_*: set by the host */
} eng_world;

/* The kernels of this communicator accept memory of any device, and work on the queue that they are given. Without this
 * flag they are host kernels (ENG_KERNEL_HOST). If the device has memory of its own, the plan then copies what they
 * send and receive to and from pinned memory. */
#define ENG_COMM_DEVICE_MEMORY 1u
/* `create` joins ranks that any launcher started, if it announced rank and size (ENG_WORLD_RANKS). Without this flag the
 * host refuses ranks whose launcher does not work with Open MPI. */
#define ENG_COMM_ANY_LAUNCHER 2u

typedef struct eng_comm {
  uint32_t struct_size;
  uint32_t flags; /* ENG_COMM_* */
  /* Joins the ranks that were started together. Called at most once in a process. `deadline` limits this wait and every
   * later one, in seconds.  Owner: caller, until destroy.  Call: [setup & !created]  since 1.0 */
  eng_status (*create)(const eng_options *, double deadline, eng_world *out, void **self, eng_error *);
  /* Leaves the other ranks. All ranks call it, after the records and states of all collectives were dropped.
   *   Call: [setup & created]  since 1.0 */
  void (*destroy)(void *self);
  /* Makes group `id` of the given ranks: member k is ranks[k]. `create` has made group 1, which contains all ranks.
   * Every rank calls this for every group in the same order, even if it is not a member. The communicator copies
   * `ranks`.
   *   Call: [setup & created]  since 1.0 */
  eng_status (*group)(void *self, eng_id id, const uint32_t *ranks, uint32_t n, eng_error *);
  /* Writes what rank r gave as `mine` to all[r * bytes ...], for every rank r including this one. All ranks call it
   * with equal `bytes`. 0 bytes: a barrier; `mine` and `all` may then be NULL. It waits for the other ranks.
   *   Owner of `mine` and `all`: caller.  Valid: during the call.
   *   Call: [any & !step & created], one call at a time; collectives may run on another thread meanwhile  since 1.0 */
  eng_status (*exchange)(void *self, const void *mine, uint64_t bytes, void *all, eng_error *);
  /* ENG_OK while all other ranks are present and no collective has failed, as far as is known; otherwise an error that
   * says what happened. Does not wait. An engine need not call it if the collectives are host kernels.
   *   Call: [any & created]  since 1.0 */
  eng_status (*poll)(void *self, eng_error *);
  /* Makes every wait of this rank and the others fail, at once or within seconds. Sends `reason` to the others if that
   * is possible. The communicator copies `reason`. After `abort`, only `destroy` may be called.
   *   Call: [any & created]  since 1.0 */
  void (*abort)(void *self, const char *reason);
  uint64_t overhead_bytes; /* host memory that it adds to a process, besides the arenas: libraries, buffers between
                              ranks; measured once per build, the same for every model */
} eng_comm;

#ifdef __cplusplus
}
#endif
#endif
