/* SPDX-License-Identifier: Apache-2.0
 *
 * An optimizer plugin in one C99 file: Nesterov momentum that restarts every `restart_every` updates.
 * docs/writing-a-plugin.md explains it line by line. */
#include <stdlib.h>
#include <string.h>

#include "engine/ops.h"
#include "engine/optimizer.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example.nesterov'\n"
    "name = 'Nesterov with restarts'\n"
    "version = '1.0.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'an example'\n"
    "[[provides]]\n"
    "kind = '" ENG_OPTIMIZER_DRAFT
    "'\n"
    "name = 'nesterov'\n"
    "summary = 'Nesterov momentum that restarts every restart_every updates'\n"
    "[provides.options]\n"
    "momentum = { type = 'float', default = 0.9, min = 0.1, max = 0.9999, help = 'what is kept of the last update' }\n"
    "restart_every = { type = 'int', default = 0, min = 0, help = 'updates between restarts; 0: never' }\n")

typedef struct nesterov {
  double momentum;
  int64_t restart_every;
} nesterov;

static eng_status fail(eng_error* error, eng_status code, const char* text) {
  if (error) error->set(error, code, text, strlen(text));
  return code;
}

static eng_status create(const eng_options* options, void** self, eng_error* error) {
  nesterov made = {0, 0}, *kept;
  eng_status status = options->get_float(options, "momentum", &made.momentum, error);
  if (status == ENG_OK) status = options->get_int(options, "restart_every", &made.restart_every, error);
  if (status != ENG_OK) return status;
  if (made.restart_every == 1)
    return fail(error, ENG_INVALID, "restart_every = 1 leaves no momentum; take 0 (never), or 2 and more");
  kept = malloc(sizeof(*kept));
  if (!kept) return fail(error, ENG_NO_MEMORY, "out of memory");
  *kept = made;
  *self = kept;
  return ENG_OK;
}

static void destroy(void* self) {
  free(self);
}

static eng_status states(void* self, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  (void)self;
  if (cap < 1) return fail(error, ENG_OUT_OF_RANGE, "there is no room for a state");
  out[0].name = "momentum_buffer";
  out[0].dtype = ENG_F32;
  out[0].reserved = 0;
  *n = 1;
  return ENG_OK;
}

static eng_status scalars(void* self, uint64_t k, float* out, uint32_t cap, uint32_t* n, eng_error* error) {
  const nesterov* me = self;
  uint64_t every = (uint64_t)me->restart_every;
  if (cap < 1) return fail(error, ENG_OUT_OF_RANGE, "there is no room for a scalar");
  out[0] = every ? (k - 1) % every == 0 : k == 1; /* 1: the op forgets the old momentum */
  *n = 1;
  return ENG_OK;
}

static eng_status update(void* self, eng_build* b, const eng_update* run, eng_error* error) {
  const nesterov* me = self;
  eng_id in[4], out[2];
  eng_attr attrs[3] = {{"momentum", 0, 0}, {"weight_decay", 0, 0}, {"nesterov", 1, 0}};
  attrs[0].f = me->momentum;
  in[0] = run->master, in[1] = run->grad, in[2] = run->states[0], in[3] = run->scalars;
  out[0] = run->master, out[1] = run->states[0];
  return b->api->emit(b, ENG_OP_SGD, in, 4, out, 2, attrs, 3, error);
}

static const eng_optimizer table = {.struct_size = sizeof(eng_optimizer),
                                    .granularity = 1,
                                    .create = create,
                                    .destroy = destroy,
                                    .states = states,
                                    .scalars = scalars,
                                    .update = update};

static const char* describe(void) {
  return eng_description;
}

static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}

static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  if (strcmp(kind, ENG_OPTIMIZER_KIND) == 0 && strcmp(name, "nesterov") == 0) return &table;
  return NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, .describe = describe, .start = start, .stop = stop,
                                  .get_interface = get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
