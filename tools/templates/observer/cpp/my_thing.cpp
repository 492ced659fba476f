// SPDX-License-Identifier: Apache-2.0
// An observer: it reads values of a step and makes numbers of them, which go to metrics.jsonl. Its ops are part of the
// plan, it changes nothing, and none of its functions runs during a step. Here: how large the updates of each block
// are, and how large the weights of the whole model. Between steps it may act: here it shows what the model writes.
#include <cstring>
#include <new>
#include <string>

#include "engine/observer.h"
#include "engine/ops.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(R"(
[plugin]
id = 'org.example.my_thing'
name = 'my_thing'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'an observer'

[[provides]]
kind = ')" ENG_OBSERVER_DRAFT R"('
name = 'my_thing'
summary = 'norms of updates, by block, and of the weights'

[provides.options]
weights = { type = 'bool', default = true, help = 'the norm of all weights as well' }
text_every = { type = 'int', default = 0, min = 0, help = 'steps between texts, which need sample_length = 64; 0: none' }
)")

namespace {

struct Observer {
  int32_t weights;
  int64_t text_every;
  std::string name;  // of the last result; the host reads it until the next call
};

eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, std::strlen(text));
  return status;
}

eng_status create(const eng_options* options, void** self, eng_error* error) {
  int32_t weights = 0;
  int64_t text_every = 0;
  if (eng_status s = options->get_bool(options, "weights", &weights, error)) return s;
  if (eng_status s = options->get_int(options, "text_every", &text_every, error)) return s;
  Observer* made = new (std::nothrow) Observer{weights, text_every, ""};
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  *self = made;
  return ENG_OK;
}

void destroy(void* self) {
  delete static_cast<Observer*>(self);
}

// Called for every site of a step. Results of one name are combined: over sites, micro-batches and ranks. A norm is a
// sum of squares until then, and the host shows its root.
eng_status results(void* self, const eng_site* site, eng_result* out, uint32_t, uint32_t* n, eng_error* error) {
  Observer& me = *static_cast<Observer*>(self);
  const bool update = site->what == ENG_SITE_UPDATE;
  if (!update && !(site->what == ENG_SITE_PARAMETER && me.weights)) return ENG_OK;  // *n is 0: not observed
  try {
    me.name = update ? std::string("update_norm.") + site->block : "weight_norm";
  } catch (const std::bad_alloc&) {  // no exception may leave the plugin
    return fail(error, ENG_NO_MEMORY, "out of memory");
  }
  out[0] = {me.name.c_str(), ENG_COMBINE_SUM, ENG_RESULT_SQRT};
  *n = 1;
  return ENG_OK;
}

// (n) -> (n / 4096) sums of squares -> their sum (1)
eng_status observe(void*, eng_build* b, const eng_site* site, eng_id* out, uint32_t, eng_error* error) {
  eng_desc sums{};
  const eng_id squares = eng_emit1(b, ENG_OP_SUM_SQUARES, &site->value, 1, nullptr, 0);
  b->api->shape(b, squares, &sums, nullptr);
  const eng_attr rows = {"rows", sums.dims[0], 0};
  out[0] = eng_emit1(b, ENG_OP_FOLD, &squares, 1, &rows, 1);
  return b->api->status(b, error);
}

// After every step, on the first rank. The weights of the step continue a text; its memory is planned where the user
// sets `sample_length` in [[observers]].
eng_status after_step(void* self, const eng_step_done* step, eng_step_reply* reply, eng_error* error) {
  const Observer& me = *static_cast<Observer*>(self);
  if (!me.text_every || step->step % me.text_every) return ENG_OK;
  eng_sample asked{};
  asked.struct_size = sizeof asked;
  asked.prompt = "The ";
  asked.tokens = 32;
  asked.temperature = 0.8;
  asked.seed = 1;
  eng_sampled text{};
  text.struct_size = sizeof text;
  if (eng_status s = step->sample(step, &asked, &text, error)) return s;
  reply->text = text.text;  // a line for the user
  return ENG_OK;
}

constexpr eng_observer make_table() {
  eng_observer table{};
  table.struct_size = sizeof table;
  table.create = create;
  table.destroy = destroy;
  table.results = results;
  table.observe = observe;
  table.after_step = after_step;
  return table;
}
constexpr eng_observer table = make_table();

const char* describe() {
  return eng_description;
}

eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}

void stop() {}

const void* get_interface(const char* kind, const char* name) {
  return !std::strcmp(kind, ENG_OBSERVER_KIND) && !std::strcmp(name, "my_thing") ? &table : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
