/* SPDX-License-Identifier: Apache-2.0
 *
 * A job that does everything a job may do, in a way whose result is known; and, if its option says so, one thing
 * wrong. */
#define _POSIX_C_SOURCE 199309L
#include "engine/job.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/ops.h"
#include "engine/plugin.h"

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\n"
  "id = 'org.example.fixture_job'\n"
  "name = 'Fixture'\n"
  "version = '1.0.0'\n"
  "license = 'Apache-2.0'\n"
  "[[provides]]\n"
  "kind = '" ENG_JOB_DRAFT "'\n"
  "name = 'fixture'\n"
  "[provides.options.turns]\n"
  "type = 'int'\n"
  "default = 3\n"
  "min = 1\n"
  "max = 100\n"
  "help = 'gradients'\n"
  "[provides.options.windows]\n"
  "type = 'int'\n"
  "default = 4\n"
  "help = 'of a gradient'\n"
  "[provides.options.pause]\n"
  "type = 'int'\n"
  "default = 0\n"
  "help = 'milliseconds after each turn'\n"
  "[provides.options.rate]\n"
  "type = 'float'\n"
  "default = 0.01\n"
  "help = 'of the step that is taken and taken back'\n"
  "[provides.options.wrong]\n"
  "type = 'string'\n"
  "default = ''\n"
  "help = 'what it does wrong'\n")
/* clang-format on */

typedef struct job {
  int64_t turns, windows, pause;
  double rate;
  char wrong[40];
} job;

enum { SAVE, STEP, RESTORE, SUM, PROGRAMS }; /* programs */
enum { SUM_OF_GRADIENTS, SAVED, STATES };    /* states */
enum { DONE, LOSSES, SCRATCH, VALUES };      /* values */
enum { MOST_TURNS = 100, MOST_MICRO = 64, PIECE = 5000 };

static int is(const job* j, const char* what) {
  return strcmp(j->wrong, what) == 0;
}

static eng_status refuse(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, strlen(text));
  return status;
}

static eng_status create(const eng_options* options, void** self, eng_error* error) {
  job* j = calloc(1, sizeof *j);
  const char* wrong = "";
  eng_status s;
  if (!j) return ENG_NO_MEMORY;
  s = options->get_int(options, "turns", &j->turns, error);
  if (s == ENG_OK) s = options->get_int(options, "windows", &j->windows, error);
  if (s == ENG_OK) s = options->get_int(options, "pause", &j->pause, error);
  if (s == ENG_OK) s = options->get_float(options, "rate", &j->rate, error);
  if (s == ENG_OK) s = options->get_string(options, "wrong", &wrong, error);
  strncpy(j->wrong, wrong, sizeof j->wrong - 1);
  if (s == ENG_OK && is(j, "create")) s = refuse(error, ENG_INVALID, "job.wrong: not today");
  if (s != ENG_OK)
    free(j);
  else
    *self = j;
  return s;
}
static void destroy(void* self) {
  free(self);
}

static eng_status describe_job(void* self, eng_job_info* out, eng_error* error) {
  const job* j = self;
  (void)error;
  out->programs = is(j, "programs") ? 65 : PROGRAMS;
  out->micro_batch = 1;
  out->windows = (uint32_t)j->windows;
  out->kept = 1u << SUM_OF_GRADIENTS;
  out->writes = 1u << STEP | 1u << RESTORE;
  return ENG_OK;
}

static eng_status host_bytes(void* self, const eng_parameter* const* parameters, uint32_t n_parameters,
                             const eng_job_site* const* sites, uint32_t n_sites, uint64_t* bytes, eng_error* error) {
  (void)self, (void)parameters, (void)n_parameters, (void)sites, (void)n_sites, (void)error;
  *bytes = 1 << 20;
  return ENG_OK;
}

static eng_status shaped(void* self, const eng_parameter* p, eng_state_shape* io, eng_error* error) {
  (void)self, (void)p, (void)error;
  io->kind = ENG_STATE_SHAPED, io->ndim = 1, io->dims[0] = 1;
  return ENG_OK;
}
static eng_status states(void* self, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  const job* j = self;
  (void)error;
  if (cap < STATES) return ENG_INTERNAL;
  out[SUM_OF_GRADIENTS].name = is(j, "state name") ? "site" : "sum";
  out[SUM_OF_GRADIENTS].dtype = ENG_F32;
  out[SAVED].name = "saved";
  out[SAVED].dtype = ENG_F32;
  if (is(j, "shaped")) out[SAVED].shape = shaped;
  *n = STATES;
  return ENG_OK;
}

