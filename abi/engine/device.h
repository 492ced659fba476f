/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/device.h - kind "eng.device/1": memory, and queues that work is put on.
 *
 * The smallest device is a struct of 9 functions whose memory is the host's and whose kernels compute when they are
 * launched. Everything after these is optional: a slot that is NULL has the default that stands beside it.
 *
 * A device without ENG_DEVICE_ASYNC is synchronous: a launch returns when it is done, `eng_exec.queue` is NULL, and the
 * engine runs what the plan has beside the computation on threads of its own.
 * A device with it has queues. One thread of the engine enqueues a whole step; what is on one queue runs in order,
 * what is on different queues is ordered by events alone. Where the plan repeats itself and the device has
 * ENG_DEVICE_GRAPHS, the engine captures the work once and launches the graph in every step.
 *
 * Queues, events and graphs are handles of the device's own. Each belongs to whoever created it, until it is destroyed.
 * All calls for one device object come from one thread at a time. It may be another thread than that of `create`: a
 * device whose library has a current device for each thread sets it in every call.
 *
 * What a third party's kernels (kind "eng.kernels/1" under this device's name) may know of a device, by its name:
 *   cpu, reference   the memory is the host's and `eng_exec.queue` is NULL: a kernel needs nothing else
 *   cuda             `eng_exec.queue` is a cudaStream_t, addresses are device pointers, and the rank's device is the
 *                    current one during prepare, bind, launch and the drops
 * A device of another name says it in its documentation, in these words: what `eng_exec.queue` is, what an address is,
 * what is set up around each call. `device` of eng_kernel.prepare stays private to the device's own plugin.
 */
#ifndef ENGINE_DEVICE_H_
#define ENGINE_DEVICE_H_

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_DEVICE_KIND "eng.device/1"
#define ENG_DEVICE_DRAFT "device-2" /* see engine/plugin.h */
#undef ENG_DRAFT_DEVICE_
#define ENG_DRAFT_DEVICE_ "'" ENG_DEVICE_KIND "' = '" ENG_DEVICE_DRAFT "'\n"

/* eng_device_info.flags */
#define ENG_DEVICE_HOST_MEMORY 1u /* its memory is the host's: the host may read and write every arena in place */
#define ENG_DEVICE_ASYNC 2u       /* it has queues: all slots from queue_create to event_wait are there */
#define ENG_DEVICE_GRAPHS 4u      /* with ENG_DEVICE_ASYNC: all slots from capture_begin to graph_destroy are there */

/* Memory kinds of `alloc`. */
#define ENG_MEMORY_DEVICE 0 /* what kernels compute in */
#define ENG_MEMORY_PINNED 1 /* the host's; kernels of eng.copy/1 read and write it from a queue */
#define ENG_MEMORY_HOST 2   /* the host's, as any other */

/* What a device is; the host zeroes it and sets struct_size. A number that is not known is 0.  since 1.0 */
typedef struct eng_device_info {
  uint32_t struct_size;
  uint32_t flags;           /* ENG_DEVICE_* */
  uint32_t parallel;        /* threads or processors of a kernel on the compute queue, at least 1 */
  uint32_t parallel_beside; /* of a kernel on another queue, while the compute queue works; 0 means 1 */
  int32_t dl_device_type;   /* of tensors in ENG_MEMORY_DEVICE: kDLCPU, kDLCUDA, ... */
  int32_t dl_device_id;
  uint32_t arch; /* the plugin's own number of the architecture, such as 90 for sm_90; 0: there is but one */
  uint32_t reserved;
  uint64_t total_bytes;    /* memory of the device */
  uint64_t overhead_bytes; /* of host memory, of a process beyond its arenas: code, libraries, thread stacks;
                                     measured once per build on a tiny model, the same for every model */
  uint64_t
      device_overhead_bytes; /* of the device's own memory: driver context, libraries; 0 where that is the host's */
  double peak_f32;           /* dense multiply-add peak, FLOP/s */
  double peak_bf16;
  double memory_bandwidth; /* bytes/s, of the device's memory */
  double to_device;        /* bytes/s, from pinned memory of the host; where the memory is apart */
  double to_host;          /* bytes/s, back */
  char name[64];           /* for people, ends in NUL */
} eng_device_info;

