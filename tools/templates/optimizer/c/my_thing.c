/* SPDX-License-Identifier: Apache-2.0
 *
 * An optimizer. It says which states a parameter has, and emits the ops that update a run of elements. It never sees
 * memory, devices or ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ops.h"
#include "engine/optimizer.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example.my_thing'\n"
    "name = 'my_thing'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'an optimizer'\n"
    "[[provides]]\n"
    "kind = '" ENG_OPTIMIZER_DRAFT
    "'\n"
    "name = 'my_thing'\n"
    "summary = 'Adam with decoupled weight decay'\n"
    "[provides.options]\n"
    "beta1 = { type = 'float', default = 0.9, min = 0, max = 0.9999, help = 'what is kept of the first moment' }\n"
    "beta2 = { type = 'float', default = 0.999, min = 0, max = 0.9999, help = 'what is kept of the second moment' }\n"
    "eps = { type = 'float', default = 1e-8, above = 0, help = 'added to the root of the second moment' }\n"
    "weight_decay = { type = 'float', default = 0.0, min = 0, per_group = true, help = 'not for norms and biases' }\n")

typedef struct adam {
  double beta1, beta2, eps;
} adam;

static eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, strlen(text));
  return status;
}

static eng_status create(const eng_options* options, void** self, eng_error* error) {
  adam made = {0, 0, 0}, *kept;
  eng_status s = options->get_float(options, "beta1", &made.beta1, error);
  if (s == ENG_OK) s = options->get_float(options, "beta2", &made.beta2, error);
  if (s == ENG_OK) s = options->get_float(options, "eps", &made.eps, error);
  if (s != ENG_OK) return s;
  /* This checks what the description cannot say. */
  if (made.beta1 * made.beta1 > made.beta2)
    return fail(error, ENG_INVALID, "beta1 squared is above beta2: Adam then diverges; raise beta2 or lower beta1");
  kept = malloc(sizeof *kept);
  if (!kept) return fail(error, ENG_NO_MEMORY, "out of memory");
  *kept = made;
  *self = kept;
  return ENG_OK;
}

static void destroy(void* self) {
  free(self);
}

/* One value per element each. Checkpoints store them as PARAMETER.exp_avg and PARAMETER.exp_avg_sq. */
static eng_status states(void* self, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  (void)self;
  if (cap < 2) return fail(error, ENG_OUT_OF_RANGE, "there is no room for two states");
  out[0].name = "exp_avg", out[0].dtype = ENG_F32;
  out[1].name = "exp_avg_sq", out[1].dtype = ENG_F32;
  *n = 2;
  return ENG_OK;
}

/* The scalars that eng.adamw/1 reads for update k beside the learning rate: engine/ops.h. */
static eng_status scalars(void* self, uint64_t k, float* out, uint32_t cap, uint32_t* n, eng_error* error) {
  const adam* me = self;
  if (cap < 2) return fail(error, ENG_OUT_OF_RANGE, "there is no room for two scalars");
  out[0] = (float)(1 - pow(me->beta1, (double)k));
  out[1] = (float)sqrt(1 - pow(me->beta2, (double)k));
  *n = 2;
  return ENG_OK;
}

static eng_status update(void* self, eng_build* b, const eng_update* run, eng_error* error) {
  const adam* me = self;
  eng_attr attrs[4] = {{"beta1", 0, 0}, {"beta2", 0, 0}, {"eps", 0, 0}, {"weight_decay", 0, 0}};
  eng_id in[5], out[3];
  eng_status s = ENG_OK;
  attrs[0].f = me->beta1, attrs[1].f = me->beta2, attrs[2].f = me->eps;
  /* The parameters of a run have equal options, so those of the first one count. */
  if (run->n_ranges > 0 && !(run->flags & ENG_PARAM_NO_DECAY)) {
    const eng_options* own = run->ranges[0].parameter->options;
    s = own->get_float(own, "weight_decay", &attrs[3].f, error);
  }
  if (s != ENG_OK) return s;
  in[0] = run->master, in[1] = run->grad, in[2] = run->states[0], in[3] = run->states[1], in[4] = run->scalars;
  out[0] = run->master, out[1] = run->states[0], out[2] = run->states[1]; /* in place */
  return b->api->emit(b, ENG_OP_ADAMW, in, 5, out, 3, attrs, 4, error);
}

static const eng_optimizer table = {.struct_size = sizeof(eng_optimizer),
                                    .granularity = 1, /* each element by itself */
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
  return !strcmp(kind, ENG_OPTIMIZER_KIND) && !strcmp(name, "my_thing") ? &table : NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