static eng_status values(void* self, eng_job_value* out, uint32_t cap, uint32_t* n, eng_error* error) {
  static const eng_desc done = {ENG_I64, 1, {2}}, losses = {ENG_F64, 1, {MOST_TURNS}}, scratch = {ENG_F32, 1, {8}};
  const job* j = self;
  (void)error;
  if (cap < VALUES) return ENG_INTERNAL;
  out[DONE].name = "done", out[DONE].shape = done, out[DONE].flags = ENG_JOB_KEPT;
  out[LOSSES].name = "losses", out[LOSSES].shape = losses, out[LOSSES].flags = ENG_JOB_KEPT;
  out[SCRATCH].name = is(j, "two values") ? "done" : "scratch", out[SCRATCH].shape = scratch;
  if (is(j, "value")) out[SCRATCH].shape.dims[0] = -1;
  *n = is(j, "values") ? 1000 : VALUES;
  return ENG_OK;
}

static eng_status scaled(eng_build* b, eng_id from, double factor, eng_id to, eng_error* error) {
  const eng_attr attr = {"factor", 0, factor};
  return b->api->emit(b, ENG_OP_SCALE, &from, 1, &to, 1, &attr, 1, error);
}

static eng_status emit(void* self, eng_build* b, const eng_update* u, eng_error* error) {
  static const eng_attr plain[] = {{"momentum", 0, 0}, {"weight_decay", 0, 0}, {"nesterov", 0, 0}};
  const job* j = self;
  eng_desc grad = {0};
  eng_id in[4] = {0}, out[2] = {0};
  if (is(j, "emit")) return refuse(error, ENG_UNSUPPORTED, "it cannot do that");
  if (is(j, "gradient")) return scaled(b, u->grad, 2, u->grad, error);
  switch (u->stage) {
    case SAVE:
      if (is(j, "master")) return scaled(b, u->master, 2, u->master, error);
      return scaled(b, u->master, 1, u->states[SAVED], error);
    case STEP: /* p - rate * gradient, with the rate that the program is given */
      in[0] = u->master, in[1] = u->grad, in[3] = u->scalars, out[0] = u->master; /* without momentum */
      return b->api->emit(b, ENG_OP_SGD, in, 4, out, 1, plain, 3, error);
    case RESTORE:
      return scaled(b, u->states[SAVED], 1, u->master, error);
    case SUM:
      in[0] = u->states[SUM_OF_GRADIENTS], in[1] = u->grad, out[0] = in[0];
      b->api->shape(b, u->grad, &grad, error);
      if (grad.dtype != ENG_F32) {
        const eng_attr wide = {"dtype", ENG_F32, 0};
        eng_id made = 0;
        const eng_status s = b->api->emit(b, ENG_OP_CAST, &u->grad, 1, &made, 1, &wide, 1, error);
        if (s != ENG_OK) return s;
        in[1] = made;
      }
      return b->api->emit(b, ENG_OP_ADD, in, 2, out, 1, NULL, 0, error);
    default:
      return ENG_INTERNAL;
  }
}

/* Adds up what activations give, each in a place of its own; and the micro-batches in the last one. */
static eng_status site(void* self, const eng_job_site* s, eng_desc* out, eng_error* error) {
  const job* j = self;
  if (is(j, "site")) return refuse(error, ENG_INVALID, "it knows no such op");
  if (strcmp(s->op, ENG_OP_ACTIVATION) != 0 && strcmp(s->op, ENG_OP_GATED) != 0) return ENG_OK;
  *out = *s->shape;
  out->dtype = is(j, "site type") ? ENG_I32 : ENG_F32;
  return ENG_OK;
}
static eng_status observe(void* self, eng_build* b, const eng_job_site* s, eng_id value, eng_id into,
                          eng_error* error) {
  const job* j = self;
  eng_id in[2] = {into, value};
  if (is(j, "writes value")) return scaled(b, value, 2, value, error);
  if (s->shape->dtype != ENG_F32) {
    const eng_attr wide = {"dtype", ENG_F32, 0};
    eng_id made = 0;
    const eng_status status = b->api->emit(b, ENG_OP_CAST, &value, 1, &made, 1, &wide, 1, error);
    if (status != ENG_OK) return status;
    in[1] = made;
  }
  return b->api->emit(b, ENG_OP_ADD, in, 2, &into, 1, NULL, 0, error);
}

