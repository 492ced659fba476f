// SPDX-License-Identifier: Apache-2.0
// An optimizer. It says which states a parameter has, and emits the ops that update a run of elements. It never sees
// memory, devices or ranks.
#include <cmath>
#include <cstring>
#include <new>

#include "engine/ops.h"
#include "engine/optimizer.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(R"(
[plugin]
id = 'org.example.my_thing'
name = 'my_thing'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'an optimizer'

[[provides]]
kind = ')" ENG_OPTIMIZER_DRAFT R"('
name = 'my_thing'
summary = 'Adam with decoupled weight decay'

[provides.options]
beta1 = { type = 'float', default = 0.9, min = 0, max = 0.9999, help = 'what is kept of the first moment' }
beta2 = { type = 'float', default = 0.999, min = 0, max = 0.9999, help = 'what is kept of the second moment' }
eps = { type = 'float', default = 1e-8, above = 0, help = 'added to the root of the second moment' }
weight_decay = { type = 'float', default = 0.0, min = 0, help = 'decoupled; not for norms and biases', per_group = true }
)")

namespace {

struct Adam {
  double beta1, beta2, eps;
};

eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, std::strlen(text));
  return status;
}

eng_status create(const eng_options* options, void** self, eng_error* error) {
  Adam made{};
  if (eng_status s = options->get_float(options, "beta1", &made.beta1, error)) return s;
  if (eng_status s = options->get_float(options, "beta2", &made.beta2, error)) return s;
  if (eng_status s = options->get_float(options, "eps", &made.eps, error)) return s;
  // This checks what the description cannot say.
  if (made.beta1 * made.beta1 > made.beta2)
    return fail(error, ENG_INVALID, "beta1 squared is above beta2: Adam then diverges; raise beta2 or lower beta1");
  Adam* kept = new (std::nothrow) Adam(made);
  if (!kept) return fail(error, ENG_NO_MEMORY, "out of memory");
  *self = kept;
  return ENG_OK;
}

void destroy(void* self) {
  delete static_cast<Adam*>(self);
}

// One value per element each. Checkpoints store them as PARAMETER.exp_avg and PARAMETER.exp_avg_sq.
eng_status states(void*, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < 2) return fail(error, ENG_OUT_OF_RANGE, "there is no room for two states");
  out[0].name = "exp_avg", out[0].dtype = ENG_F32;
  out[1].name = "exp_avg_sq", out[1].dtype = ENG_F32;
  *n = 2;
  return ENG_OK;
}

// The scalars that eng.adamw/1 reads for update k beside the learning rate: engine/ops.h.
eng_status scalars(void* self, uint64_t k, float* out, uint32_t cap, uint32_t* n, eng_error* error) {
  const Adam& adam = *static_cast<const Adam*>(self);
  if (cap < 2) return fail(error, ENG_OUT_OF_RANGE, "there is no room for two scalars");
  const double step = static_cast<double>(k);
  out[0] = static_cast<float>(1 - std::pow(adam.beta1, step));
  out[1] = static_cast<float>(std::sqrt(1 - std::pow(adam.beta2, step)));
  *n = 2;
  return ENG_OK;
}

eng_status update(void* self, eng_build* b, const eng_update* run, eng_error* error) {
  const Adam& adam = *static_cast<const Adam*>(self);
  double decay = 0;
  // The parameters of a run have equal options, so those of the first one count.
  if (run->n_ranges > 0 && !(run->flags & ENG_PARAM_NO_DECAY)) {
    const eng_options* own = run->ranges[0].parameter->options;
    if (eng_status s = own->get_float(own, "weight_decay", &decay, error)) return s;
  }
  const eng_attr attrs[] = {
      {"beta1", 0, adam.beta1}, {"beta2", 0, adam.beta2}, {"eps", 0, adam.eps}, {"weight_decay", 0, decay}};
  const eng_id in[] = {run->master, run->grad, run->states[0], run->states[1], run->scalars};
  eng_id out[] = {run->master, run->states[0], run->states[1]};  // in place
  return b->api->emit(b, ENG_OP_ADAMW, in, 5, out, 3, attrs, 4, error);
}

constexpr eng_optimizer make_table() {
  eng_optimizer table{};
  table.struct_size = sizeof table;
  table.granularity = 1;  // each element by itself
  table.create = create;
  table.destroy = destroy;
  table.states = states;
  table.scalars = scalars;
  table.update = update;
  return table;
}
constexpr eng_optimizer table = make_table();

const char* describe() {
  return eng_description;
}

eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}

void stop() {}

const void* get_interface(const char* kind, const char* name) {
  return !std::strcmp(kind, ENG_OPTIMIZER_KIND) && !std::strcmp(name, "my_thing") ? &table : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
