/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/observer.h - kind "eng.observer/1": reads values of a step, and makes numbers of them.
 *
 * While a plan is made, the host shows an observer the sites of a training step: values that it may read. For each
 * site the observer says which results it gives, and then emits the ops that make them. These ops are part of the
 * plan: their memory and time are planned, they are verified, and they run in every step. An observer changes nothing:
 * the values are read-only, and it has none of its own. No function of it runs during a step.
 *
 * Between two steps, `after_step` of an observer sees the numbers of the step that is complete. It may ask for texts of
 * the weights after the step, ask for a checkpoint, end the run, and give a line for the user.
 *
 * Each result is one f32. The host combines equal names over the micro-batches of a step, over the ranks and over
 * several sites, and writes what remains to metrics.jsonl: "observed": {"OBSERVER.NAME": number}.
 */
#ifndef ENGINE_OBSERVER_H_
#define ENGINE_OBSERVER_H_

#include "build.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_OBSERVER_KIND "eng.observer/1"
#define ENG_OBSERVER_DRAFT "eng.observer/1-draft3" /* for the description: see engine/plugin.h */

/* Kinds of sites. Gradients, updates and parameters are those of a part of a block's parameters, laid out flat as
 * eng_site.ranges says, with zeros between them; of a gradient or parameter that is distributed over ranks, this rank's
 * part. A block may have several such sites. Frozen parameters have none. */
#define ENG_SITE_ACTIVATION 1 /* an output of a block, except the last one, in the forward of each micro-batch */
#define ENG_SITE_GRADIENT \
  2                          /* the gradient of the step, summed over micro-batches and ranks and not yet clipped. It is
                                 scalars[ENG_S_LOSS_SCALE] times what it says */
#define ENG_SITE_UPDATE 3    /* f32: what the update of the step added to the master */
#define ENG_SITE_PARAMETER 4 /* the master, after the update */
#define ENG_SITE_SCALARS 5   /* f32[32], laid out in engine/ops.h, after the norm. This site has no block */

/* Elements first .. first + count - 1 of a parameter, at element `offset` of a site's value. The host gives a list of
 * these, so the struct never grows.  Owner: host.  Valid: during the call.  since 1.0 */
typedef struct eng_site_range {
  const char *name; /* of the parameter, in checkpoints */
  const eng_desc *shape;
  uint64_t first;
  uint64_t count;
  uint64_t offset;
} eng_site_range;

/* A site.  Owner: host.  Valid: during the call.  since 1.0 */
typedef struct eng_site {
  uint32_t struct_size;
  uint32_t what;                /* ENG_SITE_* */
  const char *block;            /* its name, as the model declared it; "" if there is none */
  uint32_t number;              /* of the block, from 0 */
  uint32_t output;              /* of ENG_SITE_ACTIVATION: which of the block's outputs */
  eng_id value;                 /* in eng_observer.observe; otherwise 0, and there are no ranges */
  eng_id scalars;               /* where the ops on `value` can read them; as `value` */
  const eng_site_range *ranges; /* the parameters in `value`, by offset; not of an activation or the scalars */
  uint32_t n_ranges;
  uint32_t reserved;
} eng_site;

/* Ways to combine results of one name. A value that several ranks hold is observed on the first of them only. */
#define ENG_COMBINE_SUM 1  /* their sum, in f64 */
#define ENG_COMBINE_MAX 2  /* the largest; NaN if one is */
#define ENG_COMBINE_LAST 3 /* that of the last micro-batch and site, on the first rank */
/* eng_result.flags: what is shown is the square root of what was combined. A norm is such a sum of squares. */
#define ENG_RESULT_SQRT 1u

/* A result. The host passes a zeroed list, so the struct never grows. Name: 1 to 200 bytes without control characters
 * and quotes, such as "gradient_norm.layers.0". Results of one name have equal `combine` and `flags`.
 *   Owner: plugin.  Valid: until the next call of `results`, or destroy.  since 1.0 */
typedef struct eng_result {
  const char *name;
  uint32_t combine; /* ENG_COMBINE_* */
  uint32_t flags;   /* ENG_RESULT_* */
} eng_result;

/* A result of a step, combined over micro-batches, sites and ranks. Frozen.
 *   Owner: host.  Valid: during eng_observer.after_step.  since 1.0 */
typedef struct eng_observed {
  const char *name; /* as in eng_result */
  double value;
} eng_observed;

/* The beginning of a text that the weights after the step are to continue.
 *   Owner: plugin.  Valid: during the call of eng_step_done.sample.  since 1.0 */
