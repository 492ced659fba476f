/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/kernel.h - kind "eng.kernels/1": how an op is computed on one type of device (engine/device.h).
 *
 * Life of a kernel: `workspace` while planning (no device needed), `prepare` once per distinct call,
 * `bind` once per action when every address is known, `launch` in every step. Everything that may
 * allocate, look up or decide happens before the first launch.
 */
#ifndef ENGINE_KERNEL_H_
#define ENGINE_KERNEL_H_

#include "device.h"
#include "dlpack.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_KERNELS_KIND "eng.kernels/1"
#define ENG_KERNELS_DRAFT "kernels-2" /* see engine/plugin.h */
#undef ENG_DRAFT_KERNELS_
#define ENG_DRAFT_KERNELS_ "'" ENG_KERNELS_KIND "' = '" ENG_KERNELS_DRAFT "'\n"

/* One use of an op: types, shapes, attributes. An absent optional input has dtype 0.
 *   Owner: host.  Valid: during the call it was passed to.  since 1.0 */
typedef struct eng_call {
  uint32_t struct_size;
  uint32_t parallel; /* threads or processors to use: eng_device_info.parallel, or parallel_beside */
  uint32_t n_in;
  uint32_t n_out;
  const eng_desc *in;
  const eng_desc *out;
  const eng_attr *attrs;
  uint32_t n_attrs;
  uint32_t reserved;
  const eng_device_info *device; /* which the call is for: its architecture may decide on scratch; NULL where an op
                                    (engine/op.h) is asked, which no device changes */
} eng_call;

#define ENG_EXEC_SYNC 1u /* return when it is done, with its own error: an earlier run failed nobody knows where */

/* Where a launch goes.  Owner: host.  Valid: during the call.  since 1.0 */
typedef struct eng_exec {
  uint32_t struct_size;
  uint32_t flags; /* ENG_EXEC_* */
  void *queue;    /* the device's queue handle (engine/device.h says what it is); NULL where launches are synchronous */
} eng_exec;

/* eng_kernel.flags */
#define ENG_KERNEL_EXACT 1u /* the same bits on every device, ISA and thread count */
#define ENG_KERNEL_HOST \
  2u /* it works on the host, in memory that the host can read: its inputs have ended when it is
                               launched, and it has ended when launch returns, although the device has queues */

/* One op on one device type. Same inputs, same bits: always, run after run.
 * Where several plugins bring a kernel of one op for the device, they are asked in this order: the device's own file,
 * then the files that the run uses; where none of these has the op, all others until one has. The first whose
 * `workspace` does not answer ENG_UNSUPPORTED is taken.  since 1.0 */
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
