// SPDX-License-Identifier: Apache-2.0
// A precision policy: it says which number format each role of a state has, and emits the ops that convert. Here
// matrices are read in bf16, and everything else is f32.
#include <cstring>
#include <new>

#include "engine/ops.h"
#include "engine/plugin.h"
#include "engine/policy.h"

ENG_DESCRIPTION(R"(
[plugin]
id = 'org.example.my_thing'
name = 'my_thing'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'a precision policy'

[[provides]]
kind = ')" ENG_PRECISION_DRAFT R"('
name = 'my_thing'
summary = 'weights in bf16; masters, states and activations in f32'

[provides.options]
narrow_sums = { type = 'bool', default = false, help = 'gradients cross between ranks in bf16' }
)")

namespace {

struct Policy {
  int32_t narrow_sums;
};

eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, std::strlen(text));
  return status;
}

eng_status create(const eng_options* options, eng_build*, void** self, eng_error* error) {
  Policy made{};
  if (eng_status s = options->get_bool(options, "narrow_sums", &made.narrow_sums, error)) return s;
  Policy* kept = new (std::nothrow) Policy(made);
  if (!kept) return fail(error, ENG_NO_MEMORY, "out of memory");
  *self = kept;
  return ENG_OK;
}

void destroy(void* self) {
  delete static_cast<Policy*>(self);
}

// On entry io->dtype is f32. A model marks what must stay so: norms, for example. Activations have no unit.
eng_status place(void* self, const eng_unit* unit, int32_t role, eng_view* io, eng_error*) {
  const Policy& policy = *static_cast<const Policy*>(self);
  const bool stays = !unit || (unit->flags & ENG_PARAM_FP32);
  const bool narrow = role == ENG_ROLE_WEIGHT || (role == ENG_ROLE_PARTIAL && policy.narrow_sums);
  if (narrow && !stays) io->dtype = ENG_BF16;
  return ENG_OK;
}

// Called only where two homes differ in their dtype: the new weight from its master, the weight for a use in f32, and
// gradients before and after they cross.
eng_status move(void*, eng_build* b, const eng_move* m, eng_error* error) {
  const eng_attr dtype = {"dtype", m->to->dtype, 0};
  eng_id out = m->dst;
  return b->api->emit(b, ENG_OP_CAST, &m->src, 1, &out, 1, &dtype, 1, error);
}

constexpr eng_axis make_table() {
  eng_axis table{};
  table.struct_size = sizeof table;
  table.create = create;
  table.destroy = destroy;
  table.place = place;
  table.move = move;
  table.flags = ENG_AXIS_CASTS;  // an optimizer may write the bf16 weight itself: it would be the same
  return table;                  // states, update and begin are NULL: the policy remembers nothing
}
constexpr eng_axis table = make_table();

const char* describe() {
  return eng_description;
}

eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}

void stop() {}

const void* get_interface(const char* kind, const char* name) {
  return !std::strcmp(kind, ENG_PRECISION_KIND) && !std::strcmp(name, "my_thing") ? &table : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
