// SPDX-License-Identifier: Apache-2.0
// activation, scale, cast, positions, dropout and their gradients: shape and gradient rules.
#include "core/trace/gradient.hpp"
#include "core/trace/shapes.hpp"
#include "core/trace/stepping.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

std::string as_input(Shapes in, const Attrs&, Out& out) {
  return out.push_back(in[0]), "";
}

std::string activation(Shapes in, const Attrs& attrs, Out& out) {
  if (attrs.i("act") < ENG_ACT_SILU || attrs.i("act") > ENG_ACT_RELU) return "unknown activation";
  return as_input(in, attrs, out);
}

// The slope of relu follows from its output, which is usually kept anyway: the next matrix product reads it.
void activation_grad_rule(Gradient& g) {
  Id from = g.attrs().i("act") == ENG_ACT_RELU ? g.out(0) : g.in(0);
  if (g.wants(0)) g.give(0, g.emit(ENG_OP_ACTIVATION_GRAD, {g.d_out(0), from}, g.attrs())[0]);
}

std::string activation_grad(Shapes in, const Attrs& attrs, Out& out) {
  return same(in[0], in[1]) ? as_input(in, attrs, out) : "dy and x must have the same shape";
}

void scale_grad(Gradient& g) {
  if (g.wants(0)) g.give(0, g.emit(ENG_OP_SCALE, {g.d_out(0)}, g.attrs())[0]);
}

std::string cast(Shapes in, const Attrs& attrs, Out& out) {
  const auto dtype = static_cast<int32_t>(attrs.i("dtype"));
  if (!is_float(in[0].dtype) || !is_float(dtype)) return "converts between floating-point types only (attribute dtype)";
  out.push_back(in[0]);
  out.back().dtype = dtype;
  return "";
}

void cast_grad(Gradient& g) {
  if (g.wants(0)) g.give(0, g.emit(ENG_OP_CAST, {g.d_out(0)}, {{{"dtype", g.desc(0).dtype, 0}}})[0]);
}

std::string positions(Shapes in, const Attrs& attrs, Out& out) {
  if (in[0].ndim != 3 || in[1].ndim != 2 || last(in[0]) != last(in[1])) return "x (B, T, H) needs table (P, H)";
  if (attrs.i("offset") < 0 || in[0].dims[1] + attrs.i("offset") > in[1].dims[0])
    return "the table has fewer rows than positions";
  if (!numbers_tokens(in, 3, in[0])) return "positions must be (B, T) i32";
  if (given(in, 2) && given(in, 3)) return "counters and positions exclude each other";
  return as_input(in, attrs, out);
}

void positions_grad_rule(Gradient& g) {
  if (g.wants(0)) g.give(0, g.d_out(0));
  if (!g.wants(1)) return;
  Attrs attrs = g.attrs();
  attrs.list.push_back({"rows", g.desc(1).dims[0], 0});
  std::vector<Id> in = {g.d_out(0), g.take(1)};
  if (g.in(3)) in.push_back(g.in(3));
  g.give(1, g.emit(ENG_OP_POSITIONS_GRAD, std::move(in), attrs)[0]);
}

void positions_step(Stepping& s) {
  one_document(s, 3);
  s.give(0, s.emit(ENG_OP_POSITIONS, {s.in(0), s.in(1), s.counters()}, s.attrs())[0]);
}

std::string positions_grad(Shapes in, const Attrs& attrs, Out& out) {
  if (in[0].ndim != 3 || !numbers_tokens(in, 2, in[0])) return "dy must be (B, T, H), positions (B, T) i32";
  return out.push_back(make_desc(in[0].dtype, {attrs.i("rows"), last(in[0])})), "";
}

std::string dropout(Shapes in, const Attrs& attrs, Out& out) {
  if (in[0].ndim < 1) return "x must be (B, ...)";
  if (!(attrs.f("p") >= 0 && attrs.f("p") < 1)) return "p must be at least 0 and below 1";
  return as_input(in, attrs, out);
}

void dropout_grad(Gradient& g) {
  if (g.wants(0)) g.give(0, g.emit(ENG_OP_DROPOUT, {g.d_out(0)}, g.attrs())[0]);
}

}  // namespace

std::span<const Op> elementwise_ops() {
  static const std::vector<InPlace> same_memory = {{0, 0, false}};
  static const Op ops[] = {
      {.id = ENG_OP_ACTIVATION,
       .min_in = 1,
       .max_in = 1,
       .infer = activation,
       .in_place = same_memory,
       .grad = activation_grad_rule,
       .step = by_position,
       .rebuild = [](const Node& node) { return node.in; }},
      {.id = ENG_OP_ACTIVATION_GRAD,
       .min_in = 2,
       .max_in = 2,
       .infer = activation_grad,
       .in_place = {{0, 0, false}, {0, 1, false}}},
      {.id = ENG_OP_SCALE,
       .min_in = 1,
       .max_in = 1,
       .infer = as_input,
       .in_place = same_memory,
       .grad = scale_grad,
       .step = by_position},
      {.id = ENG_OP_CAST, .min_in = 1, .max_in = 1, .infer = cast, .grad = cast_grad, .step = by_position},
      {.id = ENG_OP_POSITIONS,
       .min_in = 2,
       .max_in = 4,
       .infer = positions,
       .in_place = same_memory,
       .grad = positions_grad_rule,
       .step = positions_step},
      {.id = ENG_OP_POSITIONS_GRAD,
       .min_in = 1,
       .max_in = 3,
       .infer = positions_grad,
       .in_place = {{0, 1, true}},
       .sums = 1U << 0},
      {.id = ENG_OP_DROPOUT,
       .min_in = 1,
       .max_in = 1,
       .infer = dropout,
       .in_place = same_memory,
       .grad = dropout_grad,
       .step = [](Stepping& s) { s.give(0, s.in(0)); },
       .random = true},
  };
  return ops;
}

}  // namespace eng
