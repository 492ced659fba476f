// SPDX-License-Identifier: Apache-2.0
#include "strategy.hpp"

#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "../common/error.hpp"
#include "moves.hpp"

namespace zero {
namespace {

constexpr uint32_t role(int32_t r) {
  return uint32_t{1} << r;
}

struct Strategy {
  const char* name;
  uint32_t parted;   // the roles of which a rank keeps a part
  uint32_t grouped;  // of these, the roles whose part is one within a group; 0: there are no groups
};

// Replicated data parallel: every rank keeps everything and does the whole update. Only reduced gradients are kept in
// parts until the update. A micro-batch therefore moves as many bytes as with the other strategies, and a step needs
// one more gather.
constexpr Strategy none = {"none", role(ENG_ROLE_GRAD), 0};

// The rank that has summed a range of the gradient updates that range, and the new weights are gathered.
constexpr Strategy zero2 = {"zero2", role(ENG_ROLE_MASTER) | role(ENG_ROLE_STATE) | role(ENG_ROLE_GRAD), 0};

// After zero2's sum the other ranges are not needed, so keeping them, as the name ZeRO 1 suggests, would waste memory.
// This is therefore the same program under the name that people look for, whatever [train] reduce says.
constexpr Strategy zero1 = {"zero1", zero2.parted, 0};

// Weights are gathered for each use and dropped after it. The update writes the part that is kept.
constexpr Strategy zero3 = {"zero3", zero2.parted | role(ENG_ROLE_WEIGHT), 0};

// Weights cross groups once per step, when the update has made them; each use gathers them within a group.
constexpr Strategy hpz = {"hpz", zero3.parted, role(ENG_ROLE_WEIGHT)};

// A group has everything, and only sums of gradients cross groups.
constexpr Strategy mics = {"mics", zero3.parted, zero3.parted};

struct Object {
  const Strategy& strategy;
  Level all;    // of what is kept in parts of all ranks
  Level inner;  // the neighbours of a group; one rank without groups
  Level outer;  // the ranks with the same index in all groups; all ranks without groups
  eng_id part = 0, group_part = 0;
  bool fast = false;
  Form sum = Form::exact, gather = Form::exact;
  eng_id part_of(int32_t r) const {
    if (r <= 0 || r >= 32 || !(strategy.parted & role(r))) return 0;
    return strategy.grouped & role(r) ? group_part : part;
  }
  // Sums cross in another form, so that some of a gradient stays behind.
  bool leaves() const { return sum != Form::exact && outer.members > 1; }
  // Weights cross in another form.
  bool rounds() const { return gather != Form::exact && (crosses() ? outer.members : weights().members) > 1; }
  // Weights come from other groups by a move of their own, and that is the one with another form.
  bool crosses() const { return group_part && part_of(ENG_ROLE_MASTER) != part_of(ENG_ROLE_WEIGHT); }
  const Level& weights() const { return strategy.grouped & role(ENG_ROLE_WEIGHT) ? inner : all; }
};

using common::report;

eng_status refuse(eng_error* error, eng_status status, const char* name, const std::string& text) {
  return report(error, status, std::string(name) + ": " + text);
}

eng_status get_form(const eng_options* options, const char* key, Form* out, eng_error* error) {
  const char* word = nullptr;
  if (eng_status s = options->get_string(options, key, &word, error)) return s;
  *out = std::strcmp(word, "int8") == 0 ? Form::int8 : std::strcmp(word, "bf16") == 0 ? Form::bf16 : Form::exact;
  return ENG_OK;
}

// Every rank makes all groups of a kind, in the same order, and remembers its own.
eng_status make_groups(eng_build* b, Level* own, uint32_t number, uint32_t count, uint32_t first, uint32_t step,
                       eng_error* error) {
  std::vector<uint32_t> ranks(own->members);
  for (uint32_t k = 0; k < count; ++k) {
    eng_id id = 0;
    for (uint32_t j = 0; j < own->members; ++j) ranks[j] = k * first + j * step;
    if (eng_status s = b->api->group(b, ranks.data(), own->members, &id, error)) return s;
    if (k == number) own->group = id;
  }
  return ENG_OK;
}

// The option `group`, or where it is 0 the largest of 8, 4, 2 and 1 that divides the ranks.
eng_status divide(const eng_options* options, Object& o, eng_build* b, uint32_t rank, uint32_t size, eng_error* error) {
  int64_t n = 0;
  if (eng_status s = options->get_int(options, "group", &n, error)) return s;
  if (n == 0)
    for (n = 8; size % n != 0;) n /= 2;
  if (n < 0 || n > size || size % n != 0)
    return refuse(error, ENG_INVALID, o.strategy.name,
                  std::to_string(size) + " ranks are no multiple of zero.group = " + std::to_string(n) +
                      "; set it to a divisor of " + std::to_string(size) + ", mostly the ranks of a node");
  const auto members = static_cast<uint32_t>(n), groups = size / members;
  o.inner = {members, rank % members, 0};
  o.outer = {groups, rank / members, 0};
  if (eng_status s = make_groups(b, &o.inner, o.outer.index, groups, members, 1, error)) return s;
  if (eng_status s = make_groups(b, &o.outer, o.inner.index, members, 1, members, error)) return s;
  const eng_part part = {sizeof(eng_part), members, o.inner.index, o.inner.group};
  if (eng_status s = b->api->part(b, &part, &o.group_part, error)) return s;
  o.all.index = o.inner.index * groups + o.outer.index;  // so that a rank's part lies in its group's part
  return ENG_OK;
}

template <const Strategy& S>
eng_status create(const eng_options* options, eng_build* b, void** self, eng_error* error) {
  int32_t fast = 0;
  Object o{.strategy = S, .all = {}, .inner = {}, .outer = {}};
  if (eng_status s = options->get_bool(options, "fast", &fast, error)) return s;
  if (eng_status s = get_form(options, "sum", &o.sum, error)) return s;
  if (S.parted & role(ENG_ROLE_WEIGHT))
    if (eng_status s = get_form(options, "gather", &o.gather, error)) return s;
  o.fast = fast != 0;
  if (o.fast && o.sum != Form::exact)
    return refuse(
        error, ENG_INVALID, S.name,
        "comm.reduce = \"fast\" leaves the sums of gradients to the communicator, which has none of zero.sum; "
        "remove one of the two");
  if (eng_status s = b->api->world(b, &o.all.index, &o.all.members, error)) return s;
  o.all.group = 1;
  o.outer = o.all;
  if (S.grouped)
    if (eng_status s = divide(options, o, b, o.all.index, o.all.members, error)) return s;
  if (S.parted != S.grouped) {
    const eng_part part = {sizeof(eng_part), o.all.members, o.all.index, o.all.group};
    if (eng_status s = b->api->part(b, &part, &o.part, error)) return s;
  }
  Object* kept = new (std::nothrow) Object(o);
  if (!kept) return report(error, ENG_NO_MEMORY, "out of memory");
  *self = kept;
  return ENG_OK;
}

void destroy(void* self) {
  delete static_cast<Object*>(self);
}

eng_status place(void* self, const eng_unit*, int32_t r, eng_view* io, eng_error*) {
  const Object& o = *static_cast<Object*>(self);
  io->part = r == ENG_ROLE_RESIDUAL ? o.group_part : o.part_of(r);
  return ENG_OK;
}

eng_status flags_of(void* self, uint32_t* flags, eng_error*) {
  const Object& o = *static_cast<Object*>(self);
  *flags = (o.leaves() || o.rounds() ? ENG_AXIS_LOSSY : 0) | (o.leaves() ? ENG_AXIS_RESIDUAL : 0);
  return ENG_OK;
}

// The sum over ranks of the range that this rank keeps: within the group, then across groups. What crosses groups is in
// the form of the option, and all is without groups.
eng_status sum(const Object& o, eng_build* b, const eng_move* m, eng_error* error) {
  Ops ops(b, error);
  eng_id x = m->src, dst = m->dst, mine = 0;
  int32_t from = m->from->dtype;
  const int32_t to = m->to->dtype;
  const bool whole = m->to->part == o.group_part && o.group_part;  // each group keeps the sum
  if (o.group_part) {
    if (o.outer.members == 1) mine = dst;
    ops.sum(o.inner, o.fast, x, from, to, &mine);
    if (o.outer.members == 1) return ops.status();
    x = mine, from = to;
  }
  if (o.leaves() && from == ENG_BF16 && o.sum == Form::bf16)
    return refuse(error, ENG_UNSUPPORTED, o.strategy.name,
                  "these gradients are made in bf16, so zero.sum = \"bf16\" changes nothing; remove it, or set it to "
                  "\"int8\"");
  eng_id out = whole ? 0 : dst;
  if (o.leaves())
    ops.narrow_sum(o.outer, o.sum, x, from, m->residual, to, &out);
  else
    ops.sum(o.outer, o.fast, x, from, to, &out);
  if (whole) ops.gather(o.outer, out, &dst);
  return ops.status();
}

eng_status move(void* self, eng_build* b, const eng_move* m, eng_error* error) {
  const Object& o = *static_cast<Object*>(self);
  const eng_id from = m->from->part, to = m->to->part;
  eng_id dst = m->dst;
  if (m->role == ENG_ROLE_GRAD && from == 0 && to && to == o.part_of(ENG_ROLE_GRAD)) return sum(o, b, m, error);
  const bool kept =
      m->role == ENG_ROLE_WEIGHT || m->role == ENG_ROLE_MASTER || m->role == ENG_ROLE_STATE || m->role == ENG_ROLE_GRAD;
  const bool narrow = m->role == ENG_ROLE_WEIGHT && o.rounds() && m->from->dtype != ENG_U8;  // packed ones are narrow
  Ops ops(b, error);
  if (kept && from && from == o.part && to == o.group_part && o.group_part) {
    if (narrow)
      ops.gather_int8(o.outer, m->src, m->from->dtype, &dst);
    else
      ops.gather(o.outer, m->src, &dst);
    return ops.status();
  }
  if (kept && from && from == o.group_part && to == 0) {
    if (narrow && !o.crosses())
      ops.gather_int8(o.inner, m->src, m->from->dtype, &dst);
    else
      ops.gather(o.inner, m->src, &dst);
    return ops.status();
  }
  if (kept && from && from == o.part && to == 0) {
    if (o.group_part)
      ops.gather(o.outer, o.inner, m->src, &dst);
    else if (narrow)
      ops.gather_int8(o.all, m->src, m->from->dtype, &dst);
    else
      ops.gather(o.all, m->src, &dst);
    return ops.status();
  }
  char text[200];
  std::snprintf(text, sizeof text,
                "%s gathers what it keeps in parts, and sums gradients over ranks; it cannot take role %d from part "
                "%u to part %u (0: whole, its own part: %u)",
                o.strategy.name, static_cast<int>(m->role), from, to, o.part ? o.part : o.group_part);
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
                            .begin = nullptr,
                            .flags_of = flags_of};

}  // namespace

const eng_axis* find(const char* name) {
  const auto is = [name](const Strategy& s) { return std::strcmp(name, s.name) == 0; };
  if (is(none)) return &table<none>;
  if (is(zero1)) return &table<zero1>;
  if (is(zero2)) return &table<zero2>;
  if (is(zero3)) return &table<zero3>;
  if (is(hpz)) return &table<hpz>;
  return is(mics) ? &table<mics> : nullptr;
}

}  // namespace zero
