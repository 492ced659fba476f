/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/kernel.h - kind "eng.kernels/1": how an op is computed on one type of device (engine/device.h).
 *
 * Life of a kernel: `workspace` while planning (no device needed), `prepare` once per distinct call, `bind` once per
 * action when every address is known, `launch` in every step. Whatever may allocate, look up or decide happens before
 * the first launch.
 *
 * States, besides those of engine/base.h
 *   prepared  prepare returned ENG_OK for the state, and drop_state has not been called for it
 *   bound     bind returned ENG_OK for the record, and drop_record has not been called for it; its state is prepared
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
#define ENG_KERNELS_DRAFT "eng.kernels/1-draft5" /* for the description: see engine/plugin.h */

/* One use of an op: types, shapes, attributes. An absent optional input has dtype 0.
 *   Owner: host.  Valid: during the call it was passed to.  since 1.0 */
typedef struct eng_call {
  uint32_t struct_size;
  /* Threads or processors to use: eng_device_info.parallel, or parallel_beside. The engine gives a kernel no threads: on
   * the host it makes as many itself, for example by `#pragma omp parallel num_threads(call->parallel)`, as the kernels
   * of the cpu device do, and never more. 1: it computes on the thread of `launch`. The result must not depend on it. */
  uint32_t parallel;
  uint32_t n_in;
  uint32_t n_out;
  const eng_desc *in;
  const eng_desc *out;
  const eng_attr *attrs;
  uint32_t n_attrs;
  uint32_t reserved;
  const eng_device_info *device; /* the device that the call is for: scratch may depend on its arch and settings; NULL
                                    in calls of an op (engine/op.h), whose answers depend on no device */
} eng_call;

#define ENG_EXEC_SYNC 1u /* return when done, with the error of this launch: the engine looks for a failed action */

/* Context of a launch.  Owner: host.  Valid: during the call.  since 1.0 */
typedef struct eng_exec {
  uint32_t struct_size;
  uint32_t flags; /* ENG_EXEC_* */
  void *queue;    /* the device's queue handle (engine/device.h says what it is); NULL where launches are synchronous */
} eng_exec;

/* eng_kernel.flags */
#define ENG_KERNEL_EXACT 1u /* the same bits on every device, ISA and thread count */
#define ENG_KERNEL_HOST \
  2u /* it works on the host, in memory that the host can read, even if the device has queues: its inputs are
                               complete when it is launched, and it is done when launch returns */

/* One op on one type of device. The same inputs must always give the same bits, in every run.
 *
 * Which kernel is used. For each call of an op, the engine asks the `workspace` of these kernels in this order:
 *   1. the one in the device's own file;
 *   2. those in the other files that the run uses, for whatever purpose, in the order in which plugins are searched;
 *   3. only if none of these files has a kernel for the op: those in all other files for this device, until one has it;
 *   4. those of the device's fallback, in the same order, if its description names one.
 * It takes the first kernel that does not return ENG_UNSUPPORTED; any other error ends the search. So a kernel of a
 * policy, a model or an optimizer never replaces a kernel of the device that serves the call. It is used if the device
 * has no kernel for the op, or if the device's kernel returns ENG_UNSUPPORTED, for instance for a number format.
 * Collectives have kernels in the communicator's own file only.  since 1.0 */
typedef struct eng_kernel {
  uint32_t struct_size;
  uint32_t flags;
  const char *op; /* "eng.rms_norm/1" */
  /* Upper bound of the scratch bytes of one launch, at most 2^48. A pure function of the call. ENG_UNSUPPORTED, and the
   * reason, if this kernel cannot serve the call. Asked again before `prepare`.
   *   Call: [plan] or [setup]  since 1.0 */
  eng_status (*workspace)(const eng_call *, uint64_t *bytes, eng_error *);
  /* Chooses the algorithm within that bound. `device` is the self of eng_device, or, for the kernels of a communicator,
   * that of eng_comm. Only the plugin that made it can use it. The state may be NULL; then drop_state is not called.
   *   Owner of *state: host, until drop_state.  Call: [setup]; the device or communicator is created  since 1.0 */
  eng_status (*prepare)(void *device, const eng_call *, void **state, eng_error *);
  /* Fixes the addresses. `args` are the inputs, then the outputs; NULL stands for an absent optional input. Each
   * address is aligned to 256 bytes unless the plan says less. The DLTensors are dense, have strides, and are valid
   * during the call; their data is valid until drop_record. An output may share all of its memory with an input if the
   * op is in place. `workspace` has as many bytes as the bound, with the same alignment. It is NULL if the bound is 0.
   * Other launches use the same workspace. The record may be NULL; then drop_record is not called, but `launch` is.
   *   Owner of *record: host, until drop_record.  Call: [setup & prepared]  since 1.0 */
  eng_status (*bind)(void *state, const DLTensor *const *args, uint32_t n_args, void *workspace, void **record,
                     eng_error *);
  /* Computes, or enqueues the computation. In a step, a record is launched by one thread only, which is the thread of
   * its queue. Other threads may launch other records of the same state at the same time. After an error, the rest of
   * the step launches nothing, and the step fails. The engine also launches records outside of a step: while it
   * captures a graph, and one by one, from one thread, when it searches for the cause of an error.
   *   Call: [step & bound]  since 1.0 */
  eng_status (*launch)(void *record, const eng_exec *, eng_error *);
  /* Call: [setup & bound]  since 1.0 */
  void (*drop_record)(void *record);
  /* All records of the state have been dropped.  Call: [setup & prepared]  since 1.0 */
  void (*drop_state)(void *state);
} eng_kernel;

/* Kind "eng.kernels/1": the kernels that a plugin has for one type of device, whose name is that in the description.
 *   Owner: plugin.  Valid: until the process ends.  since 1.0 */
typedef struct eng_kernels {
  uint32_t struct_size;
  uint32_t count;
  const eng_kernel *const *kernels;
} eng_kernels;

#ifdef __cplusplus
}
#endif
#endif
