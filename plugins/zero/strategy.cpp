// SPDX-License-Identifier: Apache-2.0
#include "strategy.hpp"

#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <new>

#include "../common/error.hpp"
#include "engine/ops.h"

namespace zero {
namespace {

constexpr uint32_t role(int32_t r) {
  return uint32_t{1} << r;
}

struct Strategy {
  const char* name;
  uint32_t parted;  // the roles of which a rank keeps a part
};

// Replicated data parallel: every rank keeps everything and does the whole update. Only reduced gradients are kept in
// parts until the update. A micro-batch therefore moves as many bytes as with the other strategies, and a step needs
// one more gather.
constexpr Strategy none = {"none", role(ENG_ROLE_GRAD)};

// The rank that has summed a range of the gradient updates that range, and the new weights are gathered.
constexpr Strategy zero2 = {"zero2", role(ENG_ROLE_MASTER) | role(ENG_ROLE_STATE) | role(ENG_ROLE_GRAD)};

// After zero2's sum the other ranges are not needed, so keeping them, as the name ZeRO 1 suggests, would waste memory.
// This is therefore the same program under the name that people look for, whatever [train] reduce says.
constexpr Strategy zero1 = {"zero1", zero2.parted};

// Weights are gathered for each use and dropped after it. The update writes the part that is kept.
constexpr Strategy zero3 = {"zero3", zero2.parted | role(ENG_ROLE_WEIGHT)};

struct Object {
  const Strategy& strategy;
  eng_part part{};  // the ranks that share the states, and which range of a piece is this one's
  eng_id part_id = 0;
  bool fast = false;
};

using common::report;

template <const Strategy& S>
eng_status create(const eng_options* options, eng_build* b, void** self, eng_error* error) {
  int32_t fast = 0;
  if (eng_status s = options->get_bool(options, "fast", &fast, error)) return s;
  Object made{S};
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
  const Object& o = *static_cast<Object*>(self);
  io->part = known && (o.strategy.parted & role(r)) ? o.part_id : 0;
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
                o.strategy.name, static_cast<int>(m->role), from, to, own);
  return report(error, ENG_UNSUPPORTED, text);
}

template <const Strategy& S>
constexpr eng_axis table = {.struct_size = sizeof(eng_axis),
                            .minor = 0,
                            .create = create<S>,
                            .destroy = destroy,
                            .place = place,
                            .move = move,
                            .states = nullptr,
                            .update = nullptr,
                            .flags = 0,
                            .reserved = 0,
                            .begin = nullptr};

}  // namespace

const eng_axis* find(const char* name) {
  if (std::strcmp(name, none.name) == 0) return &table<none>;
  if (std::strcmp(name, zero1.name) == 0) return &table<zero1>;
  if (std::strcmp(name, zero2.name) == 0) return &table<zero2>;
  return std::strcmp(name, zero3.name) == 0 ? &table<zero3> : nullptr;
}

}  // namespace zero