/* ---- the work ---- */

typedef struct work {
  const job* j;
  eng_job_host* h;
  eng_error* error;
  eng_status status;
  char text[4096];
  size_t size;
  float piece[PIECE];
} work;

static uint64_t hash(uint64_t h, const void* data, uint64_t size) { /* FNV-1a */
  const unsigned char* at = data;
  for (uint64_t k = 0; k < size; ++k) h = (h ^ at[k]) * 0x100000001b3u;
  return h;
}

static void put(work* w, const char* name, uint64_t number) {
  static const char digits[] = "0123456789abcdef";
  const size_t n = strlen(name);
  if (w->size + n + 20 > sizeof w->text) return;
  memcpy(w->text + w->size, name, n);
  w->size += n;
  w->text[w->size++] = ' ';
  for (int k = 60; k >= 0; k -= 4) w->text[w->size++] = digits[number >> k & 15];
  w->text[w->size++] = '\n';
}

static uint64_t count_of(const eng_desc* shape) {
  uint64_t n = 1;
  for (uint32_t d = 0; d < shape->ndim; ++d) n *= (uint64_t)shape->dims[d];
  return n;
}

static uint64_t next_piece(work* w, uint32_t what, uint32_t state, uint32_t index, uint64_t first, uint64_t count) {
  const uint64_t n = count - first < PIECE ? count - first : PIECE;
  w->status = w->h->api->read(w->h, what, state, index, first, n, w->piece, w->error);
  return n;
}

/* The hash of all parameters, of their gradients, or of a state, which are f32; read in pieces. */
static uint64_t hash_of(work* w, uint32_t what, uint32_t state) {
  const eng_parameter* const* all = NULL;
  uint32_t n = 0;
  uint64_t h = 0xcbf29ce484222325u;
  if (w->status == ENG_OK) w->status = w->h->api->parameters(w->h, &all, &n, w->error);
  for (uint32_t k = 0; w->status == ENG_OK && k < n; ++k) {
    const uint64_t count = count_of(all[k]->shape);
    for (uint64_t at = 0, some; w->status == ENG_OK && at < count; at += some) {
      some = next_piece(w, what, state, all[k]->number, at, count);
      h = hash(h, w->piece, some * sizeof *w->piece);
    }
  }
  return h;
}

static double squares_at_sites(work* w, uint64_t* numbers) {
  const eng_job_site* const* all = NULL;
  uint32_t n = 0;
  double sum = 0;
  *numbers = 0;
  if (w->status == ENG_OK) w->status = w->h->api->sites(w->h, &all, &n, w->error);
  for (uint32_t k = 0; w->status == ENG_OK && k < n; ++k) {
    const uint64_t count = count_of(all[k]->shape);
    for (uint64_t at = 0, some; w->status == ENG_OK && at < count; at += some) {
      some = next_piece(w, ENG_JOB_SITE, 0, all[k]->number, at, count);
      for (uint64_t e = 0; e < some; ++e) sum += (double)w->piece[e] * (double)w->piece[e];
    }
    *numbers += count;
  }
  return sum;
}

static void value(work* w, int write, uint32_t index, uint64_t first, uint64_t count, void* data) {
  if (w->status != ENG_OK) return;
  w->status = write ? w->h->api->write(w->h, ENG_JOB_VALUE, 0, index, first, count, data, w->error)
                    : w->h->api->read(w->h, ENG_JOB_VALUE, 0, index, first, count, data, w->error);
}

static void program(work* w, uint32_t k, float number) {
  if (w->status == ENG_OK) w->status = w->h->api->program(w->h, k, &number, 1, 7, w->error);
}

