/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/embed.h - the engine inside of another program: the C API of libengine.so.
 *
 * This is the one header that is not for plugins. A program opens a session from a configuration, makes steps on the
 * configuration's own data or on batches of its own, looks at tensors and writes them, saves, and closes. Tensors and
 * batches cross as DLPack. engine/embed.hpp has the same in C++, the package `engine` in Python.
 *
 *     eng_session *run = NULL;
 *     eng_session_request request = {.struct_size = sizeof(request)};
 *     request.target = "config.toml";
 *     if (eng_session_open(&request, &run, &sink) != ENG_OK) return 1;
 *     eng_step_result step = {.struct_size = sizeof(step)};
 *     while (eng_session_step(run, NULL, 0, &step, &sink) == ENG_OK && !step.ended) printf("%g\n", step.loss);
 *     eng_session_close(run, &sink);
 *
 * A session that is opened with files and steps on its own data to the end does what `engine run` does: the same bits,
 * the same files. It prints nothing and installs no signal handlers.
 *
 * Errors. A function that can fail returns eng_status and writes a text, what is wrong and what to change, to the sink.
 * Nothing is thrown. After a failure in `start`, `step`, `evaluate`, `logits`, `score` or `save` that is not ENG_INVALID,
 * ENG_NOT_FOUND, ENG_PRECONDITION or ENG_UNSUPPORTED, the session can only be closed.
 *
 * Threads. One thread at a time uses a session; it need not be the same one. A call while another one is inside does
 * nothing and returns ENG_PRECONDITION, and so does a call of a callback for its own session. Different sessions may be
 * used at the same time. Opening, starting and closing a session, and freeing the last tensor of a closed one, wait
 * until no other session of the process is within a program, and the other way round. Functions with [any] in their
 * contract may be called from any thread at any time. The first opening in a process sets an environment variable of
 * libgomp for a moment (GOMP_SPINCOUNT): no other thread may read or change the environment meanwhile.
 *
 * Ranks. A program that is started by mpirun or srun is one rank of a session of several ranks: all ranks open the same
 * configuration and call the functions marked `all ranks` in the same order. A process has at most one such session,
 * and another one only with ENG_SESSION_ALONE. The communicator starts and ends once in a process.
 *
 * Lifetimes. A tensor that was taken keeps its memory allocated until its deleter is called: by any thread, also after
 * the session was closed. It does not keep the session open. After plugins were stopped, when the process exits, a
 * deleter gives nothing back any more; it may still be called. A child that was forked after `start` has no use of the
 * parent's sessions and can start none: there, their functions return ENG_PRECONDITION and do nothing.
 *
 * States, besides those of engine/base.h
 *   opened    eng_session_open returned ENG_OK, and eng_session_close has not been called
 *   started   eng_session_start returned ENG_OK, or a function that starts by itself
 *   between   started, and no function of this session is running: a step edge
 */
#ifndef ENGINE_EMBED_H_
#define ENGINE_EMBED_H_

#include "base.h"
#include "dlpack.h"
#include "tensor.h"
#include "tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_EMBED_KIND "eng.embed/1"
#define ENG_EMBED_DRAFT "embed-6" /* of this header; eng_session_draft tells that of the library */

#if defined(__GNUC__)
#define ENG_EMBED_API_ __attribute__((visibility("default")))
#else
#define ENG_EMBED_API_
#endif

typedef struct eng_session eng_session;

/* eng_session_request.flags */
#define ENG_SESSION_ALONE 1u     /* one rank, whatever a launcher announces */
#define ENG_SESSION_NO_FILES 2u  /* no run directory, nothing is saved; a run as target is read and stays as it is */
#define ENG_SESSION_GRADIENTS 4u /* the gradients of the last step can be taken: they have memory of their own */
#define ENG_SESSION_LOGITS 8u    /* eng_session_logits can be called with samples of the configuration's length */
/* Nothing is trained: there are only weights, without gradients and states of an optimizer, and the forward of the model
 * itself, without [loss] and [reference]. There is no step and no run directory, [data] is not opened, and the session is
 * one rank. A run as target is read: the weights of its newest checkpoint. */
#define ENG_SESSION_FORWARD 16u

