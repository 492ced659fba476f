/* SPDX-License-Identifier: Apache-2.0
 *
 * A model and an optimizer that kill their own process with SIGKILL at one place of one step of one rank: in a forward,
 * in a backward, or in an update. Compiled against abi/ alone.
 *
 * What dies first leaves a file `killed` in the working directory: where it was, and how far it had come. With that
 * file there nobody is killed, so the run goes on by the same configuration. Nothing of this changes a number.
 *
 *   embedding - layer - layer - kill - layer - head,   layer: x + silu(x w^T);   momentum */
#define _POSIX_C_SOURCE 200809L

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/kernel.h"
#include "engine/model.h"
#include "engine/op.h"
#include "engine/ops.h"
#include "engine/optimizer.h"
#include "engine/plugin.h"

#define OP_PASS "org.example.killer.pass/1"     /* y = x.  in: x; out: y. attrs: backward i, rank i, at i */
#define OP_UPDATE "org.example.killer.update/1" /* p = p.  in: p, scalars; out: p, in place. attrs: rank i, at i */

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\n"
  "id = 'org.example.killer'\n"
  "name = 'Killer'\n"
  "version = '1.0.0'\n"
  "license = 'Apache-2.0'\n"
  "summary = 'a rank that is killed where a test wants it'\n"
  "\n"
  "[[provides]]\n"
  "kind = '" ENG_OPS_DRAFT "'\n"
  "name = 'killer'\n"
  "\n"
  "[[provides]]\n"
  "kind = '" ENG_KERNELS_DRAFT "'\n"
  "name = 'cpu'\n"
  "\n"
  "[[provides]]\n"
  "kind = '" ENG_MODEL_DRAFT "'\n"
  "name = 'killer'\n"
  "[provides.options]\n"
  "kill = { type = 'string', default = 'nowhere', choices = ['nowhere', 'forward', 'backward'], help = 'where' }\n"
  "kill_rank = { type = 'int', default = 0, min = 0, help = 'whom' }\n"
  "kill_at = { type = 'int', default = 1, min = 1, help = 'in which micro-batch of the process' }\n"
  "\n"
  "[[provides]]\n"
  "kind = '" ENG_OPTIMIZER_DRAFT "'\n"
  "name = 'killer'\n"
  "[provides.options]\n"
  "kill = { type = 'bool', default = false, help = 'somebody' }\n"
  "kill_rank = { type = 'int', default = 0, min = 0, help = 'whom' }\n"
  "kill_at = { type = 'int', default = 1, min = 1, help = 'in which update, behind the first parameters' }\n")
/* clang-format on */

enum { vocabulary = 256, width = 96, layers = 3 };

static eng_status fail(eng_error* error, eng_status code, const char* text) {
  if (error) error->set(error, code, text, strlen(text));
  return code;
}

/* ---- the end ------------------------------------------------------------------------------------------------------
 */

static long forwards, backwards; /* that this process has begun; launches are on one thread */
static long update_number, runs; /* of parameters that this update has come to */

static void die(const char* where) {
  char text[200];
  const int file = open("killed", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  const int n = snprintf(text, sizeof text,
                         "{\"where\":\"%s\",\"process\":%ld,\"forwards\":%ld,\"backwards\":%ld,\"update\":%ld,"
                         "\"runs\":%ld}\n",
                         where, (long)getpid(), forwards, backwards, update_number, runs);
  if (file < 0) return; /* somebody was killed already */
  if (write(file, text, (size_t)n) == n) kill(getpid(), SIGKILL);
  close(file);
}

static int64_t attr_of(const eng_attr* attrs, uint32_t n, const char* key) {
  uint32_t k;
  for (k = 0; k < n; ++k)
    if (strcmp(attrs[k].key, key) == 0) return attrs[k].i;
  return 0;
}

/* ---- ops ----------------------------------------------------------------------------------------------------------
 */

static eng_status infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  if (cap < 1) return fail(error, ENG_OUT_OF_RANGE, "no room for the output");
  out[0] = call->in[0];
  *n_out = 1;
  return ENG_OK;
}

