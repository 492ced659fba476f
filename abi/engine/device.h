/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/device.h - kind "eng.device/1": memory, and queues that work is put on.
 *
 * The smallest device is a struct of 8 functions whose memory is the host's and whose kernels compute when they are
 * launched. All functions after these are optional: the comment on each group says what the engine does if a slot is
 * NULL.
 *
 * Queues. A device without ENG_DEVICE_ASYNC is synchronous: a launch returns when it is done, and `eng_exec.queue` is
 * NULL. What the plan runs beside the computation then runs on threads of the engine. A device with ENG_DEVICE_ASYNC
 * has queues. One thread of the engine enqueues a whole step. Work on one queue runs in order. Work on different queues
 * is ordered only by events. If the device also has ENG_DEVICE_GRAPHS, the engine captures the work of each segment of
 * a program once and launches the graph in every step.
 *
 * Memory and the batch. With ENG_DEVICE_HOST_MEMORY, the host writes the batch into the arena and reads losses from it.
 * Without the flag, the plan has a second arena of ENG_MEMORY_PINNED. There the host writes the batch before a step.
 * The ops eng.copy/1 of the step bring it to the device, and bring losses, scalars and counters back. With
 * ENG_DEVICE_ASYNC, these copies have queues of their own. The device's plugin has a kernel for eng.copy/1, which must
 * accept both memories.
 *
 * Queues, events and graphs are handles that the device defines. Each belongs to the engine from its creation until it
 * is destroyed. All calls for one device object come from one thread at a time. This may be another thread than that of
 * `create`. So a device whose library has a current device for each thread must set it in every call.
 *
 * What kernels of third parties (kind "eng.kernels/1" under this device's name) may rely on, by name of the device:
 *   cpu, reference   the memory is the host's and `eng_exec.queue` is NULL; a kernel needs nothing else
 *   cuda             `eng_exec.queue` is a cudaStream_t, addresses are device pointers, and the rank's device is the
 *                    current one during prepare, bind, launch and the drops
 * The documentation of any other device says the same for it: what `eng_exec.queue` is, what an address is, and what is
 * set up around each call. The argument `device` of eng_kernel.prepare stays private to the device's own plugin.
 *
 * States, besides those of engine/base.h
 *   idle       everything put on the queues has ended
 *   capturing  capture_begin returned ENG_OK, and capture_end has not been called
 */
#ifndef ENGINE_DEVICE_H_
#define ENGINE_DEVICE_H_

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_DEVICE_KIND "eng.device/1"
#define ENG_DEVICE_DRAFT "eng.device/1-draft5" /* for the description: see engine/plugin.h */

/* eng_device_info.flags */
#define ENG_DEVICE_HOST_MEMORY 1u /* its memory is the host's: the host may read and write every arena in place */
#define ENG_DEVICE_ASYNC 2u       /* it has queues: no slot from queue_create to event_wait is NULL */
#define ENG_DEVICE_GRAPHS 4u      /* needs ENG_DEVICE_ASYNC: no slot from capture_begin to graph_destroy is NULL */

/* Memory kinds of `alloc`. */
#define ENG_MEMORY_DEVICE 0 /* what kernels compute in */
#define ENG_MEMORY_PINNED 1 /* host memory that kernels of eng.copy/1 read and write from a queue */
#define ENG_MEMORY_HOST 2   /* ordinary host memory */

/* Properties of a device. The host zeroes it and sets struct_size. A number that is unknown is 0.  since 1.0 */
typedef struct eng_device_info {
  uint32_t struct_size;
  uint32_t flags;           /* ENG_DEVICE_* */
  uint32_t parallel;        /* threads or processors for a kernel on the compute queue, at least 1 */
  uint32_t parallel_beside; /* for a kernel on another queue, while the compute queue works; 0 means 1 */
  int32_t dl_device_type;   /* of tensors in ENG_MEMORY_DEVICE: kDLCPU, kDLCUDA, ... */
  int32_t dl_device_id;
  uint32_t arch; /* the plugin's own number of the architecture, such as 90 for sm_90; 0: there is only one */
  uint32_t reserved;
  uint64_t total_bytes;           /* memory of the device */
  uint64_t overhead_bytes;        /* host memory of a process besides its arenas: code, libraries, thread stacks;
                                     measured once per build, the same for every model. The host counts the plan's
                                     lists and the records of kernels itself, so they are not part of it */
  uint64_t device_overhead_bytes; /* the device's own memory: driver context, libraries; 0 if that is the host's */
  double peak_f32;                /* dense multiply-add peak, FLOP/s */
  double peak_bf16;
  double memory_bandwidth; /* bytes/s, of the device's memory */
  double to_device;        /* bytes/s, from pinned memory of the host; 0 if the memory is the host's */
  double to_host;          /* bytes/s, to pinned memory of the host */
  char name[64];           /* for people, ends in NUL */
  uint64_t settings[4];    /* the plugin's own: what scratch of its kernels depends on besides arch, such as an option
                              of [device]; the host does not read it and gives it back in eng_call.device */
} eng_device_info;

/* One device. All functions up to `sync` are required.  since 1.0 */
typedef struct eng_device {
  uint32_t struct_size;
  uint32_t minor;
  /* Describes the device from the options alone (number of threads, described device). Creates nothing. Must also work
   * if no such device is present.  Call: [plan]  since 1.0 */
  eng_status (*describe)(const eng_options *, eng_device_info *out, eng_error *);
  /* `local_rank` is the number of this process among those of this machine, from 0. It selects one of several devices.
   *   Owner: caller, until destroy.  Call: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, uint32_t local_rank, void **self, eng_error *);
  /* The device is no longer used, and everything that was made by it has been given back.
   *   Call: [setup & created & idle]  since 1.0 */
  void (*destroy)(void *self);
  /* Allocates one arena: zeroed, resident (every page touched), aligned to at least 4,096 bytes, never NULL. `memory`
   * is ENG_MEMORY_*. The host can read and write the kinds PINNED and HOST at their address.
   *   Owner: caller, until free.  Call: [setup & created]  since 1.0 */
  eng_status (*alloc)(void *self, int32_t memory, uint64_t bytes, void **out, eng_error *);
  /* `memory` and `bytes` are those that were given to alloc.  Call: [setup & created & idle]  since 1.0 */
  void (*free)(void *self, int32_t memory, void *arena, uint64_t bytes);
  /* Copy between memory of the device and any memory of the host, and return when done. Used only while nothing is on a
   * queue: between programs, and between the actions of a search for the first value that is not finite. What a step
   * needs and returns is copied by eng.copy/1.
   *   Call: [setup & created & idle]  since 1.0 */
  eng_status (*upload)(void *self, void *dst, const void *src, uint64_t bytes, eng_error *);
  eng_status (*download)(void *self, void *dst, const void *src, uint64_t bytes, eng_error *);
  /* Returns when everything put on `queue` has ended. NULL means all queues. Reports the first error since the last
   * sync of that queue. After an error the device is usable again, or every later call fails with the reason. This call
   * blocks.
   *   Call: [setup & created & !capturing], or [step & created] between two launches  since 1.0 */
  eng_status (*sync)(void *self, void *queue, eng_error *);

  /* ---- queues and events; NULL: the device is synchronous ---------------------------------------------- */
  /*   Owner: caller, until queue_destroy.  Call: [setup & created & !capturing]  since 1.0 */
  eng_status (*queue_create)(void *self, void **queue, eng_error *);
  /* Call: [setup & created & idle]  since 1.0 */
  void (*queue_destroy)(void *self, void *queue);
  /* `timed` is 1 if event_elapsed will be called with the event.
   *   Owner: caller, until event_destroy.  Call: [setup & created & !capturing]  since 1.0 */
  eng_status (*event_create)(void *self, int32_t timed, void **event, eng_error *);
  /* Call: [setup & created & idle]  since 1.0 */
  void (*event_destroy)(void *self, void *event);
  /* From now on the event stands for everything that was put on `queue` before. An earlier record is forgotten.
   *   Call: [step & created] or [setup & capturing]  since 1.0 */
  eng_status (*event_record)(void *self, void *event, void *queue, eng_error *);
  /* Work that is put on `queue` from now on starts only when what `event` stands for has ended. An event that was never
   * recorded stands for nothing. Returns at once.
   *   Call: [step & created] or [setup & capturing]  since 1.0 */
  eng_status (*event_wait)(void *self, void *event, void *queue, eng_error *);
  /* Returns when what `event` stands for has ended. Reports errors like `sync`. The engine calls it where the host must
   * wait for the device. This call blocks. NULL: the engine calls `sync` for all queues instead.
   *   Call: [step & created]  since 1.0 */
  eng_status (*event_sync)(void *self, void *event, eng_error *);
  /* Seconds between two events that were created with `timed` and have ended. The engine calls it between two segments
   * of a program while a trace is recorded. NULL: actions have no times, and no trace is written.
   *   Call: [step & created]  since 1.0 */
  eng_status (*event_elapsed)(void *self, void *begin, void *end, double *seconds, eng_error *);

  /* ---- graphs; NULL: the work is enqueued again in every step ------------------------------------------- */
  /* From now on, what is put on `queue` is captured and not run. The same holds for other queues after they wait for an
   * event recorded in this capture, until `queue` has waited for events of all of them. Kernels are launched as in a
   * step. A kernel that cannot be captured returns ENG_UNSUPPORTED. The whole segment is then enqueued again in every
   * step.
   *   Call: [setup & created & idle & !capturing]  since 1.0 */
  eng_status (*capture_begin)(void *self, void *queue, eng_error *);
  /* Ends the capture. It is also called for a capture that has failed; then it returns the reason and makes no graph.
   *   Owner: caller, until graph_destroy.  Call: [setup & capturing]  since 1.0 */
  eng_status (*capture_end)(void *self, void *queue, void **graph, eng_error *);
  /* Puts all of a graph on `queue`. It starts after what was there, and what is put there later waits for all of it.
   * The records that were launched during the capture are still bound.  Call: [step & created]  since 1.0 */
  eng_status (*graph_launch)(void *self, void *graph, void *queue, eng_error *);
  /* Call: [setup & created & idle]  since 1.0 */
  void (*graph_destroy)(void *self, void *graph);

  /* ---- memory of others; NULL: kernels of eng.copy/1 take any memory of the host -------------------------- */
  /* From now on kernels of eng.copy/1 read and write these bytes of host memory from a queue, like ENG_MEMORY_PINNED.
   * The engine calls it for the arenas of tiers (engine/tier.h). `address` is aligned to 4,096 bytes.
   *   Owner: caller, until unpin.  Call: [setup & created]  since 1.0 */
  eng_status (*pin)(void *self, void *address, uint64_t bytes, eng_error *);
  /* Call: [setup & created & idle]  since 1.0 */
  void (*unpin)(void *self, void *address, uint64_t bytes);

  /* ---- what is on this machine; NULL: `engine doctor` prints what `describe` says and no more ------------- */
  /* Describes the devices of this kind that this process could use, for people: memory, driver, clocks, who uses them.
   * Creates nothing, and takes no memory of a device. Must also work if there is no such device or no driver: the text
   * then says so, and the call returns ENG_OK. The text is lines that end in '\n', without NUL. *size becomes its
   * length; at most `capacity` bytes of it are written. The host passes a capacity of 64 KiB, and prints no more.
   *   Call: [plan]  since 1.0 */
  eng_status (*inspect)(const eng_options *, char *text, uint64_t capacity, uint64_t *size, eng_error *);

  /* ---- algorithms that were measured; both NULL: `prepare` of kernels decides from the call alone --------- */
  /* The kernel choices of this device as a text for `choose`, without NUL: those that `prepare` measured, those that
   * depend on what is installed, and those that `choose` was given; empty if there are none. The engine keeps the text
   * with the run and its checkpoints, and sends that of the first rank to the others.
   *   Call: [setup & created & idle]  since 1.0 */
  eng_status (*choices)(void *self, char *text, uint64_t capacity, uint64_t *size, eng_error *);
  /* From now on `prepare` takes these choices and measures nothing; what they do not name is decided as without them. A
   * device configured not to measure ignores those that were measured. ENG_INVALID: they are not from such a device, or
   * not from this version of its libraries; the text says how they differ. Called once at most, before any `prepare`.
   *   Call: [setup & created]  since 1.0 */
  eng_status (*choose)(void *self, const char *text, uint64_t size, eng_error *);
} eng_device;

#ifdef __cplusplus
}
#endif
#endif