/* Lists of 0 elements and all pointers but `target` or `text` may be NULL.  Owner: caller.  Valid: during open, but
 * `note` and `data` until close.  since 1.0 */
typedef struct eng_session_request {
  uint32_t struct_size;
  uint32_t flags; /* ENG_SESSION_* */
  uint32_t n_overrides;
  uint32_t n_plugin_paths;
  const char *target;           /* a configuration file; a run, to resume it; or a Hugging Face directory. With `text`,
                                     a name for messages */
  const char *text;             /* the configuration itself, instead of a file */
  const char *place;            /* relative paths of `text` refer to this folder; NULL: the current one */
  const char *out;              /* the run directory itself: new, empty, or a run; NULL: a new one below [run] out */
  const char *resume;           /* "auto", "never", "must", or the step of a checkpoint; NULL: "auto" */
  const char *command;          /* for the record of the run: what the user typed; NULL: that of the process */
  const char *const *overrides; /* "train.steps=10"; "-train.steps" removes the value */
  const char *const *plugin_paths; /* folders that are searched for plugins first */
  void *data;                      /* of `note` */
  /* Receives notes for the user, such as a key without effect; on the first rank only.
   *   Call: from the thread and during the call of a function of this session  since 1.0 */
  void (*note)(void *data, const char *text, uint64_t length);
  /* Names of activations, also with `*` for any text and `?` for one character: those of the last micro-batch of a step
   * can be taken, as ENG_TENSOR_ACTIVATION. eng_session_activations lists all names. A copy is kept of each, in memory of
   * its own that the plan counts; the bits of the training stay the same. A name that matches none: eng_session_start and
   * eng_session_plan return ENG_INVALID, and the text has the nearest names.  since 1.0 */
  const char *const *activations;
  uint32_t n_activations;
  uint32_t n_fields;
  /* Fields that the caller's batches bring beside tokens and labels: "loss_weights", "segments", "positions"
   * (engine/data.h), whether the configuration's own data have them or not. A model that does not read one:
   * ENG_INVALID. Where neither a batch nor the own data have one, weights are 1, a row is one document, and positions
   * follow from the segments.  since 1.0 */
  const char *const *fields;
  /* Lengths of further forwards to the logits, of micro_rows samples each: eng_session_logits and eng_session_score run
   * them. They are planned with the rest, on the same weights, and all of them use the memory of the longest. They keep
   * the activations that `activations` names, too, under "NAME N" for the length N.  since 1.0 */
  const int64_t *lengths;
  uint32_t n_lengths;
  uint32_t reserved;
} eng_session_request;

/* Facts about a session.  since 1.0 */
typedef struct eng_session_info {
  uint32_t struct_size;
  uint32_t started; /* 0 or 1; what follows is 0 before, except `steps`, `ranks` and `rank` */
  uint32_t rank;
  uint32_t ranks;
  int64_t step;       /* completed */
  int64_t steps;      /* of the whole run: [train] steps; with epochs, 0 before the start */
  int64_t rows;       /* samples of a step of this rank: a batch is (rows, length) */
  int64_t micro_rows; /* samples of a micro-batch of this rank */
  int64_t length;     /* tokens of a sample */
  int64_t vocabulary; /* ids are below this */
  int64_t parameters;
  uint64_t tensors;       /* see eng_session_tensor */
  int32_t dl_device_type; /* where tensors are, if they are not on a tier */
  int32_t dl_device_id;
  uint64_t train_samples; /* of the own data; 0: there are none, and every step needs a batch */
  uint64_t held_out;      /* samples */
  const char *directory;  /* of the run; "" without files.  Owner: session.  Valid: until close */
  double lr;              /* of the next step; NaN: there is none.  since 1.0 */
  int64_t max_length;     /* the longest sequence that the model was made for; 0: it has no limit.  since 1.0 */
} eng_session_info;

/* A tensor of the caller: a field of a batch, or what is to be written. Exactly one of the last three is not NULL.
 * `versioned` and `legacy` move to the engine: it calls their deleter exactly once before the function returns, also if
 * the function fails. Of a `versioned` with another major version it calls the deleter and reads nothing else.
 * `borrowed` stays the caller's, and is read during the call. The memory is the host's (kDLCPU, kDLCUDAHost), or that of
 * the session's device, where the data must be complete: the engine does not wait for a stream of the caller. Strides
 * may be any in memory of the host, NULL means dense; on a device the tensor must be dense.  since 1.0 */