static eng_status misuse(work* w) {
  double d[1] = {0};
  float numbers[100] = {0};
  const eng_job_api* api = w->h->api;
  if (is(w->j, "numbers")) return api->program(w->h, 0, numbers, 100, 0, w->error);
  if (is(w->j, "program")) return api->program(w->h, PROGRAMS, numbers, 1, 0, w->error);
  if (is(w->j, "windows")) return api->gradient(w->h, ENG_JOB_TRAIN, 1u << 30, d, w->error);
  if (is(w->j, "split")) return api->gradient(w->h, 3, 0, d, w->error);
  if (is(w->j, "index")) return api->read(w->h, ENG_JOB_VALUE, 0, 99, 0, 1, d, w->error);
  if (is(w->j, "range")) return api->read(w->h, ENG_JOB_VALUE, 0, LOSSES, MOST_TURNS, 1, d, w->error);
  if (is(w->j, "write")) return api->write(w->h, ENG_JOB_GRADIENT, 0, 0, 0, 1, numbers, w->error);
  if (is(w->j, "file")) return api->file(w->h, "../x", "x", 1, w->error);
  if (is(w->j, "own file")) return api->file(w->h, "state.json", "x", 1, w->error);
  if (is(w->j, "positions")) return api->position_losses(w->h, ENG_JOB_HELD, 0, 1, d, w->error);
  if (is(w->j, "field")) return api->field(w->h, ENG_JOB_HELD, 0, "org.example.none", d, w->error);
  if (is(w->j, "window")) return api->field(w->h, ENG_JOB_TRAIN, 1u << 30, "tokens", d, w->error);
  if (is(w->j, "error")) return refuse(w->error, ENG_INTERNAL, "made up");
  if (is(w->j, "mute")) return ENG_INTERNAL;
  return ENG_OK;
}

