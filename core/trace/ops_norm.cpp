// SPDX-License-Identifier: Apache-2.0
// layer_norm and its gradient: shapes, backward.
#include "core/autograd/gradient.hpp"
#include "core/trace/shapes.hpp"
#include "core/trace/stepping.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

std::string layer_norm(Shapes in, const Attrs&, Out& out) {
  if (in[0].ndim < 2) return "x must be (..., H)";
  for (size_t k : {1, 2})
    if (given(in, k) && (in[k].ndim != 1 || in[k].dims[0] != last(in[0]))) return "w and bias must be (H)";
  if (given(in, 2) && !given(in, 1)) return "a bias needs a weight";
  if (given(in, 3) && !same(in[0], in[3])) return "residual must have the shape of x";
  out.push_back(in[0]);
  out.push_back(with_last(in[0], 2));
  out.back().dtype = wide(in[0].dtype);
  if (given(in, 3)) out.push_back(in[0]);
  return "";
}

void layer_norm_grad_rule(Gradient& g) {
  bool residual = g.in(3) != 0;
  if (!g.d_out(0)) {  // only the sum is used
    if (g.wants(0)) g.give(0, g.d_out(2));
    if (g.wants(3)) g.give(3, g.d_out(2));
    return;
  }
  // With a residual the norm reads s, and the gradient of s joins that of both summands.
  Id s = residual ? g.out(2) : g.in(0), into = residual ? g.own_d_out(2) : g.take(0);
  Id dw = g.take(1), dbias = g.in(2) == g.in(1) ? 0 : g.take(2);  // one parameter may be both
  auto d = g.emit(ENG_OP_LAYER_NORM_GRAD, {g.d_out(0), s, g.in(1), g.out(1), into, dw, dbias},
                  {{{"bias", g.in(2) != 0, 0}}});
  Id dx = residual && !into && g.d_out(2) ? g.emit(ENG_OP_ADD, {d[0], g.d_out(2)}, {})[0] : d[0];
  if (g.wants(0)) g.give(0, dx);
  if (residual && g.wants(3)) g.give(3, dx);
  if (g.wants(1)) g.give(1, d[1]);
  if (g.wants(2)) g.give(2, d[2]);
}

std::vector<uint32_t> layer_norm_rebuild(const Node& node) {
  auto in = [&](size_t k) { return k < node.in.size() ? node.in[k] : 0; };
  std::vector<uint32_t> from = {in(3) ? node.out[2] : in(0)};
  for (size_t k : {1, 2})
    if (in(k)) from.push_back(in(k));
  return from;
}

std::string layer_norm_grad(Shapes in, const Attrs& attrs, Out& out) {
  if (!same(in[0], in[1])) return "dy and s must have one shape";
  out.push_back(in[0]);
  if (given(in, 2)) out.push_back(in[2]);
  if (attrs.i("bias")) out.push_back(in[2]);
  return "";
}

}  // namespace

std::span<const Op> norm_ops() {
  static const Op ops[] = {
      {.id = ENG_OP_LAYER_NORM,
       .min_in = 1,
       .max_in = 4,
       .infer = layer_norm,
       .in_place = {{2, 3, false}, {2, 0, false}},
       .grad = layer_norm_grad_rule,
       .step = by_position,
       .rebuild = layer_norm_rebuild},
      {.id = ENG_OP_LAYER_NORM_GRAD,
       .min_in = 2,
       .max_in = 7,
       .infer = layer_norm_grad,
       .in_place = {{0, 4, true}, {1, 5, true}, {2, 6, true}}},
  };
  return ops;
}

}  // namespace eng