typedef struct eng_sample {
  uint32_t struct_size;
  uint32_t n_ids;
  const char *prompt; /* a text, for which [data] must have a tokenizer; or NULL */
  const int32_t *ids; /* without `prompt`: n_ids tokens */
  int64_t tokens;     /* at most this many new ones, at least 1 */
  double temperature; /* logits are divided by it; 0: always the most likely token */
  uint64_t seed;      /* of the draws: equal weights, prompts and seeds give equal texts */
} eng_sample;

/* The new tokens. The plugin sets struct_size, and the host the rest.
 *   Owner: host.  Valid: until the next call of eng_step_done.sample or after_step.  since 1.0 */
typedef struct eng_sampled {
  uint32_t struct_size;
  uint32_t n;         /* less than eng_sample.tokens where the text ended; the token that ends it is not among them */
  const int32_t *ids; /* n of them */
  const char *text;   /* their bytes, and a NUL; the last ones may be a part of a character. NULL: no tokenizer */
  uint64_t bytes;     /* of `text`, without the NUL */
} eng_sampled;

/* A step that is complete. What is not finite is passed as it is.
 *   Owner: host.  Valid: during eng_observer.after_step.  since 1.0 */
typedef struct eng_step_done {
  uint32_t struct_size;
  uint32_t n_observed;
  int64_t step;    /* its number, from 1 */
  int64_t steps;   /* [train] steps: the number of the last one */
  uint64_t tokens; /* of all steps so far */
  double loss;     /* mean over the labels that count */
  double grad_norm;
  double learning_rate;
  double eval_loss;             /* of the evaluation right after this step; NaN: there was none */
  const eng_observed *observed; /* this observer's own results, whatever [[observers]] every says */
  uint32_t skipped;             /* 1: the gradients were not finite, and nothing was updated */
  uint32_t reserved;
  void *host; /* the host's own */
  /* Continues a text. May be called several times; each call is a text of its own. It changes no weight and no number of
   * the run. Its memory is a part of the plan, where the user sets `sample_length` of this observer's entry: the most
   * positions of a text, prompt and new tokens together. ENG_PRECONDITION: that is not set. ENG_OUT_OF_RANGE: more
   * positions than that. ENG_INVALID: another fault of the request. ENG_UNAVAILABLE: it failed; the run then ends, also
   * if the observer goes on. The text of the error says what to change.
   *   Call: from the thread of after_step, during the call  since 1.0 */
  eng_status (*sample)(const struct eng_step_done *, const eng_sample *, eng_sampled *out, eng_error *);
} eng_step_done;

/* eng_step_reply.flags */
#define ENG_STEP_SAVE 1u /* save a checkpoint of this step; without effect in a run that saves none */
#define ENG_STEP_STOP 2u /* end the run after this step: it is done, with exit code 0 */

/* The requests of an observer after a step. The host zeroes it and sets struct_size.  since 1.0 */
typedef struct eng_step_reply {
  uint32_t struct_size;
  uint32_t flags;   /* ENG_STEP_* */
  const char *text; /* NULL, or one line: why the run ends, or, without ENG_STEP_STOP, what the user should know.
                       Owner: plugin.  Valid: until the next call of after_step, or destroy */
} eng_step_reply;

typedef struct eng_observer {
  uint32_t struct_size;
  uint32_t minor;
  /* Owner: caller, until destroy.  Call: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, void **self, eng_error *);
  /* Call: [setup & created]  since 1.0 */
  void (*destroy)(void *self);
  /* Writes up to `cap` results of a site, and their number; 0: this site is not observed. Called more than once, on
   * every rank: equal sites must get equal answers. `cap` is at least 16.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*results)(void *self, const eng_site *, eng_result *out, uint32_t cap, uint32_t *n, eng_error *);
  /* Emits ops that read `site->value`, and writes the ids of the results, (1) f32 each, in the order of `results`: all
   * n of them. The ops must not write `value` or `scalars`; collectives are refused. The value may lie in memory of the
   * host ([offload]); the ops then run there.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*observe)(void *self, eng_build *, const eng_site *site, eng_id *out, uint32_t n, eng_error *);
  /* Called after every step, and after the evaluation that is due there, before the checkpoint that is due. Only the
   * first rank calls it, and tells the others what it asks for. It may read files, wait and allocate; the next step
   * waits for it. What the observer keeps in `self` is lost when the run is resumed: it then sees the steps after the
   * checkpoint, some perhaps a second time. A run that it ended goes on if it is started again, and the observer is
   * asked again after the next step. A failure ends the run with its text. NULL: it is not called.
   *   Call: [setup & created]  since 1.0 */
  eng_status (*after_step)(void *self, const eng_step_done *, eng_step_reply *out, eng_error *);
} eng_observer;

#ifdef __cplusplus
}
#endif
#endif
