// SPDX-License-Identifier: Apache-2.0
// The position of a token: eng.rope/1, which turns, and eng.positions/1, which adds rows of a table.
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

std::string rope(const Call& c, Descs& out) {
  const eng_desc &x = c.in(0), &table = c.in(1);
  const int64_t heads = c.i("heads");
  if (x.ndim != 3 || heads < 1 || last(x) % heads) return "x must be (B, T, heads*D)";
  const int64_t d = last(x) / heads;
  if (d % 2) return "the head size must be even";
  if (table.ndim != 2 || table.dims[0] < x.dims[1] || table.dims[1] != d) return "table must be (T or more, D)";
  if (!numbers_tokens(c, 2, x)) return "positions must be (B, T) i32";
  return as_inputs<0>(c, out);
}

void rope_backward(Gradient& g) {
  Attrs attrs = g.attrs();
  for (eng_attr& a : attrs)
    if (std::strcmp(a.key, "inverse") == 0) a.i = 1 - a.i;
  Ids in = {g.d_out(0), g.in(1)};
  if (g.in(2)) in.push_back(g.in(2));
  if (g.wants(0)) g.give(0, g.emit(ENG_OP_ROPE, in, attrs));
}

void rope_next(Stepping& s) {
  one_document(s, ENG_OP_ROPE, 2);
  s.give(0, s.emit(ENG_OP_ROPE_STEP, {s.in(0), s.in(1), s.counters()}, s.attrs()));
}

std::string rope_step(const Call& c, Descs& out) {
  const eng_desc &x = c.in(0), &table = c.in(1);
  const int64_t heads = c.i("heads");
  if (x.ndim != 3 || heads < 1 || table.ndim != 2 || x.dims[2] != heads * table.dims[1] || x.dims[1] > table.dims[0])
    return "x (B, n, heads*D) needs a table (T, D) with T >= n";
  return as_inputs<0>(c, out);
}

std::string positions(const Call& c, Descs& out) {
  const eng_desc &x = c.in(0), &table = c.in(1);
  if (x.ndim != 3 || table.ndim != 2 || last(x) != last(table)) return "x (B, T, H) needs table (P, H)";
  if (c.i("offset") < 0 || x.dims[1] + c.i("offset") > table.dims[0]) return "the table has fewer rows than positions";
  if (!numbers_tokens(c, 3, x)) return "positions must be (B, T) i32";
  if (c.has(2) && c.has(3)) return "counters and positions exclude each other";
  return as_inputs<0>(c, out);
}

void positions_backward(Gradient& g) {
  if (g.wants(0)) g.give(0, g.d_out(0));
  if (!g.wants(1)) return;
  Attrs attrs = g.attrs();
  attrs.push_back({"rows", g.desc(g.in(1)).dims[0], 0});
  Ids in = {g.d_out(0), g.take(1)};
  if (g.in(3)) in.push_back(g.in(3));
  g.give(1, g.emit(ENG_OP_POSITIONS_GRAD, in, attrs));
}

void positions_next(Stepping& s) {
  one_document(s, ENG_OP_POSITIONS, 3);
  s.give(0, s.emit(ENG_OP_POSITIONS, {s.in(0), s.in(1), s.counters()}, s.attrs()));
}

std::string positions_grad(const Call& c, Descs& out) {
  const eng_desc& dy = c.in(0);
  if (dy.ndim != 3 || !numbers_tokens(c, 2, dy)) return "dy must be (B, T, H), positions (B, T) i32";
  out.push_back(make_desc(dy.dtype, {c.i("rows"), last(dy)}));
  return "";
}

const eng_in_place position_places[] = {may_take(0, 0)};
const eng_in_place positions_grad_places[] = {must_take(0, 1)};
const eng_index rope_rows[] = {{.ids = 2, .table = 1}};
const eng_index positions_rows[] = {{.ids = 3, .table = 1}};

}  // namespace

Family position_ops() {
  static const eng_op all[] = {
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_ROPE,
       .min_in = 2,
       .max_in = 3,
       .infer = infer<rope>,
       .grad = grad<rope_backward>,
       .in_place = position_places,
       .n_in_place = 1,
       .step = step<rope_next>,
       .indexes = rope_rows,
       .n_indexes = 1},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_ROPE_STEP,
       .min_in = 3,
       .max_in = 3,
       .infer = infer<rope_step>,
       .in_place = position_places,
       .n_in_place = 1},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_POSITIONS,
       .min_in = 2,
       .max_in = 4,
       .infer = infer<positions>,
       .grad = grad<positions_backward>,
       .in_place = position_places,
       .n_in_place = 1,
       .step = step<positions_next>,
       .indexes = positions_rows,
       .n_indexes = 1},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_POSITIONS_GRAD,
       .min_in = 1,
       .max_in = 3,
       .infer = infer<positions_grad>,
       .in_place = positions_grad_places,
       .n_in_place = 1,
       .sums = 1U << 0},
  };
  return all;
}

}  // namespace ops
