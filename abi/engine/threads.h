/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/threads.h - extension "eng.threads/1": the host's threads, for work that a plugin does outside of a step.
 *
 *   static const eng_threads *threads;
 *   static eng_status start(const eng_host *host, eng_error *error) {
 *     threads = (const eng_threads *)host->get_extension(host, ENG_THREADS_EXTENSION);
 *
 * Without the extension (NULL), a plugin calls its function itself, for one range after the other: that gives the same
 * result. Kernels do not use these threads: a launch has those of its device (engine/kernel.h).
 *
 * Frozen as 1.0 since 2026-11-28 (docs/abi-policy.md).
 */
#ifndef ENGINE_THREADS_H_
#define ENGINE_THREADS_H_

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_THREADS_EXTENSION "eng.threads/1"

/* Computes elements begin .. end - 1. It is called on several threads at a time, so it changes only what belongs to
 * these elements. It may allocate and block. It must not call functions of the engine, except the sink and `run` below.
 *   Owner of data: the caller of `run`.  since 1.0 */
typedef eng_status (*eng_range_fn)(void *data, uint64_t begin, uint64_t end, eng_error *);

/* Owner: host.  Valid: from eng_plugin.start until eng_plugin.stop has returned.  since 1.0 */
typedef struct eng_threads {
  uint32_t struct_size;
  uint32_t reserved;
  /* The most threads that `run` uses if it may choose: the processors that the process may use, at least 1.
   *   Call: [any & !step]  since 1.0 */
  uint32_t (*count)(const struct eng_threads *);
  /* Calls `work` for ranges that together are 0 .. n - 1, and returns when all calls have returned.
   * The ranges are fixed: range i is i * grain .. min(n, (i + 1) * grain) - 1, whatever the number of threads. `grain`
   * is at least 1. Threads take the ranges in this order; which thread takes which differs from call to call. So the
   * result is the same every time if `work` depends only on its range. There are at most `threads` threads, among them
   * the caller's; 0: as many as `count`. The others exist only during the call. They have no signals, and the caller's
   * rounding of floats.
   * If `work` fails, no new range is begun, and `run` returns the status and the text of the failed range with the
   * lowest number. This is the same for every number of threads: all ranges before it have been computed.
   * Several threads may call `run` at a time. A call from inside `work` is computed on its thread alone.
   * ENG_INVALID: `grain` is 0. ENG_NO_MEMORY: out of memory; nothing was called.
   *   Call: [any & !step]  since 1.0 */
  eng_status (*run)(const struct eng_threads *, uint32_t threads, uint64_t n, uint64_t grain, eng_range_fn work,
                    void *data, eng_error *);
} eng_threads;

#ifdef __cplusplus
}
#endif
#endif
