// SPDX-License-Identifier: Apache-2.0
// A ZeRO strategy: it says of which states a rank keeps only a part, and emits the collectives that gather and sum.
// Here masters, optimizer states and gradients lie in parts, and weights too, if `weights` is set.
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
summary = 'a ZeRO strategy'

[[provides]]
kind = ')" ENG_ZERO_DRAFT R"('
name = 'my_thing'
summary = 'each rank keeps a part of masters, states and gradients'

[provides.options]
weights = { type = 'bool', default = false, help = 'weights lie in parts too, and are gathered for each use' }
)")

namespace {

struct Strategy {
  eng_part part;   // which range of every piece this rank keeps
  eng_id part_id;  // as eng_view.part names it
  int32_t weights;
};

eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, std::strlen(text));
  return status;
}

// Rank r of W ranks keeps range r of W. Other layouts make groups of their own (eng_build_api.group) and more parts.
eng_status create(const eng_options* options, eng_build* b, void** self, eng_error* error) {
  Strategy made{};
  if (eng_status s = options->get_bool(options, "weights", &made.weights, error)) return s;
  made.part.struct_size = sizeof made.part;
  made.part.group = 1;  // all ranks
  if (eng_status s = b->api->world(b, &made.part.index, &made.part.count, error)) return s;
  if (eng_status s = b->api->part(b, &made.part, &made.part_id, error)) return s;
  Strategy* kept = new (std::nothrow) Strategy(made);
  if (!kept) return fail(error, ENG_NO_MEMORY, "out of memory");
  *self = kept;
  return ENG_OK;
}

void destroy(void* self) {
  delete static_cast<Strategy*>(self);
}

// A rank's own gradients and activations are always whole: every rank has its own sequences.
eng_status place(void* self, const eng_unit*, int32_t role, eng_view* io, eng_error*) {
  const Strategy& z = *static_cast<const Strategy*>(self);
  const bool in_parts = role == ENG_ROLE_MASTER || role == ENG_ROLE_STATE || role == ENG_ROLE_GRAD ||
                        (role == ENG_ROLE_WEIGHT && z.weights);
  io->part = in_parts ? z.part_id : 0;
  return ENG_OK;
}

// The sum over ranks of this rank's range: all_to_all brings it from every rank, and fold adds the rows up in the order
// of the ranks. So every strategy has the same sums, bit for bit.
eng_status sum(const Strategy& z, eng_build* b, const eng_move* m, eng_error* error) {
  const eng_attr group = {"group", z.part.group, 0};
  const eng_attr fold[] = {{"rows", z.part.count, 0}, {"dtype", m->to->dtype, 0}};
  eng_id rows = 0, out = m->dst;
  if (eng_status s = b->api->emit(b, ENG_OP_ALL_TO_ALL, &m->src, 1, &rows, 1, &group, 1, error)) return s;
  return b->api->emit(b, ENG_OP_FOLD, &rows, 1, &out, 1, fold, 2, error);
}

// engine/policy.h lists the moves that a strategy is asked for.
eng_status move(void* self, eng_build* b, const eng_move* m, eng_error* error) {
  const Strategy& z = *static_cast<const Strategy*>(self);
  const eng_id from = m->from->part, to = m->to->part;
  if (m->role == ENG_ROLE_GRAD && from == 0 && to == z.part_id) return sum(z, b, m, error);
  if (from == z.part_id && to == 0) {
    const eng_attr group = {"group", z.part.group, 0};
    eng_id out = m->dst;
    return b->api->emit(b, ENG_OP_ALL_GATHER, &m->src, 1, &out, 1, &group, 1, error);
  }
  return fail(error, ENG_UNSUPPORTED, "my_thing sums gradients into parts, and gathers parts; nothing else");
}

constexpr eng_axis make_table() {
  eng_axis table{};
  table.struct_size = sizeof table;
  table.create = create;
  table.destroy = destroy;
  table.place = place;
  table.move = move;
  return table;
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
  return !std::strcmp(kind, ENG_ZERO_KIND) && !std::strcmp(name, "my_thing") ? &table : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