/* One device. Functions up to `sync` are required.  since 1.0 */
typedef struct eng_device {
  uint32_t struct_size;
  uint32_t minor;
  /* `describe` answers without creating anything, also where no such device is present, from the
   * options alone (thread count, described device).  Thread: [plan]  since 1.0 */
  eng_status (*describe)(const eng_options *, eng_device_info *out, eng_error *);
  /* `local_rank` counts the processes on this machine from 0: which of several devices is meant.
   *   Owner: caller, until destroy.  Thread: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, uint32_t local_rank, void **self, eng_error *);
  /* Nothing of it is used any more, and everything made by it has been given back.  Thread: [setup]  since 1.0 */
  void (*destroy)(void *self);
  /* One arena: zeroed, resident (touched), aligned to at least 4,096 bytes, never NULL. `memory` is ENG_MEMORY_*; the
   * host can read and write the kinds PINNED and HOST by their address.
   *   Owner: caller, until free.  Thread: [setup]  since 1.0 */
  eng_status (*alloc)(void *self, int32_t memory, uint64_t bytes, void **out, eng_error *);
  /* `memory` and `bytes` as they were given to alloc.  Thread: [setup]  since 1.0 */
  void (*free)(void *self, int32_t memory, void *arena, uint64_t bytes);
  /* Copies between memory of the device and memory of the host, any of it, and returns when done. Only between
   * programs, when nothing is on a queue: what a step brings and takes goes by eng.copy/1.  Thread: [setup]  since 1.0
   */
  eng_status (*upload)(void *self, void *dst, const void *src, uint64_t bytes, eng_error *);
  eng_status (*download)(void *self, void *dst, const void *src, uint64_t bytes, eng_error *);
  /* Returns when everything put on `queue` (NULL: on all of them) is done, and tells the first error since the last sync
   * of that queue; after it the device can be used again, unless it says otherwise in every later call.
   *   Thread: [setup] or between the launches of a [step]  since 1.0 */
  eng_status (*sync)(void *self, void *queue, eng_error *);

  /* ---- queues and events; NULL: the device is synchronous ---------------------------------------------- */
  /*   Owner: caller, until queue_destroy.  Thread: [setup]  since 1.0 */
  eng_status (*queue_create)(void *self, void **queue, eng_error *);
  void (*queue_destroy)(void *self, void *queue);
  /* `timed` 1: event_elapsed will be asked for it.  Owner: caller, until event_destroy.  Thread: [setup]  since 1.0 */
  eng_status (*event_create)(void *self, int32_t timed, void **event, eng_error *);
  void (*event_destroy)(void *self, void *event);
  /* The event stands for all that was put on `queue` before; an earlier record of it is forgotten.
   *   Thread: [step]  since 1.0 */
  eng_status (*event_record)(void *self, void *event, void *queue, eng_error *);
  /* What is put on `queue` from now on starts when what `event` stands for has ended. An event that was never recorded
   * stands for nothing. Returns at once.  Thread: [step]  since 1.0 */
  eng_status (*event_wait)(void *self, void *event, void *queue, eng_error *);
  /* Returns when what `event` stands for has ended; errors are those of `sync`. NULL: the whole device is synced.
   *   Thread: [step], where host and device must meet: this one blocks  since 1.0 */
  eng_status (*event_sync)(void *self, void *event, eng_error *);
  /* Seconds between two timed events that have ended. NULL: actions have no times, and no trace is written.
   *   Thread: [setup]  since 1.0 */
  eng_status (*event_elapsed)(void *self, void *begin, void *end, double *seconds, eng_error *);

  /* ---- graphs; NULL: every step is enqueued anew ------------------------------------------------------- */
  /* From now on what is put on `queue` is not run but captured, and so is what is put on other queues that wait for an
   * event recorded in this capture, until the first queue has waited for events of all of them. Kernels are launched as
   * in a step; one that cannot be captured answers ENG_UNSUPPORTED, and what was being captured is then enqueued anew in
   * every step.  Thread: [setup]  since 1.0 */
  eng_status (*capture_begin)(void *self, void *queue, eng_error *);
  /* Ends the capture, also one that has failed: then it answers with the reason and leaves no graph.
   *   Owner: caller, until graph_destroy.  Thread: [setup]  since 1.0 */
  eng_status (*capture_end)(void *self, void *queue, void **graph, eng_error *);
  /* Puts all of a graph on `queue`: it starts after what was there, and what comes after waits for all of it. Records
   * that were launched in the capture must still be bound.  Thread: [step]  since 1.0 */
  eng_status (*graph_launch)(void *self, void *graph, void *queue, eng_error *);
  void (*graph_destroy)(void *self, void *graph);
} eng_device;

#ifdef __cplusplus
}
#endif
#endif