typedef struct eng_tensor_in {
  uint32_t struct_size;
  uint32_t reserved;
  const char *name; /* of the field; NULL where a single tensor is written */
  DLManagedTensorVersioned *versioned;
  DLManagedTensor *legacy;
  const DLTensor *borrowed;
} eng_tensor_in;

/* eng_step_result.ended */
#define ENG_ENDED_DONE 1u /* no step is left, and none was made */
#define ENG_ENDED_STOPPED \
  2u /* eng_session_stop was called, and no step was made; a checkpoint of the last one is saved */

/* The numbers of one step. The caller sets struct_size.  since 1.0 */
typedef struct eng_step_result {
  uint32_t struct_size;
  uint32_t ended;  /* 0: a step was made; else ENG_ENDED_*, and the rest is 0 */
  int64_t step;    /* counted from 1 */
  uint64_t tokens; /* of all steps so far */
  double loss;     /* mean of the step's labels, of all ranks */
  double grad_norm;
  double lr;
  double loss_scale;
  double eval_loss; /* of the evaluation that was due after the step; NaN: none was */
  double seconds;   /* of the step, with the wait for its batch */
  double tokens_per_second;
  double mfu;       /* NaN: unknown */
  double wait_data; /* seconds of those above */
  double wait_comm;
  uint64_t device_peak_bytes;
  uint64_t host_peak_bytes;
  uint32_t skipped; /* 1: the gradients were not finite, and nothing was updated */
  uint32_t saved;   /* 1: a checkpoint became complete */
} eng_step_result;

/* The caller sets struct_size.  since 1.0 */
typedef struct eng_eval_result {
  uint32_t struct_size;
  uint32_t reserved;
  double loss;     /* mean of the labels that count, of all ranks */
  uint64_t tokens; /* these labels */
  double seconds;
} eng_eval_result;

/* Roles of tensors, besides names of the optimizer's states such as "exp_avg". */
#define ENG_TENSOR_PARAMETER "parameter" /* as the optimizer updates it: the master, if compute reads another type */
#define ENG_TENSOR_GRADIENT "gradient"   /* with ENG_SESSION_GRADIENTS */
/* An activation named in eng_session_request.activations, or "logits" with ENG_SESSION_LOGITS: this rank's values in
 * the last micro-batch of the last eng_session_step or eng_session_evaluate. An evaluation that is due within a step
 * leaves them as they are. Undefined before the first such call. */
#define ENG_TENSOR_ACTIVATION "activation"
#define ENG_TENSOR_POLICY "policy" /* what a precision or sharding policy keeps for itself */

/* eng_tensor_info.flags */
#define ENG_TENSOR_WHOLE 1u       /* this rank holds all of it */
#define ENG_TENSOR_ADDRESSABLE 2u /* it has an address; else it lies in files of a tier, and can only be copied */

/* A tensor of the session. The caller sets struct_size.  since 1.0 */
typedef struct eng_tensor_info {
  uint32_t struct_size;
  uint32_t flags;   /* ENG_TENSOR_* */
  const char *name; /* Owner: session.  Valid: until close */
  const char *role; /* likewise */
  eng_desc desc;    /* of the whole tensor, in the element type in which it lies in memory */
  uint64_t first;   /* the first element of this rank's part; parts are ranges of the elements in row-major order */
  uint64_t count;   /* elements of this rank's part in one range */
  uint64_t ranges;  /* of this rank; with another number than 1, `first` and `count` are those of the first one */
} eng_tensor_info;

/* eng_session_take */
/* not read-only: the caller may write it while the session is between steps. Gradients and activations stay read-only:
 * a step recomputes them */
#define ENG_TAKE_WRITABLE 1u
#define ENG_TAKE_COPY 2u /* a copy of the whole tensor in memory of the host; gathered, if ranks hold parts */
#define ENG_TAKE_PART 4u /* this rank's part, as (count), if it is one range or none */
/* eng_session_write */
#define ENG_WRITE_ROUND 1u /* the elements may be rounded to the tensor's type; else only exact conversions are made */

