// SPDX-License-Identifier: Apache-2.0
#include "strategy.hpp"

#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <new>

#include "../common/error.hpp"
#include "../common/plugin.hpp"
#include "engine/ops.h"

namespace zero {
namespace {

struct Object {
  eng_part part{};  // the ranks that share the states, and which range of a piece is this one's
  eng_id part_id = 0;
  bool fast = false;
};

using common::report;

eng_status create(const eng_options* options, eng_build* b, void** self, eng_error* error) {
  int32_t fast = 0;
  if (eng_status s = options->get_bool(options, "fast", &fast, error)) return s;
  Object made;
  made.fast = fast != 0;
  made.part.struct_size = sizeof(eng_part);
  made.part.group = 1;  // all ranks
  if (eng_status s = b->api->world(b, &made.part.index, &made.part.count, error)) return s;
  if (eng_status s = b->api->part(b, &made.part, &made.part_id, error)) return s;
  Object* kept = new (std::nothrow) Object(made);
  if (!kept) return report(error, ENG_NO_MEMORY, "out of memory");
  *self = kept;
  return ENG_OK;
}

void destroy(void* self) {
  delete static_cast<Object*>(self);
}

eng_status place(void* self, const eng_unit*, int32_t r, eng_view* io, eng_error*) {
  const bool known = r > 0 && r < 32;
  io->part = known && (strategy.parted & role(r)) ? static_cast<Object*>(self)->part_id : 0;
  return ENG_OK;
}

// One op with one input. out = 0: into a new value.
eng_status emit(eng_build* b, const char* op, eng_id in, eng_id* out, std::initializer_list<eng_attr> attrs,
                eng_error* error) {
  return b->api->emit(b, op, &in, 1, out, 1, attrs.begin(), static_cast<uint32_t>(attrs.size()), error);
}

eng_status collect(const Object& o, eng_build* b, const char* op, eng_id in, eng_id* out, eng_error* error) {
  return emit(b, op, in, out, {{"group", o.part.group, 0}}, error);
}

// The sum over ranks of this rank's range. Every rank sends each other rank that rank's range; then each adds up the
// ranges it received, in the order of the ranks and in the type of the sum. The library's own sum has the type of what
// it adds.
eng_status sum_part(const Object& o, eng_build* b, const eng_move* m, eng_error* error) {
  eng_id moved = 0, dst = m->dst;
  const bool widens = m->from->dtype != m->to->dtype;
  if (o.fast && !widens) return collect(o, b, ENG_OP_REDUCE_SCATTER, m->src, &dst, error);
  const char* op = o.fast ? ENG_OP_REDUCE_SCATTER : ENG_OP_ALL_TO_ALL;
  if (eng_status s = collect(o, b, op, m->src, &moved, error)) return s;
  const eng_attr dtype = {"dtype", m->to->dtype, 0};
  if (o.fast) return emit(b, ENG_OP_CAST, moved, &dst, {dtype}, error);
  return emit(b, ENG_OP_FOLD, moved, &dst, {{"rows", o.part.count, 0}, dtype}, error);
}

eng_status move(void* self, eng_build* b, const eng_move* m, eng_error* error) {
  const Object& o = *static_cast<Object*>(self);
  const eng_id own = o.part_id, from = m->from->part, to = m->to->part;
  eng_id dst = m->dst;
  if (m->role == ENG_ROLE_GRAD && from == 0 && to == own) return sum_part(o, b, m, error);
  const bool kept =
      m->role == ENG_ROLE_WEIGHT || m->role == ENG_ROLE_MASTER || m->role == ENG_ROLE_STATE || m->role == ENG_ROLE_GRAD;
  if (kept && from == own && to == 0) return collect(o, b, ENG_OP_ALL_GATHER, m->src, &dst, error);
  char text[200];
  std::snprintf(text, sizeof text,
                "%s gathers what it keeps in parts, and sums gradients over ranks; it cannot take role %d from part "
                "%u to part %u (0: whole, its own part: %u)",
                strategy.name, static_cast<int>(m->role), from, to, own);
  return report(error, ENG_UNSUPPORTED, text);
}

const eng_axis table = {.struct_size = sizeof(eng_axis),
                        .minor = 0,
                        .create = create,
                        .destroy = destroy,
                        .place = place,
                        .move = move,
                        .states = nullptr,
                        .update = nullptr,
                        .flags = 0,
                        .reserved = 0,
                        .begin = nullptr};

const char* describe() {
  return strategy.description;
}

const void* get_interface(const char* kind, const char* name) {
  return std::strcmp(kind, ENG_ZERO_KIND) == 0 && std::strcmp(name, strategy.name) == 0 ? &table : nullptr;
}

const eng_plugin plugin = common::plain_plugin(describe, get_interface);

}  // namespace
}  // namespace zero

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &zero::plugin;
}