static eng_status run(void* self, eng_job_host* h, eng_error* error) {
  job* j = self;
  static work w;
  int64_t done[2] = {0, 0}, labels[MOST_MICRO], length = 0;
  double loss = 0, sums[MOST_MICRO], all[MOST_TURNS];
  uint64_t windows = 0, held = 0, before, numbers = 0, last = 0;
  uint32_t micro;
  w.j = j, w.h = h, w.error = error, w.size = 0;
  w.status = misuse(&w);
  if (w.status == ENG_OK) w.status = h->api->windows(h, ENG_JOB_TRAIN, &windows, &length, error);
  if (w.status == ENG_OK) w.status = h->api->windows(h, ENG_JOB_HELD, &held, NULL, error);
  if (w.status == ENG_OK && !held) return refuse(error, ENG_INVALID, "data.validation: nothing is held out");
  micro = (uint32_t)(held < 5 ? held : 5);
  before = hash_of(&w, ENG_JOB_PARAMETER, 0);
  value(&w, 0, DONE, 0, 2, done);
  for (int64_t k = done[0]; w.status == ENG_OK && k < j->turns; ++k) {
    w.status = h->api->gradient(h, ENG_JOB_TRAIN, (uint64_t)(k * j->windows), &loss, error);
    program(&w, SUM, 0);
    program(&w, SAVE, 0);
    program(&w, STEP, (float)j->rate);
    if (w.status == ENG_OK) w.status = h->api->losses(h, ENG_JOB_HELD, 0, micro, 1, sums, labels, error);
    for (uint32_t m = 0; w.status == ENG_OK && m < micro; ++m) loss += sums[m] / (double)labels[m];
    program(&w, RESTORE, 0);
    value(&w, 1, LOSSES, (uint64_t)k, 1, &loss);
    done[0] = k + 1;
    value(&w, 1, DONE, 0, 2, done);
    if (w.status == ENG_OK) w.status = h->api->save(h, error);
    if (w.status == ENG_OK)
      w.status =
          h->api->progress(h, "turns", (uint64_t)done[0], (uint64_t)j->turns, k == 0 ? "the first" : NULL, error);
    if (j->pause) {
      const struct timespec some = {j->pause / 1000, j->pause % 1000 * 1000000};
      nanosleep(&some, NULL);
    }
  }
  if (w.status == ENG_UNAVAILABLE && is(j, "goes on")) {
    eng_status again = h->api->gradient(h, ENG_JOB_TRAIN, 0, &loss, error);
    return again == ENG_UNAVAILABLE ? ENG_OK : again;
  }
  if (w.status == ENG_OK)
    w.status = h->api->gradient(h, ENG_JOB_TRAIN, (uint64_t)((j->turns - 1) * j->windows), NULL, error);
  last = hash_of(&w, ENG_JOB_GRADIENT, 0);
  memset(all, 0, sizeof all);
  value(&w, 0, LOSSES, 0, (uint64_t)j->turns, all);
  put(&w, "restored", before == hash_of(&w, ENG_JOB_PARAMETER, 0));
  put(&w, "parameters", before);
  put(&w, "sum", hash_of(&w, ENG_JOB_STATE, SUM_OF_GRADIENTS));
  put(&w, "gradient", last);
  put(&w, "losses", hash(0xcbf29ce484222325u, all, sizeof all));
  put(&w, "windows", windows);
  put(&w, "length", (uint64_t)length);
  if (w.status == ENG_OK) w.status = h->api->file(h, "result.txt", w.text, w.size, error);
  /* The counts of the sites in this attempt alone, and what a row of one more micro-batch adds. */
  if (w.status == ENG_OK) {
    double first, second;
    w.size = 0;
    first = squares_at_sites(&w, &numbers);
    put(&w, "numbers", numbers);
    put(&w, "some", first > 0);
    if (w.status == ENG_OK) w.status = h->api->losses(h, ENG_JOB_HELD, 0, micro, 0, sums, labels, error);
    second = squares_at_sites(&w, &numbers);
    put(&w, "still", first == second);
    put(&w, "bits", hash(0xcbf29ce484222325u, &first, sizeof first));
  }
  if (w.status == ENG_OK) w.status = h->api->file(h, "sites.txt", w.text, w.size, error);
  if (w.status == ENG_OK) { /* writing what one read changes nothing; writing something else does */
    float some[3], other[3] = {1, 2, 3}, read[3];
    int same;
    w.size = 0;
    const eng_parameter* const* parameters = NULL;
    uint32_t n = 0, p;
    w.status = h->api->parameters(h, &parameters, &n, error);
    if (w.status != ENG_OK) return w.status;
    p = parameters[n - 1]->number;
    w.status = h->api->read(h, ENG_JOB_PARAMETER, 0, p, 5, 3, some, error);
    if (w.status == ENG_OK) w.status = h->api->losses(h, ENG_JOB_HELD, 0, 1, 0, sums, labels, error);
    loss = sums[0];
    if (w.status == ENG_OK) w.status = h->api->write(h, ENG_JOB_PARAMETER, 0, p, 5, 3, other, error);
    if (w.status == ENG_OK) w.status = h->api->read(h, ENG_JOB_PARAMETER, 0, p, 5, 3, read, error);
    put(&w, "written", memcmp(read, other, sizeof read) == 0);
    if (w.status == ENG_OK) w.status = h->api->losses(h, ENG_JOB_HELD, 0, 1, 0, sums, labels, error);
    put(&w, "moved", sums[0] != loss);
    if (w.status == ENG_OK) w.status = h->api->write(h, ENG_JOB_PARAMETER, 0, p, 5, 3, some, error);
    if (w.status == ENG_OK) w.status = h->api->losses(h, ENG_JOB_HELD, 0, 1, 0, sums, labels, error);
    same = sums[0] == loss;
    put(&w, "back", (uint64_t)same);
    put(&w, "restored", before == hash_of(&w, ENG_JOB_PARAMETER, 0));
  }
  if (w.status == ENG_OK) w.status = h->api->file(h, "written.txt", w.text, w.size, error);
  if (w.status == ENG_OK) {
    const char* facts = NULL;
    uint64_t size = 0;
    w.status = h->api->facts(h, &facts, &size, error);
    if (w.status == ENG_OK) w.status = h->api->file(h, "facts.json", facts, size, error);
  }
  return w.status;
}

static const eng_job table = {sizeof(eng_job), 0,   create, destroy, describe_job, states, values, emit,
                              host_bytes,      run, site,   observe, NULL};

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}
static const void* get_interface(const char* kind, const char* name) {
  return !strcmp(kind, ENG_JOB_KIND) && !strcmp(name, "fixture") ? &table : NULL;
}
static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};
ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
