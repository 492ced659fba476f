/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/job.h - kind "eng.job/1": work on a model other than training.
 *
 * A job measures something of a model: it computes losses and gradients of windows of the data, changes parameters and
 * puts them back, reads values inside the forward, and writes its results into the run directory. `engine analyse`
 * runs one; the section [job] of the configuration selects it and has its options.
 *
 * A job has two halves.
 *   While the plan is made it says what it keeps, and emits ops: programs over the parameters and its states, like the
 *   update of an optimizer, and ops that read outputs of ops inside the forward. All of it is planned and verified, and
 *   works with every precision, way of distributing states over ranks, and tier.
 *   Then `run` is called once, on every rank. It decides what is computed next: the gradient of some windows, a program,
 *   a number to read. On every rank it makes the same calls with the same arguments in the same order, so it must decide
 *   by what is the same on all ranks: everything that eng_job_host gives is.
 *
 * What a job keeps are tensors of the plan. Those that it marks are saved by eng_job_api.save, and a run that was
 * stopped or killed finds them as they were. So a job writes what it has done so far into a tensor of its own, saves,
 * and begins by reading it: zeros the first time. The result must be that of a run that was never interrupted.
 */
#ifndef ENGINE_JOB_H_
#define ENGINE_JOB_H_

#include "optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_JOB_KIND "eng.job/1"
#define ENG_JOB_DRAFT "eng.job/1-draft3" /* for the description: see engine/plugin.h */

/* eng_job_info.flags: the job calls position_losses. The plan then has a program for the logits and room for them: (B, T,
 * vocabulary) f32. */
#define ENG_JOB_POSITIONS 1u
/* eng_job_info.flags: the job never calls `gradient`. The plan then has no gradients; `grad` of its programs is 0. */
#define ENG_JOB_NO_GRADIENTS 2u

/* Requirements of a job. Filled by eng_job.describe; the host zeroes it and sets struct_size.  since 1.0 */
typedef struct eng_job_info {
  uint32_t struct_size;
  uint32_t programs;    /* their number, at most 64 */
  uint32_t micro_batch; /* windows of a micro-batch; 0: [train] micro_batch */
  uint32_t windows;     /* of one gradient, over all ranks: a multiple of micro_batch * ranks; 0: micro_batch * ranks */
  uint64_t kept;        /* bit k: state k is saved by eng_job_api.save */
  uint64_t writes;      /* bit k: program k may write parameters; in all others they may only be read */
  uint32_t flags;       /* ENG_JOB_POSITIONS, ENG_JOB_NO_GRADIENTS */
  uint32_t reserved;
} eng_job_info;

/* An output of an op inside the forward: a place where a job may read.
 *   Owner: host.  Valid: during the call; in `run`, until it returns.  since 1.0 */
typedef struct eng_job_site {
  uint32_t struct_size;
  uint32_t block_number; /* from 0 */
  const char *block;     /* its name */
  const char *op;        /* "eng.activation/1" */
  uint32_t output;       /* of the op */
  uint32_t node;         /* number of the op in its block, from 0 */
  const eng_attr *attrs; /* of the op */
  uint32_t n_attrs;
  uint32_t number;       /* of the site among those that the job takes, from 0; only where the host has asked `site` */
  const eng_desc *shape; /* of the output */
} eng_job_site;

/* Kinds of tensors that eng_job_api.read and write name. */
#define ENG_JOB_PARAMETER 1 /* masters; `index` is eng_parameter.number */
#define ENG_JOB_GRADIENT 2  /* of the last `gradient`; index as above. Not to be written. f32 or the precision's type */
#define ENG_JOB_STATE 3     /* a state of a parameter: `state`, and index as above */
#define ENG_JOB_VALUE 4     /* index: in the order of eng_job.values */
#define ENG_JOB_SITE 5      /* what a site's ops wrote; index: eng_job_site.number */

#define ENG_JOB_TRAIN 1 /* training windows, in the order of the data source */
#define ENG_JOB_HELD 2  /* held-out windows */

struct eng_job_api;

/* Owner: host.  Valid: until eng_job.run returns. */
typedef struct eng_job_host {
  const struct eng_job_api *api;
} eng_job_host;

/* Every function is called from the thread of `run`, by all ranks alike, but for `field`. ENG_UNAVAILABLE from any of them: the user
 * asked to stop, or another rank failed; `run` then returns ENG_UNAVAILABLE as well, without further calls. Any other
 * failure is an error: `run` returns its status, and may leave its text as it is. */
