// SPDX-License-Identifier: Apache-2.0
// eng.add/1, eng.scale/1, eng.cast/1 and eng.dropout/1, whose gradients are ops of the same kind.
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

// A 16-bit value may be added to an f32 one. The sum then is f32.
std::string add(const Call& c, Descs& out) {
  const eng_desc &a = c.in(0), &b = c.in(1);
  const bool first = a.dtype == b.dtype || a.dtype == wide(b.dtype);
  eng_desc sum = first ? a : b, other = first ? b : a;
  if (sum.dtype == wide(other.dtype)) other.dtype = sum.dtype;
  if (!same(sum, other)) return "both inputs must have the same shape";
  out.push_back(sum);
  return "";
}

void add_backward(Gradient& g) {
  for (uint32_t k : {0u, 1u}) {
    if (!g.wants(k)) continue;
    const int64_t dtype = g.desc(g.in(k)).dtype;
    const bool cast = dtype != g.desc(g.d_out(0)).dtype;
    g.give(k, cast ? g.emit(ENG_OP_CAST, {g.d_out(0)}, {{"dtype", dtype, 0}}) : g.d_out(0));
  }
}

void scale_backward(Gradient& g) {
  if (g.wants(0)) g.give(0, g.emit(ENG_OP_SCALE, {g.d_out(0)}, g.attrs()));
}

std::string cast(const Call& c, Descs& out) {
  if (!is_float(c.in(0).dtype) || !is_float(c.i("dtype")))
    return "converts between floating-point types only (attribute dtype)";
  out.push_back(c.in(0));
  out[0].dtype = static_cast<int32_t>(c.i("dtype"));
  return "";
}

void cast_backward(Gradient& g) {
  if (g.wants(0)) g.give(0, g.emit(ENG_OP_CAST, {g.d_out(0)}, {{"dtype", g.desc(g.in(0)).dtype, 0}}));
}

std::string dropout(const Call& c, Descs& out) {
  if (c.in(0).ndim < 1) return "x must be (B, ...)";
  if (!(c.f("p") >= 0 && c.f("p") < 1)) return "p must be at least 0 and below 1";
  return as_inputs<0>(c, out);
}

void dropout_backward(Gradient& g) {
  if (g.wants(0)) g.give(0, g.emit(ENG_OP_DROPOUT, {g.d_out(0)}, g.attrs()));
}

void dropout_next(Stepping& s) {
  s.give(0, s.in(0));
}

const eng_in_place add_places[] = {may_take(0, 0), may_take(0, 1)};
const eng_in_place elementwise_places[] = {may_take(0, 0)};

}  // namespace

Family elementwise_ops() {
  static const eng_op all[] = {
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_BY_POSITION,
       .id = ENG_OP_ADD,
       .min_in = 2,
       .max_in = 2,
       .infer = infer<add>,
       .grad = grad<add_backward>,
       .in_place = add_places,
       .n_in_place = 2},
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_BY_POSITION,
       .id = ENG_OP_SCALE,
       .min_in = 1,
       .max_in = 1,
       .infer = infer<as_inputs<0>>,
       .grad = grad<scale_backward>,
       .in_place = elementwise_places,
       .n_in_place = 1},
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_BY_POSITION,
       .id = ENG_OP_CAST,
       .min_in = 1,
       .max_in = 1,
       .infer = infer<cast>,
       .grad = grad<cast_backward>},
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_RANDOM,
       .id = ENG_OP_DROPOUT,
       .min_in = 1,
       .max_in = 1,
       .infer = infer<dropout>,
       .grad = grad<dropout_backward>,
       .in_place = elementwise_places,
       .n_in_place = 1,
       .step = step<dropout_next>},
  };
  return all;
}

}  // namespace ops