/* The next token of a text.  since 1.0 */
typedef struct eng_generate_request {
  uint32_t struct_size;
  uint32_t n_ids;
  const char *prompt; /* text, for which there must be a tokenizer; or NULL */
  const int32_t *ids; /* without `prompt`: the tokens themselves */
  int64_t tokens;     /* at most this many new ones */
  int64_t top_k;      /* 0: all */
  double temperature; /* 0: always the most likely */
  double top_p;       /* 1: all */
  uint64_t seed;
  const char *tokenizer; /* "bytes", a file or a folder; NULL: that of [data] */
  void *data;            /* of `token` */
  /* Receives each new token and its bytes, which may be a part of a character; no bytes without a tokenizer. Returns 0
   * to end the text. It must not call functions of this session.
   *   Call: from the thread of eng_session_generate, during the call  since 1.0 */
  int32_t (*token)(void *data, int32_t id, const char *bytes, uint64_t length);
  /* Positions of the whole sequence; 0: what the prompt and `tokens` need. In a session with ENG_SESSION_FORWARD, calls
   * with equal ones use the same memory, which stays until another one, or the end.  since 1.0 */
  int64_t max_length;
  /* Several prompts at a time, of ids alone: their number, and n_prompts ends in `ids`, as in eng_score_request. Each gets
   * what it would get alone. 0, NULL: one prompt.  since 1.0 */
  uint64_t n_prompts;
  const uint64_t *ends;
  /* In place of `token`, with the number of the prompt. Returns 0 to end that text.
   *   Call: as `token`  since 1.0 */
  int32_t (*token_of)(void *data, uint64_t prompt, int32_t id, const char *bytes, uint64_t length);
} eng_generate_request;

/* Sequences whose tokens are scored.  since 1.0 */
typedef struct eng_score_request {
  uint32_t struct_size;
  uint32_t n;           /* sequences */
  const int32_t *ids;   /* of all sequences, one after the other */
  const uint64_t *ends; /* n: sequence k is ids[ends[k - 1]] to ids[ends[k] - 1], the first one begins at 0 */
  /* n: the first token of each sequence that is scored, from 1 on; NULL: 1. The one before it is the last of the context. */
  const uint64_t *first;
  /* ends[n - 1] each, as the ids: the logarithm of the probability of a token after those before it, by the softmax of
   * the logits; and 1 if no other token is more likely, nor as likely with a smaller id. Both are 0 where no token is
   * scored. `greedy` may be NULL.  Owner: caller */
  float *logprobs;
  uint8_t *greedy;
} eng_score_request;

/* A loss that the caller computed from the logits of a step's micro-batches. The gradients of all micro-batches and ranks
 * are added, so that a loss that is a mean is divided by what is counted in all of them.  since 1.0 */
typedef struct eng_own_loss {
  uint32_t struct_size;
  uint32_t n; /* gradients: rows / micro_rows of eng_session_info */
  /* One for each micro-batch, float32 (micro_rows, length, vocabulary). Read in place where they are dense and in memory of
   * the host. They are taken over as the fields are. */
  const eng_tensor_in *gradients;
  double loss; /* of all micro-batches of this rank: eng_step_result.loss is the sum over ranks */
} eng_own_loss;

#define ENG_TEXT_SPECIAL 1u /* also the ids that the tokenizer's file puts before and after a text */

/* ENG_EMBED_DRAFT of the library; a program that was compiled with another one must not use it.
 *   Valid: until the process ends.  Call: [any]  since 1.0 */
ENG_EMBED_API_ const char *eng_session_draft(void);
/* The version of the engine, such as "0.1.0".  Valid: until the process ends.  Call: [any]  since 1.0 */
ENG_EMBED_API_ const char *eng_session_version(void);

