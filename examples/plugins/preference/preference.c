/* SPDX-License-Identifier: Apache-2.0
 *
 * A loss of preferences in C99. Sequences 2k and 2k + 1 of a micro-batch are two answers to one question, the preferred
 * one first; labels of the question are -100. With s the log-probability of an answer, the loss of a pair is
 *   -log sigmoid(z),  z = beta (s_preferred - s_other) - margin
 * Without a reference, s is the mean over the answer's labels: SimPO (Meng et al. 2024). With `reference = true`, s is
 * the sum, less that of the batch's field `reference_logprobs`, (B, T) f32, which are the log-probabilities that a
 * reference model gives to the labels: DPO (Rafailov et al. 2023), then with margin = 0. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/loss.h"
#include "engine/op.h"
#include "engine/ops.h"
#include "engine/plugin.h"

enum { ignored = -100 };
/* in: logprobs (B, T) f32, labels (B, T) i32, [reference (B, T) f32]; out: loss (1) f32, a sum over pairs, and the
 * number of pairs whose preferred answer is ahead (1) f32. attrs: beta f, margin f */
#define PAIRS "org.example.preference.pairs/1"
/* in: dloss (1), then the inputs of PAIRS; out: dlogprobs. attrs: those of PAIRS */
#define PAIRS_GRAD "org.example.preference.pairs_grad/1"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example.preference'\n"
    "name = 'Preference'\n"
    "version = '1.0.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'a loss of pairs of answers'\n"
    "[[provides]]\n"
    "kind = '" ENG_LOSS_DRAFT
    "'\n"
    "name = 'pairs'\n"
    "summary = 'of two answers, the first is preferred: SimPO, or DPO with log-probabilities of a reference'\n"
    "[provides.options]\n"
    "beta = { type = 'float', default = 2.0, above = 0, help = 'how much a difference of log-probabilities counts' }\n"
    "margin = { type = 'float', default = 0.0, min = 0, help = 'by how much the preferred answer must be ahead' }\n"
    "reference = { type = 'bool', default = false, help = 'subtract the field reference_logprobs of the batch' }\n"
    "[[provides]]\n"
    "kind = '" ENG_OPS_DRAFT
    "'\n"
    "name = 'pairs'\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'cpu'\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'reference'\n")

static eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, strlen(text));
  return status;
}

/* ---- the loss ---- */

typedef struct preference {
  double beta, margin;
  int32_t reference;
} preference;

static eng_status create(const eng_options* options, void** self, eng_error* error) {
  preference* made = calloc(1, sizeof *made);
  eng_status s;
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  s = options->get_float(options, "beta", &made->beta, error);
  if (s == ENG_OK) s = options->get_float(options, "margin", &made->margin, error);
  if (s == ENG_OK) s = options->get_bool(options, "reference", &made->reference, error);
  if (s == ENG_OK)
    *self = made;
  else
    free(made);
  return s;
}

static eng_status trace(void* self, eng_build* b, eng_id hidden, eng_id weight, eng_id* out, eng_error* error) {
  const preference* me = self;
  eng_attr attrs[2] = {{"beta", 0, 0}, {"margin", 0, 0}};
  eng_id in[3] = {0, 0, 0}, made[2] = {0, 0};
  eng_desc shape;
  if (b->api->shape(b, hidden, &shape, error) == ENG_OK && shape.dims[0] % 2)
    return fail(error, ENG_INVALID, "a micro-batch holds pairs of answers: train.micro_batch must be even");
  attrs[0].f = me->beta, attrs[1].f = me->margin;
  b->api->batch(b, "labels", &in[1], error);
  if (me->reference) b->api->batch(b, "reference_logprobs", &in[2], error);
  in[0] = eng_label_logprob(b, hidden, weight, in[1]);
  b->api->emit(b, PAIRS, in, me->reference ? 3 : 2, made, 2, attrs, 2, error);
  b->api->term_per(b, made[0], "preference", 1.0, ENG_PER_PAIR, error);
  b->api->term_per(b, made[1], "accuracy", 0.0, ENG_PER_PAIR, error); /* a metric */
  *out = made[0];
  return b->api->status(b, error);
}