typedef struct eng_job_api {
  uint32_t struct_size;
  uint32_t minor;
  /* The model's parameters and the sites that the job took, by number. Frozen parameters are not among them.
   *   Owner: host.  Valid: until `run` returns.  Call: [setup & inside eng_job.run]  since 1.0 */
  eng_status (*parameters)(eng_job_host *, const eng_parameter *const **out, uint32_t *n, eng_error *);
  eng_status (*sites)(eng_job_host *, const eng_job_site *const **out, uint32_t *n, eng_error *);
  /* The number of windows of a split (ENG_JOB_TRAIN, ENG_JOB_HELD), and the tokens of a window.
   *   Call: [setup & inside eng_job.run]  since 1.0 */
  eng_status (*windows)(eng_job_host *, uint32_t split, uint64_t *n, int64_t *length, eng_error *);
  /* The mean loss of windows first .. first + eng_job_info.windows - 1, and its gradient, which stays until the next
   * call. Both are a function of the parameters and the windows alone: ops that draw random numbers in training, such as
   * eng.dropout/1, draw those of a first step in every call. ENG_OUT_OF_RANGE: there are fewer windows.
   * ENG_PRECONDITION: eng_job_info.flags has ENG_JOB_NO_GRADIENTS. `loss` may be NULL.
   *   Call: [setup & inside eng_job.run]  since 1.0 */
  eng_status (*gradient)(eng_job_host *, uint32_t split, uint64_t first, double *loss, eng_error *);
  /* The losses of n micro-batches from window `first` on: sums[k] is the sum of token losses of the k-th, labels[k] the
   * labels that count in it; either may be NULL. The forward is that of an evaluation, without dropout; it runs the ops
   * of sites if `sites` is not 0. n is any number of micro-batches. ENG_OUT_OF_RANGE: the last one begins after the last
   * window or, with `sites`, is not whole. What it lacks does not count.
   *   Call: [setup & inside eng_job.run]  since 1.0 */
  eng_status (*losses)(eng_job_host *, uint32_t split, uint64_t first, uint32_t n, int32_t sites, double *sums,
                       int64_t *labels, eng_error *);
  /* Runs program k. Its ops find numbers[0..n) from scalars[ENG_S_LR] on (n at most 16), and `counter` in
   * counters[ENG_C_UPDATES]; the other scalars are 0, but LOSS_SCALE, CLIP and OK, which are 1. If the program has written parameters, the weights that compute reads follow them.
   *   Call: [setup & inside eng_job.run]  since 1.0 */
  eng_status (*program)(eng_job_host *, uint32_t k, const float *numbers, uint32_t n, int64_t counter, eng_error *);
  /* Elements first .. first + count - 1 of a tensor, whole on every rank, whoever holds them; to and from host memory
   * in the tensor's type. After parameters were written, the weights that compute reads follow them. What is written to a
   * site counts once, however many ranks there are. ENG_NOT_FOUND: there is no such tensor.
   *   Call: [setup & inside eng_job.run]  since 1.0 */
  eng_status (*read)(eng_job_host *, uint32_t what, uint32_t state, uint32_t index, uint64_t first, uint64_t count,
                     void *out, eng_error *);
  eng_status (*write)(eng_job_host *, uint32_t what, uint32_t state, uint32_t index, uint64_t first, uint64_t count,
                      const void *data, eng_error *);
  /* Saves the tensors that are marked as kept: a run that is resumed begins with them, with the parameters of the
   * model, and with zeros in everything else. All of it or nothing, also if the process is killed.
   *   Call: [setup & inside eng_job.run]  since 1.0 */
  eng_status (*save)(eng_job_host *, eng_error *);
  /* Tells the user: `phase` has done `done` of `all`. `note` is a line for the log, or NULL.
   *   Call: [setup & inside eng_job.run]  since 1.0 */
  eng_status (*progress)(eng_job_host *, const char *phase, uint64_t done, uint64_t all, const char *note, eng_error *);
  /* A result: a file of this name (no folder) in the run directory, replaced whole. Rank 0's bytes count.
   *   Call: [setup & inside eng_job.run]  since 1.0 */
  eng_status (*file)(eng_job_host *, const char *name, const void *data, uint64_t size, eng_error *);
  /* The engine's facts about this run as JSON, the same text on every rank: docs/analysis.md, "Facts".
   *   Owner: host.  Valid: until the next call.  Call: [setup & inside eng_job.run]  since 1.0 */
  eng_status (*facts)(eng_job_host *, const char **json, uint64_t *length, eng_error *);
  /* A field of one window: its T values, i32 or f32 as engine/data.h says, four bytes each, to `out`. "tokens" and
   * "labels" always, others if the model reads them: what the data do not have is then neutral, as weights of 1. A rank
   * may read what others do not. ENG_NOT_FOUND: the model reads no such field. ENG_OUT_OF_RANGE: there is no such
   * window.
   *   Call: [setup & inside eng_job.run]  since 1.0 */
  eng_status (*field)(eng_job_host *, uint32_t split, uint64_t window, const char *name, void *out, eng_error *);
  /* The loss at each position of n windows from window `first` on, to losses[0 .. n * T): -log of the probability that
   * the model gives to the label there, 0 where the label is ENG_IGNORE_LABEL. Weights of the loss and other terms, such
   * as a z loss, do not count. The host makes them in f64 from the logits, which the forward of an evaluation gives in
   * f32; so their sums agree with `losses` only to rounding. ENG_PRECONDITION: eng_job_info.flags lacks
   * ENG_JOB_POSITIONS. ENG_OUT_OF_RANGE: there are fewer windows.
   *   Call: [setup & inside eng_job.run]  since 1.0 */
  eng_status (*position_losses)(eng_job_host *, uint32_t split, uint64_t first, uint32_t n, double *losses,
                                eng_error *);
  /* The bytes that an earlier part of this job wrote by `file`: eng_job.part. ENG_NOT_FOUND: it wrote no such file, or
   * the job is not in parts.
   *   Owner: host.  Valid: until the next call.  Call: [setup & inside eng_job.run]  since 1.0 */
  eng_status (*earlier)(eng_job_host *, uint32_t part, const char *name, const void **data, uint64_t *size,
                        eng_error *);
} eng_job_api;