static eng_status pass_grad(eng_gradient* g, eng_error* error) {
  uint32_t n = 0;
  const eng_attr* given = g->api->attrs(g, &n);
  const eng_id in = g->api->d_out(g, 0);
  eng_attr attrs[3] = {{"backward", 1, 0}, {"rank", 0, 0}, {"at", 0, 0}};
  eng_id out = 0;
  attrs[1].i = attr_of(given, n, "rank"), attrs[2].i = attr_of(given, n, "grad_at");
  g->api->emit(g, OP_PASS, &in, 1, &out, 1, attrs, 3, NULL);
  g->api->give(g, 0, out);
  return g->api->status(g, error);
}

static const eng_in_place same[] = {{0, 0, 0, 0}}, same_always[] = {{0, 0, 1, 0}};
static const eng_op pass = {.struct_size = sizeof(eng_op),
                            .id = OP_PASS,
                            .min_in = 1,
                            .max_in = 1,
                            .infer = infer,
                            .grad = pass_grad,
                            .in_place = same,
                            .n_in_place = 1};
static const eng_op update_op = {.struct_size = sizeof(eng_op),
                                 .id = OP_UPDATE,
                                 .min_in = 2,
                                 .max_in = 2,
                                 .infer = infer,
                                 .in_place = same_always,
                                 .n_in_place = 1};
static const eng_op* const op_list[] = {&pass, &update_op};
static const eng_ops ops = {sizeof(eng_ops), 2, op_list};

/* ---- kernels ------------------------------------------------------------------------------------------------------
 */

typedef struct use {
  int64_t backward, at; /* at = 0: never */
  size_t bytes;
} use;

typedef struct record {
  const use* what;
  const void* in;
  const float* scalars;
  void* out;
} record;

/* Models and optimizers do not know their rank, and need not. This one must, so it asks where no plugin may. */
static int is_rank(int64_t rank) {
  const char* mine = getenv("OMPI_COMM_WORLD_RANK");
  return mine && atoi(mine) == rank;
}

static eng_status workspace(const eng_call* call, uint64_t* bytes, eng_error* error) {
  if (call->in[0].dtype != ENG_F32) return fail(error, ENG_UNSUPPORTED, "f32 only");
  *bytes = 0;
  return ENG_OK;
}

static eng_status prepare(void* device, const eng_call* call, void** state, eng_error* error) {
  uint32_t k;
  use* made = malloc(sizeof *made);
  (void)device;
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  made->backward = attr_of(call->attrs, call->n_attrs, "backward");
  made->at = is_rank(attr_of(call->attrs, call->n_attrs, "rank")) ? attr_of(call->attrs, call->n_attrs, "at") : 0;
  made->bytes = sizeof(float);
  for (k = 0; k < call->in[0].ndim; ++k) made->bytes *= (size_t)call->in[0].dims[k];
  *state = made;
  return ENG_OK;
}

static eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void* scratch, void** out,
                       eng_error* error) {
  record* made = malloc(sizeof *made);
  (void)scratch;
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  made->what = state;
  made->in = args[0]->data;
  made->scalars = n == 3 ? args[1]->data : NULL;
  made->out = args[n - 1]->data;
  *out = made;
  return ENG_OK;
}

static eng_status launch_pass(void* self, const eng_exec* exec, eng_error* error) {
  const record* r = self;
  long* number = r->what->backward ? &backwards : &forwards;
  (void)exec, (void)error;
  if (++*number == r->what->at) die(r->what->backward ? "backward" : "forward");
  if (r->out != r->in) memcpy(r->out, r->in, r->what->bytes);
  return ENG_OK;
}