static const eng_loss loss = {sizeof(eng_loss), 1, create, free, trace};

/* ---- its ops ---- */

static int same(const eng_desc* a, const eng_desc* b) {
  return a->ndim == 2 && b->ndim == 2 && a->dims[0] == b->dims[0] && a->dims[1] == b->dims[1];
}

static const char* wrong(const eng_desc* logprobs, const eng_desc* labels, const eng_desc* reference) {
  if (logprobs->dtype != ENG_F32 && logprobs->dtype != ENG_F64) return "log-probabilities must be f32";
  if (labels->dtype != ENG_I32 || !same(logprobs, labels)) return "labels must be (B, T) i32";
  if (reference && (!same(logprobs, reference) || reference->dtype != ENG_F32))
    return "the field reference_logprobs must be f32";
  if (logprobs->dims[0] % 2) return "sequences must come in pairs";
  return NULL;
}

static eng_status infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  const char* text = wrong(&call->in[0], &call->in[1], call->n_in > 2 ? &call->in[2] : NULL);
  uint32_t k;
  if (text) return fail(error, ENG_INVALID, text);
  if (cap < 2) return fail(error, ENG_OUT_OF_RANGE, "there are two outputs");
  memset(out, 0, 2 * sizeof *out);
  for (k = 0; k < 2; ++k) out[k].dtype = call->in[0].dtype, out[k].ndim = 1, out[k].dims[0] = 1;
  *n = 2;
  return ENG_OK;
}

static eng_status infer_grad(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  const char* text = wrong(&call->in[1], &call->in[2], call->n_in > 3 ? &call->in[3] : NULL);
  if (text) return fail(error, ENG_INVALID, text);
  if (cap < 1) return fail(error, ENG_OUT_OF_RANGE, "there is one output");
  out[0] = call->in[1];
  *n = 1;
  return ENG_OK;
}

static eng_status grad(eng_gradient* g, eng_error* error) {
  const eng_gradient_api* api = g->api;
  const uint32_t inputs = api->inputs(g);
  uint32_t n = 0;
  const eng_attr* attrs = api->attrs(g, &n);
  if (api->wants(g, 0)) {
    eng_id in[4], made = 0;
    in[0] = api->d_out(g, 0), in[1] = api->in(g, 0), in[2] = api->in(g, 1), in[3] = api->in(g, 2);
    api->emit(g, PAIRS_GRAD, in, inputs + 1, &made, 1, attrs, n, 0);
    api->give(g, 0, made);
  }
  return api->status(g, error);
}

static const eng_op pairs = {
    .struct_size = sizeof(eng_op), .id = PAIRS, .min_in = 2, .max_in = 3, .infer = infer, .grad = grad};
static const eng_op pairs_grad = {
    .struct_size = sizeof(eng_op), .id = PAIRS_GRAD, .min_in = 3, .max_in = 4, .infer = infer_grad};
static const eng_op* const op_list[] = {&pairs, &pairs_grad};
static const eng_ops ops = {sizeof(eng_ops), 2, op_list};

/* ---- their kernels, on one thread: they read B x T numbers ---- */

typedef struct use {
  int backward, wide; /* wide: log-probabilities are f64 */
  int64_t rows, length;
  double beta, margin;
  uint32_t n_in;
  void* at[6];
} use;

static double read_at(const use* u, const void* numbers, int64_t k) {
  return u->wide ? ((const double*)numbers)[k] : (double)((const float*)numbers)[k];
}

static void write_at(const use* u, void* numbers, int64_t k, double value) {
  if (u->wide)
    ((double*)numbers)[k] = value;
  else
    ((float*)numbers)[k] = (float)value;
}

static eng_status workspace(const eng_call* call, uint64_t* bytes, eng_error* error) {
  (void)call, (void)error;
  *bytes = 0;
  return ENG_OK;
}