/* eng_job_value.flags */
#define ENG_JOB_KEPT 1u /* saved by eng_job_api.save */

/* A tensor of the job's own, whole and the same on every rank, zero at first. The host gives a zeroed list, so the
 * struct never grows.  since 1.0 */
typedef struct eng_job_value {
  const char *name; /* Owner: plugin.  Valid: until destroy */
  eng_desc shape;
  uint32_t flags; /* ENG_JOB_KEPT */
  uint32_t reserved;
} eng_job_value;

/* The functions up to `run` must be there, also in a job without programs, states or values: `states` and `values` then
 * give 0 of them, and `emit` is not called.  since 1.0 */
typedef struct eng_job {
  uint32_t struct_size;
  uint32_t minor;
  /* ENG_INVALID: the text names the key and what to change.  Owner: caller, until destroy.  Call: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, void **self, eng_error *);
  /* Call: [setup & created]  since 1.0 */
  void (*destroy)(void *self);
  /* Call: [setup & created]  since 1.0 */
  eng_status (*describe)(void *self, eng_job_info *out, eng_error *);
  /* The states of every parameter, as of an optimizer: of elements, of blocks, or none; never shaped or whole. Their
   * type is the rule's, whatever the precision policy says. Of eng_job_info.kept, bit k says that state k is saved.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*states)(void *self, eng_state_rule *out, uint32_t cap, uint32_t *n, eng_error *);
  /* Tensors of its own; up to `cap`.  Call: [plan & created]  since 1.0 */
  eng_status (*values)(void *self, eng_job_value *out, uint32_t cap, uint32_t *n, eng_error *);
  /* Emits program k for a run of elements: as eng_optimizer.update for ENG_STAGE_UPDATE, with `stage` = k, and 0 as
   * weight_out. `grad` is the gradient of the last eng_job_api.gradient, divided by the labels that count, and not
   * multiplied by a loss scale; it may only be read, like `master` in a program that is not among eng_job_info.writes.
   * What is written to states stays. Every rank must emit the same ops for the same elements.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*emit)(void *self, eng_build *, const eng_update *run, eng_error *);
  /* Upper bound of the host memory that `run` takes on one rank for these parameters and the sites that the job took;
   * counted in the plan.  Call: [plan & created]  since 1.0 */
  eng_status (*host_bytes)(void *self, const eng_parameter *const *parameters, uint32_t n_parameters,
                           const eng_job_site *const *sites, uint32_t n_sites, uint64_t *bytes, eng_error *);
  /* The work. It returns when it is complete, failed or was asked to stop.  Call: [setup & created]  since 1.0 */
  eng_status (*run)(void *self, eng_job_host *, eng_error *);
  /* Asks whether the job reads this output, and for the tensor that its ops write there: whole, this rank's own, zero
   * at first, kept from program to program but never saved; eng_job_api.read adds those of the ranks (i64, f32 or f64).
   * out->ndim = 0: not read. This function and the next may be NULL: the job reads none.  Call: [plan & created]
   * since 1.0 */
  eng_status (*site)(void *self, const eng_job_site *, eng_desc *out, eng_error *);
  /* Emits ops that read `value` and write `into`, the tensor of this site. They must not write `value`.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*observe)(void *self, eng_build *, const eng_job_site *, eng_id value, eng_id into, eng_error *);
  /* Makes this object do one part of the job, of `count` >= 3 ([job] groups + 2). The parts are done one after the other, each
   * with a plan, states and values of its own, so that what does not fit at once is done in turns:
   *   part 0 begins: it has all parameters;
   *   parts 1 to count - 2 have a group of the parameters each. The others are frozen there: they keep their values,
   *     have neither gradients nor states, and are not among eng_job_api.parameters. eng_parameter.number is that of
   *     the whole model, so numbers that are drawn from it do not depend on the groups;
   *   the last part has all parameters, and writes the results.
   * A part gives its results to later ones by `file`, which these read by `earlier`. Only the files of the last part
   * stay in the run directory. Not called: the job is done as a whole. NULL: it cannot be divided.
   *   Call: [setup & created & before describe]  since 1.0 */
  eng_status (*part)(void *self, uint32_t index, uint32_t count, eng_error *);
} eng_job;

#ifdef __cplusplus
}
#endif
#endif