/* Finds plugins and reads the configuration; takes no memory for tensors, makes no directory, starts no thread.
 *   Owner: caller, until eng_session_close.  Call: from any thread  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_open(const eng_session_request *request, eng_session **out, eng_error *error);
/* Plans, joins the other ranks, reads or makes the weights, and makes or resumes the run directory. `step`, `evaluate`,
 * `logits`, `score`, `generate`, `take`, `write` and `set_rate` call it if the session is not started.
 *   Call: [opened & !started], all ranks  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_start(eng_session *self, eng_error *error);
/* The plan of one of `ranks` ranks, which need not exist, as the JSON object of `engine plan --json`. Runs nothing.
 * *size becomes the length of the text; at most `capacity` bytes of it are written to `text`, which may be NULL.
 *   Owner: caller.  Call: [opened]  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_plan(eng_session *self, uint32_t ranks, char *text, uint64_t capacity,
                                           uint64_t *size, eng_error *error);
/* Writes min(its own size, info->struct_size) bytes.  Call: [opened]  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_describe(eng_session *self, eng_session_info *info, eng_error *error);

/* Makes the next step, and what is due after it: an evaluation, a checkpoint. Without fields it reads the own data.
 * Fields: "tokens", (rows, length) of eng_session_info, an integer type; and optionally "labels" of that shape, where
 * ENG_IGNORE_LABEL (-100) counts for nothing. Without labels, the label of a token is the token after it in its row, and
 * the last one has none. `tokens` may have one column more instead, for the last labels. Each further field that the model
 * reads (engine/data.h) is given by its name, too: int32 or float32, as the model asks. Those of
 * eng_session_request.fields may be left out. `out` may be NULL.
 *   Call: [opened & between], all ranks, each with its own rows  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_step(eng_session *self, const eng_tensor_in *fields, uint32_t n,
                                           eng_step_result *out, eng_error *error);
/* Makes the next step with a loss that the caller computed; the configuration says loss.plugin = "caller". Each
 * micro-batch is a group of micro_rows samples of the batch, in their order: the caller asks for the logits of each
 * (eng_session_logits), and gives the gradient of its loss by them. Backward and update are then those of a step. The
 * logits are computed once more for it, from the same weights. A model with dropout: ENG_INVALID, since those logits
 * would be others.
 *   Call: [opened & between], all ranks, each with its own rows  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_step_with_loss(eng_session *self, const eng_tensor_in *fields, uint32_t n,
                                                     const eng_own_loss *loss, eng_step_result *out, eng_error *error);
/* The loss of `batches` micro-batches of the held-out data (0: all of it), or, with fields, of that batch: any number of
 * samples, in groups of micro_rows, the same number on every rank. Updates nothing.
 *   Call: [opened & between], all ranks  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_evaluate(eng_session *self, const eng_tensor_in *fields, uint32_t n,
                                               int64_t batches, eng_eval_result *out, eng_error *error);
/* Computes the logits (micro_rows, length, vocabulary) of one micro-batch of "tokens", for eng_session_take: role
 * "activation", name "logits" for the configuration's length, with ENG_SESSION_LOGITS, and "logits N" for a length N of
 * eng_session_request.lengths, which is preferred; then also "NAME N" for each of eng_session_request.activations. The next step keeps them, and so does this function all other
 * activations but those of other lengths.
 *   Call: [opened & between], all ranks  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_logits(eng_session *self, const eng_tensor_in *fields, uint32_t n,
                                             eng_error *error);
/* The activations that eng_session_request.activations can name, in the model's order, as a JSON array of objects with
 * "name", "op", "dtype", "shape", "bytes" and "parameters", the names of those that the op reads. `size`, `text` and
 * `capacity` as in eng_session_plan.
 *   Owner: caller.  Call: [opened]  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_activations(eng_session *self, char *text, uint64_t capacity, uint64_t *size,
                                                  eng_error *error);
/* Continues a text with the present weights, in memory that it takes and gives back. The tokens that end a text end it.
 *   Call: [opened & between], all ranks, with equal requests  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_generate(eng_session *self, const eng_generate_request *request,
                                               eng_error *error);

/* Scores sequences of any lengths up to the longest of eng_session_request.lengths and one, in as few micro-batches as
 * their lengths allow. What fills up a row comes after its tokens, and changes none of the numbers.
 *   Call: [opened & between], all ranks, with equal requests  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_score(eng_session *self, const eng_score_request *request, eng_error *error);
/* The learning rate of the next steps, instead of the schedule's; NaN: the schedule's again. Optimizers multiply it by
 * what [[optimizer.groups]] say. Checkpoints do not keep it.  Call: [opened & between], all ranks  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_set_rate(eng_session *self, double rate, eng_error *error);

/* Facts about the tokenizer of [data], or of the weights. There is none: ENG_INVALID. The caller sets struct_size.
 *   Call: [opened]  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_tokenizer(eng_session *self, eng_tokenizer_info *out, eng_error *error);
/* The ids of `size` bytes of text. `flags`: ENG_TEXT_SPECIAL. *count becomes their number; at most `capacity` of them are
 * written to `ids`, which may be NULL.
 *   Owner: caller.  Call: [opened]  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_encode(eng_session *self, const char *text, uint64_t size, uint32_t flags,
                                             int32_t *ids, uint64_t capacity, uint64_t *count, eng_error *error);
/* The bytes of `count` ids, one after the other. *size becomes their number; at most `capacity` of them are written to
 * `text`, which may be NULL.  Owner: caller.  Call: [opened]  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_decode(eng_session *self, const int32_t *ids, uint64_t count, char *text,
                                             uint64_t capacity, uint64_t *size, eng_error *error);

/* Tensor `index`, from 0 to tensors - 1.  Call: [opened & started]  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_tensor(eng_session *self, uint64_t index, eng_tensor_info *out, eng_error *error);
/* A tensor by name and role, in place: no byte is copied, without ENG_TAKE_COPY. It shows the values of the moment: a
 * step changes them, so read it between steps only. What is written through a writable one counts from the next step
 * on. The shape is that of eng_tensor_info; the element type is that of memory, so states of 8 bits are bytes, and bf16
 * parameters with fp32 masters are the masters. flags 0 and a tensor of which this rank holds a part: ENG_UNSUPPORTED,
 * and the text says so. On a device with memory of its own, the values are complete for any of its streams when the
 * function returns, and the caller's reads must be complete before the next step.
 *   Owner: caller, until the deleter of *out.  Call: [opened & between]; with ENG_TAKE_COPY all ranks  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_take(eng_session *self, const char *name, const char *role, uint32_t flags,
                                           DLManagedTensorVersioned **out, eng_error *error);
/* eng_session_take for consumers of DLPack before 1.0. Their protocol cannot say read-only, so a tensor in place needs
 * ENG_TAKE_WRITABLE: else ENG_UNSUPPORTED. */