static eng_status make(const eng_call* call, int backward, void** state, eng_error* error) {
  const eng_desc* logprobs = &call->in[backward];
  use* made = calloc(1, sizeof *made);
  uint32_t k;
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  made->backward = backward, made->wide = logprobs->dtype == ENG_F64;
  made->rows = logprobs->dims[0], made->length = logprobs->dims[1], made->n_in = call->n_in;
  for (k = 0; k < call->n_attrs; ++k) {
    if (!strcmp(call->attrs[k].key, "beta")) made->beta = call->attrs[k].f;
    if (!strcmp(call->attrs[k].key, "margin")) made->margin = call->attrs[k].f;
  }
  *state = made;
  return ENG_OK;
}

static eng_status prepare(void* device, const eng_call* call, void** state, eng_error* error) {
  (void)device;
  return make(call, 0, state, error);
}

static eng_status prepare_grad(void* device, const eng_call* call, void** state, eng_error* error) {
  (void)device;
  return make(call, 1, state, error);
}

static eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void* scratch, void** record,
                       eng_error* error) {
  use* made = malloc(sizeof *made);
  uint32_t k;
  (void)scratch;
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  *made = *(const use*)state;
  for (k = 0; k < n && k < 6; ++k) made->at[k] = args[k] ? (char*)args[k]->data + args[k]->byte_offset : NULL;
  *record = made;
  return ENG_OK;
}

/* The score of a sequence, and into `share` what each of its labels has in it. */
static double score(const use* u, int64_t row, double* share) {
  const int64_t first = row * u->length;
  const void* logprobs = u->at[u->backward];
  const int32_t* labels = u->at[u->backward + 1];
  const float* reference = u->n_in > (uint32_t)u->backward + 2 ? u->at[u->backward + 2] : NULL;
  double sum = 0;
  int64_t t, n = 0;
  for (t = 0; t < u->length; ++t) {
    if (labels[first + t] == ignored) continue;
    sum += read_at(u, logprobs, first + t) - (reference ? (double)reference[first + t] : 0.0);
    ++n;
  }
  *share = reference || !n ? 1.0 : 1.0 / (double)n;
  return sum * *share;
}

static eng_status launch(void* record, const eng_exec* exec, eng_error* error) {
  const use* u = record;
  double sum = 0, ahead = 0;
  int64_t row, t;
  (void)exec, (void)error;
  for (row = 0; row + 1 < u->rows; row += 2) {
    double share[2];
    const double preferred = score(u, row, &share[0]), other = score(u, row + 1, &share[1]);
    const double z = u->beta * (preferred - other) - u->margin;
    if (u->backward) { /* dloss * (sigmoid(z) - 1) * beta, and its negative for the other answer */
      const double dz = read_at(u, u->at[0], 0) * -1.0 / (1.0 + exp(z)) * u->beta;
      const int32_t* labels = u->at[2];
      for (t = 0; t < 2 * u->length; ++t) {
        const int second = t >= u->length;
        const int64_t k = row * u->length + t;
        const double d = (second ? -dz : dz) * share[second];
        write_at(u, u->at[u->n_in], k, labels[k] == ignored ? 0.0 : d);
      }
    }
    sum += z > 0 ? log1p(exp(-z)) : log1p(exp(z)) - z;
    ahead += preferred > other;
  }
  if (!u->backward) write_at(u, u->at[u->n_in], 0, sum), write_at(u, u->at[u->n_in + 1], 0, ahead);
  return ENG_OK;
}

static const eng_kernel pairs_kernel = {sizeof(eng_kernel), 0, PAIRS, workspace, prepare, bind, launch, free, free};
static const eng_kernel grad_kernel = {
    sizeof(eng_kernel), 0, PAIRS_GRAD, workspace, prepare_grad, bind, launch, free, free};
static const eng_kernel* const kernel_list[] = {&pairs_kernel, &grad_kernel};
static const eng_kernels kernels = {sizeof(eng_kernels), 2, kernel_list};

/* ---- the plugin ---- */

static const char* describe(void) {
  return eng_description;
}

static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}

static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  (void)name;
  if (!strcmp(kind, ENG_LOSS_KIND)) return &loss;
  if (!strcmp(kind, ENG_OPS_KIND)) return &ops;
  return !strcmp(kind, ENG_KERNELS_KIND) ? &kernels : NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