static eng_status launch_update(void* self, const eng_exec* exec, eng_error* error) {
  const record* r = self;
  const long number = (long)r->scalars[ENG_S_LR + 2];
  (void)exec, (void)error;
  if (number != update_number) update_number = number, runs = 0;
  if (++runs == 2 && number == r->what->at) die("optimizer");
  return ENG_OK;
}

static const eng_kernel pass_kernel = {
    sizeof(eng_kernel), ENG_KERNEL_EXACT, OP_PASS, workspace, prepare, bind, launch_pass, free, free};
static const eng_kernel update_kernel = {
    sizeof(eng_kernel), ENG_KERNEL_EXACT, OP_UPDATE, workspace, prepare, bind, launch_update, free, free};
static const eng_kernel* const kernel_list[] = {&pass_kernel, &update_kernel};
static const eng_kernels kernels = {sizeof(eng_kernels), 2, kernel_list};

/* ---- the model ----------------------------------------------------------------------------------------------------
 */

typedef struct aim {
  int64_t rank, at;
  int forward, backward, update;
} aim;

static eng_status keep(const aim* made, void** self, eng_error* error) {
  aim* kept = malloc(sizeof *kept);
  if (!kept) return fail(error, ENG_NO_MEMORY, "out of memory");
  *kept = *made;
  *self = kept;
  return ENG_OK;
}

static eng_status create_model(const eng_options* options, void** self, eng_error* error) {
  aim made = {0, 0, 0, 0, 0};
  const char* where = "";
  eng_status s = options->get_string(options, "kill", &where, error);
  if (s == ENG_OK) s = options->get_int(options, "kill_rank", &made.rank, error);
  if (s == ENG_OK) s = options->get_int(options, "kill_at", &made.at, error);
  if (s != ENG_OK) return s;
  made.forward = strcmp(where, "forward") == 0, made.backward = strcmp(where, "backward") == 0;
  return keep(&made, self, error);
}

static eng_status describe_model(void* self, eng_model_info* out, eng_error* error) {
  (void)self, (void)error;
  out->vocabulary = vocabulary, out->layers = layers;
  return ENG_OK;
}

static eng_id matrix(eng_build* b, const char* name, int64_t rows, double std) {
  eng_attr init[2] = {{"mean", 0, 0}, {"std", 0, 0}};
  int64_t dims[2] = {0, width};
  eng_param p = {sizeof(eng_param), 0, NULL, ENG_OP_INIT_NORMAL, NULL, NULL, 2, 2};
  eng_id out = 0;
  init[1].f = std, dims[0] = rows;
  p.name = name, p.init = init, p.dims = dims;
  b->api->param(b, &p, &out, NULL);
  return out;
}

static eng_status declare(void* self, eng_build* b, eng_error* error) {
  static const char* const names[layers] = {"layers.0", "layers.1", "layers.2"};
  static const char* const weights[layers] = {"layers.0.weight", "layers.1.weight", "layers.2.weight"};
  eng_id id = matrix(b, "embedding.weight", vocabulary, 1);
  uint32_t k;
  (void)self;
  b->api->block(b, "embedding", 0, &id, 1, NULL);
  for (k = 0; k < layers; ++k) {
    id = matrix(b, weights[k], width, 0.125);
    b->api->block(b, names[k], k == 1 ? 2 : 1, &id, 1, NULL);
  }
  id = matrix(b, "head.weight", vocabulary, 0.125);
  b->api->block(b, "head", 3, &id, 1, NULL);
  return b->api->status(b, error);
}