ENG_EMBED_API_ eng_status eng_session_take_legacy(eng_session *self, const char *name, const char *role, uint32_t flags,
                                                  DLManagedTensor **out, eng_error *error);
/* Replaces the values of a tensor: those of this rank's part, if it holds a part. `value` has the shape of the whole
 * tensor. Parameters, states and policies can be written; what a step computes cannot.
 *   Call: [opened & between]  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_write(eng_session *self, const char *name, const char *role,
                                            const eng_tensor_in *value, uint32_t flags, eng_error *error);

/* Saves a checkpoint of the last step, unless there is one, and waits until it is complete. To go on from it, open the
 * run directory.  Call: [opened & between & started], all ranks  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_save(eng_session *self, eng_error *error);
/* The step that is being made, or the next one, ends the run: see ENG_ENDED_STOPPED. Safe in a signal handler.
 *   Call: [any & opened]  since 1.0 */
ENG_EMBED_API_ void eng_session_stop(eng_session *self);
/* This rank cannot go on, for a reason of the program's own: the other ranks' waits end with an error that has the text,
 * the run is recorded as failed, and the session can only be closed.
 *   Call: [opened & between]  since 1.0 */
ENG_EMBED_API_ void eng_session_fail(eng_session *self, const char *text);
/* Waits for a checkpoint that is being written, records how the run ended (stopped, if steps are left), gives back
 * everything but the memory of tensors that were taken, and frees `self`, also if it fails, unless it returns
 * ENG_PRECONDITION. NULL does nothing. Saves no checkpoint: that of the last step of the run is saved by that step.
 *   Call: [opened & between], all ranks  since 1.0 */
ENG_EMBED_API_ eng_status eng_session_close(eng_session *self, eng_error *error);

#ifdef __cplusplus
}
#endif
#endif
