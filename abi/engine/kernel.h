/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/kernel.h - devices, and kernels: how an op is computed on one type of device.
 *
 * Life of a kernel: `workspace` while planning (no device needed), `prepare` once per distinct call,
 * `bind` once per action when every address is known, `launch` in every step. Everything that may
 * allocate, look up or decide happens before the first launch.
 */
#ifndef ENGINE_KERNEL_H_
#define ENGINE_KERNEL_H_

#include "dlpack.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_DEVICE_KIND "eng.device/1"
#define ENG_DEVICE_DRAFT "device-1" /* see engine/plugin.h */
#undef ENG_DRAFT_DEVICE_
#define ENG_DRAFT_DEVICE_ "'" ENG_DEVICE_KIND "' = '" ENG_DEVICE_DRAFT "'\n"
#define ENG_KERNELS_KIND "eng.kernels/1"
#define ENG_KERNELS_DRAFT "kernels-1" /* see engine/plugin.h */
#undef ENG_DRAFT_KERNELS_
#define ENG_DRAFT_KERNELS_ "'" ENG_KERNELS_KIND "' = '" ENG_KERNELS_DRAFT "'\n"

/* What a device is; the host zeroes it and sets struct_size.  since 1.0 */
typedef struct eng_device_info {
  uint32_t struct_size;
  uint32_t parallel;      /* threads or processors a kernel uses, at least 1; handed to every call */
  int32_t dl_device_type; /* of its tensors: kDLCPU, kDLCUDA, ... */
  int32_t dl_device_id;
  uint64_t total_bytes;    /* memory of the device */
  uint64_t overhead_bytes; /* of a process beyond its arenas: code, libraries, thread stacks, driver context;
                              measured once per build on a tiny model, the same for every model */
  double peak_f32;         /* dense multiply-add peak, FLOP/s; 0 if unknown */
  double peak_bf16;
  char name[64]; /* for people, ends in NUL */
} eng_device_info;

/* One device.  since 1.0 */
typedef struct eng_device {
  uint32_t struct_size;
  uint32_t minor;
  /* `describe` answers without creating anything, also where no such device is present, from the
   * options alone (thread count, described device).  Thread: [plan]  since 1.0 */
  eng_status (*describe)(const eng_options *, eng_device_info *out, eng_error *);
  /*   Owner: caller, until destroy.  Thread: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, void **self, eng_error *);
  void (*destroy)(void *self);
  /* One arena: zeroed, resident (touched), aligned to at least 4,096 bytes, never NULL.
   *   Owner: caller, until free.  Thread: [setup]  since 1.0 */
  eng_status (*alloc)(void *self, uint64_t bytes, void **out, eng_error *);
  void (*free)(void *self, void *arena, uint64_t bytes);
  /* Copies between an arena and host memory, and returns when done.  Thread: [setup]  since 1.0 */
  eng_status (*upload)(void *self, void *dst, const void *src, uint64_t bytes, eng_error *);
  eng_status (*download)(void *self, void *dst, const void *src, uint64_t bytes, eng_error *);
  /* Returns when everything launched on `queue` (NULL: on all of them) is done.  Thread: the queue's  since 1.0 */
  eng_status (*sync)(void *self, void *queue, eng_error *);
} eng_device;

/* One use of an op: types, shapes, attributes. An absent optional input has dtype 0.
 *   Owner: host.  Valid: during the call it was passed to.  since 1.0 */
typedef struct eng_call {
  uint32_t struct_size;
  uint32_t parallel; /* eng_device_info.parallel */
  uint32_t n_in;
  uint32_t n_out;
  const eng_desc *in;
  const eng_desc *out;
  const eng_attr *attrs;
  uint32_t n_attrs;
  uint32_t reserved;
} eng_call;

/* Where a launch goes.  Owner: host.  Valid: during the call.  since 1.0 */
typedef struct eng_exec {
  uint32_t struct_size;
  uint32_t flags;
  void *queue; /* the device's queue handle; NULL where launches are synchronous */
} eng_exec;

#define ENG_KERNEL_EXACT 1u /* the same bits on every device, ISA and thread count */

/* One op on one device type. Same inputs, same bits: always, run after run.
 * Where several plugins bring a kernel of one op for the device, the first is taken: of the device's own file, then of
 * the files that the configuration uses, then of all others. In this draft no other is asked where it answers
 * ENG_UNSUPPORTED.  since 1.0 */
typedef struct eng_kernel {
  uint32_t struct_size;
  uint32_t flags;
  const char *op; /* "eng.rms_norm/1" */
  /* Upper bound of the scratch bytes of one launch, at most 2^48: a pure function of the call. ENG_UNSUPPORTED if
   * this kernel cannot serve the call, and why.  Thread: [plan]  since 1.0 */
  eng_status (*workspace)(const eng_call *, uint64_t *bytes, eng_error *);
  /* Chooses the algorithm within that bound. `device` is eng_device's self (of a communicator's kernels, eng_comm's),
   * which only its own plugin can read. NULL is a state as well, and a record: then there is nothing to drop.
   *   Owner of *state: host, until drop_state.  Thread: [setup]  since 1.0 */
  eng_status (*prepare)(void *device, const eng_call *, void **state, eng_error *);
  /* Fixes the addresses: args are the inputs, then the outputs (NULL for an absent optional input), each
   * 256-byte aligned unless the plan says less. DLTensors are dense, with strides, and valid during the call, their data
   * until drop_record. An output may share all of its memory with an input if the op is in place. `workspace` has the
   * bytes of the bound, aligned as well, and is NULL where that is 0; other launches use it, too.
   *   Owner of *record: host, until drop_record.  Thread: [setup]  since 1.0 */
  eng_status (*bind)(void *state, const DLTensor *const *args, uint32_t n_args, void *workspace, void **record,
                     eng_error *);
  /* Computes or enqueues. One record is launched by one thread at a time, always that of its queue; other records of the
   * same state may be launched at the same time by another. After an error the step goes on without launches, and fails.
   *   Thread: [step]  since 1.0 */
  eng_status (*launch)(void *record, const eng_exec *, eng_error *);
  void (*drop_record)(void *record);
  void (*drop_state)(void *state);
} eng_kernel;

/* Kind "eng.kernels/1": the kernels a plugin brings for one device type (its name in the description).
 *   Owner: plugin.  Valid: for ever.  since 1.0 */
typedef struct eng_kernels {
  uint32_t struct_size;
  uint32_t count;
  const eng_kernel *const *kernels;
} eng_kernels;

#ifdef __cplusplus
}
#endif
#endif