/* Templates: 0 embedding, 1 layer, 2 the layer with the kill, 3 head. */
static eng_status trace(void* self, eng_build* b, uint32_t tmpl, const eng_id* params, uint32_t n_params,
                        const eng_id* in, uint32_t n_in, eng_id* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  const aim* a = self;
  eng_attr attrs[4] = {{"backward", 0, 0}, {"rank", 0, 0}, {"at", 0, 0}, {"grad_at", 0, 0}};
  eng_id batch = 0, x;
  eng_status s;
  if (n_params != 1 || (tmpl > 0 && n_in != 1) || cap < 1) return fail(error, ENG_INVALID, "another number of values");
  attrs[1].i = a->rank, attrs[2].i = a->forward ? a->at : 0, attrs[3].i = a->backward ? a->at : 0;
  if (tmpl == 0) {
    b->api->batch(b, "tokens", &batch, NULL);
    x = eng_embedding(b, batch, params[0]);
  } else if (tmpl == 3) {
    b->api->batch(b, "labels", &batch, NULL);
    x = eng_cross_entropy(b, in[0], params[0], batch);
  } else {
    x = eng_add(b, in[0], eng_activation(b, eng_linear(b, in[0], params[0], 0), ENG_ACT_SILU));
    if (tmpl == 2) x = eng_emit1(b, OP_PASS, &x, 1, attrs, 4);
  }
  if ((s = b->api->status(b, error)) != ENG_OK) return s;
  out[0] = x, *n_out = 1;
  return ENG_OK;
}

static const eng_model model = {sizeof(eng_model), 0, create_model, free, describe_model, declare, trace};

/* ---- the optimizer ------------------------------------------------------------------------------------------------
 */

static eng_status create_optimizer(const eng_options* options, void** self, eng_error* error) {
  aim made = {0, 0, 0, 0, 0};
  int32_t armed = 0;
  eng_status s = options->get_bool(options, "kill", &armed, error);
  if (s == ENG_OK) s = options->get_int(options, "kill_rank", &made.rank, error);
  if (s == ENG_OK) s = options->get_int(options, "kill_at", &made.at, error);
  if (s != ENG_OK) return s;
  made.update = armed;
  return keep(&made, self, error);
}

static eng_status states(void* self, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  (void)self;
  if (cap < 1) return fail(error, ENG_OUT_OF_RANGE, "no room for a state");
  out[0].name = "momentum_buffer", out[0].dtype = ENG_F32, out[0].reserved = 0;
  *n = 1;
  return ENG_OK;
}

static eng_status scalars(void* self, uint64_t k, float* out, uint32_t cap, uint32_t* n, eng_error* error) {
  (void)self;
  if (cap < 2) return fail(error, ENG_OUT_OF_RANGE, "no room for two scalars");
  out[0] = k == 1, out[1] = (float)k;
  *n = 2;
  return ENG_OK;
}

static eng_status update(void* self, eng_build* b, const eng_update* run, eng_error* error) {
  const aim* a = self;
  const eng_attr attrs[3] = {{"momentum", 0, 0.9}, {"weight_decay", 0, 0}, {"nesterov", 0, 0}};
  eng_attr when[2] = {{"rank", 0, 0}, {"at", 0, 0}};
  eng_id in[4], out[2];
  eng_status s;
  when[0].i = a->rank, when[1].i = a->update ? a->at : 0;
  in[0] = out[0] = run->master, in[1] = run->scalars;
  if ((s = b->api->emit(b, OP_UPDATE, in, 2, out, 1, when, 2, error)) != ENG_OK) return s;
  in[1] = run->grad, in[2] = out[1] = run->states[0], in[3] = run->scalars;
  return b->api->emit(b, ENG_OP_SGD, in, 4, out, 2, attrs, 3, error);
}

static const eng_optimizer optimizer = {sizeof(eng_optimizer), 1, create_optimizer, free, states, scalars, update};

/* -------------------------------------------------------------------------------------------------------------------
 */

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  if (strcmp(kind, ENG_KERNELS_KIND) == 0) return strcmp(name, "cpu") == 0 ? &kernels : NULL;
  if (strcmp(name, "killer") != 0) return NULL;
  if (strcmp(kind, ENG_OPS_KIND) == 0) return &ops;
  if (strcmp(kind, ENG_MODEL_KIND) == 0) return &model;
  if (strcmp(kind, ENG_OPTIMIZER_KIND) == 0) return &optimizer;
  return NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
