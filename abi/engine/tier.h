/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/tier.h - kind "eng.tier/1": memory besides the device's own in which states live between their uses.
 *
 * A configuration maps states to tiers: [offload] optimizer = "host" keeps the states of the optimizer in the arena of
 * the tier "host". The plan knows every byte of that arena before the run starts, as it does for the device's arena, and
 * it has an action for everything that crosses from one to the other.
 *
 * A tier is one of two things.
 *   Host memory (ENG_TIER_HOST_MEMORY): it gives the memory and does nothing while a step runs. Kernels of eng.copy/1 of
 *   the device bring its bytes to the device and back, and kernels of the host compute in it.
 *   Storage (without the flag), such as files on a disk: nothing computes in it. Its `read` and `write` are the actions
 *   that bring its bytes to memory and back. They run on queues of their own, beside the computation.
 */
#ifndef ENGINE_TIER_H_
#define ENGINE_TIER_H_

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_TIER_KIND "eng.tier/1"
#define ENG_TIER_DRAFT "eng.tier/1-draft2" /* for the description: see engine/plugin.h */

/* eng_tier_info.flags */
#define ENG_TIER_HOST_MEMORY 1u /* the host, and kernels on the host, read and write the arena at its address */

/* Properties of a tier. The host zeroes it and sets struct_size. A number that is unknown is 0.  since 1.0 */
typedef struct eng_tier_info {
  uint32_t struct_size;
  uint32_t flags;       /* ENG_TIER_* */
  uint64_t total_bytes; /* what there is for the ranks of this machine together */
  /* Rates of storage, for all ranks of this machine together, in bytes/s. The plan's estimate of a step uses them. */
  double read_bandwidth;
  double write_bandwidth;
} eng_tier_info;

/* One tier. All functions up to `free` are required.  since 1.0 */
typedef struct eng_tier {
  uint32_t struct_size;
  uint32_t minor;
  /* Describes the tier from the options alone. Creates nothing. The options are the keys of [offload]: the engine's, and
   * those that descriptions of tiers list. The name of such a key begins with that of the tier: NAME_. They are there
   * where a state is on the tier. A key with a default must not be given without one; a key without a default says what
   * there is, such as a folder, and may be. ENG_INVALID: the text names the key and what to change.
   *   Call: [plan]  since 1.0 */
  eng_status (*describe)(const eng_options *, eng_tier_info *out, eng_error *);
  /* `local_rank` is the number of this process among those of this machine, from 0.
   *   Owner: caller, until destroy.  Call: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, uint32_t local_rank, void **self, eng_error *);
  /* Everything that it allocated has been given back.  Call: [setup & created]  since 1.0 */
  void (*destroy)(void *self);
  /* Allocates an arena of exactly `bytes`, zeroed, never NULL.
   * Host memory: `out` is its address, resident (every page touched), aligned to at least 4,096 bytes. Until free, any
   * thread of the host reads and writes it, and the tier does not.
   * Storage: `out` is a handle for `read` and `write`, and all the space is reserved.
   *   Owner: caller, until free.  Call: [setup & created]  since 1.0 */
  eng_status (*alloc)(void *self, uint64_t bytes, void **out, eng_error *);
  /* `bytes` are those that were given to alloc.  Call: [setup & created]  since 1.0 */
  void (*free)(void *self, void *arena, uint64_t bytes);

  /* ---- what a tier takes besides its arena; NULL: nothing worth counting --------------------------------- */
  /* The host memory that a process needs for an arena of `bytes`: buffers, tables. The plan counts it.
   *   Call: [plan]  since 1.0 */
  eng_status (*host_bytes)(const eng_options *, uint64_t bytes, uint64_t *out, eng_error *);

  /* ---- storage only -------------------------------------------------------------------------------------- */
  /* Copies `bytes` from the arena, from byte `offset` on, to memory of the host, or back. Returns when it is done. What
   * was never written is zero. Offset, address and length may be any, but values of the plan start on multiples of 4,096
   * bytes of the arena, and large ones on multiples of 256 bytes of memory. One read and one write may be at work at the
   * same time, on two threads, and never two reads or two writes; it is not always the same thread that reads. They may
   * touch the same 4,096 bytes, but never the same byte. The memory is the caller's and is not used after the call. In a
   * step a tier allocates nothing. After an error the step fails, and other ranges can still be read. The text of an
   * error names the file. This call blocks.
   *   Call: [step & created], or [setup & created]  since 1.0 */
  eng_status (*read)(void *self, void *arena, uint64_t offset, void *to, uint64_t bytes, eng_error *);
  eng_status (*write)(void *self, void *arena, uint64_t offset, const void *from, uint64_t bytes, eng_error *);
} eng_tier;

#ifdef __cplusplus
}
#endif
#endif
