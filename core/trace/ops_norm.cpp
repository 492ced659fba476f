// SPDX-License-Identifier: Apache-2.0
// rms_norm, layer_norm and their gradients: shape and gradient rules. Inputs: x, the parameters, [residual]. Outputs:
// y, statistics, [s = x + residual]. They differ in their parameters.
#include "core/trace/gradient.hpp"
#include "core/trace/shapes.hpp"
#include "core/trace/stepping.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

// `stats`: the shape of the statistics. What is normed may be f32 where the parameters have 16 bits; y then has 16
// bits. `residual`: the index of that input; parameters are inputs 1 to residual - 1.
std::string norm(Shapes in, uint32_t residual, eng_desc stats, Out& out) {
  for (uint32_t k = 1; k < residual; ++k)
    if (given(in, k) && (in[k].ndim != 1 || in[k].dims[0] != last(in[0])))
      return "w and bias must be (H), H the last dimension of x";
  if (given(in, residual) && !same(in[0], in[residual])) return "residual must have the shape of x";
  stats.dtype = wide(in[0].dtype);
  out = {in[0], stats};
  if (given(in, 1) && in[0].dtype == wide(in[1].dtype)) out[0].dtype = in[1].dtype;
  if (given(in, residual)) out.push_back(in[0]);
  return "";
}

std::string rms_norm(Shapes in, const Attrs&, Out& out) {
  if (in[0].ndim < 2) return "x must be (..., H)";
  eng_desc rstd = in[0];
  return rstd.ndim -= 1, norm(in, 2, rstd, out);
}

std::string layer_norm(Shapes in, const Attrs&, Out& out) {
  if (in[0].ndim < 2) return "x must be (..., H)";
  if (given(in, 2) && !given(in, 1)) return "a bias needs a weight";
  return norm(in, 3, with_last(in[0], 2), out);
}

// The norm reads s = x + residual, or x if there is no residual.
// Inputs of the gradient op: dy, what the norm read, weight, statistics, then the gradients so far, to which it adds:
// of what the norm read, and of each parameter. Outputs: the gradients of what the norm read and of each parameter.
void norm_grad(Gradient& g, const char* op, uint32_t residual, Attrs attrs) {
  const Id dy = g.d_out(0), d_sum = g.d_out(2);
  const auto give_summands = [&](Id gradient) {  // x and the residual have the gradient of their sum
    for (uint32_t summand : {0u, residual})
      if (g.wants(summand)) g.give(summand, gradient);
  };
  if (!dy) return give_summands(d_sum);  // nothing uses y
  const bool sum = g.in(residual) != 0;
  const Id read = sum ? g.out(2) : g.in(0);
  const Id so_far = sum ? g.own_d_out(2) : g.take(0);
  std::vector<Id> in = {dy, read, g.in(1), g.out(1), so_far};
  for (uint32_t k = 1; k < residual; ++k) {
    const bool again = k > 1 && g.in(k) == g.in(1);  // weight and bias may be the same parameter
    in.push_back(again ? 0 : g.take(k));
  }
  const std::vector<Id> gradients = g.emit(op, std::move(in), std::move(attrs));
  Id d_read = gradients[0];
  // Other ops use s as well, and their gradient could not be accumulated in place.
  if (sum && !so_far && d_sum) d_read = g.emit(ENG_OP_ADD, {d_read, d_sum}, {})[0];
  give_summands(d_read);
  for (uint32_t k = 1; k < residual; ++k)
    if (g.wants(k)) g.give(k, gradients[k]);
}

void rms_norm_grad_rule(Gradient& g) {
  norm_grad(g, ENG_OP_RMS_NORM_GRAD, 2, {});
}
void layer_norm_grad_rule(Gradient& g) {
  norm_grad(g, ENG_OP_LAYER_NORM_GRAD, 3, {{{"bias", g.in(2) != 0, 0}}});
}

// y can be computed again from what the norm read and the parameters.
template <uint32_t Residual>
std::vector<uint32_t> rebuild(const Node& node) {
  bool sum = node.in.size() > Residual && node.in[Residual];
  std::vector<uint32_t> from = {sum ? node.out[2] : node.in[0]};
  for (uint32_t k = 1; k < Residual && k < node.in.size(); ++k)
    if (node.in[k]) from.push_back(node.in[k]);
  return from;
}

std::string norm_grad_shapes(Shapes in, const Attrs& attrs, Out& out) {
  eng_desc dy = in[0];
  if (in[1].dtype == wide(dy.dtype)) dy.dtype = in[1].dtype;
  if (!same(dy, in[1])) return "dy and s must have the same shape";
  out.push_back(in[1]);
  if (given(in, 2)) out.insert(out.end(), attrs.i("bias") ? 2 : 1, in[2]);
  return "";
}

}  // namespace

std::span<const Op> norm_ops() {
  static const Op ops[] = {
      {.id = ENG_OP_RMS_NORM,
       .min_in = 2,
       .max_in = 3,
       .infer = rms_norm,
       .in_place = {{2, 2, false}, {2, 0, false}},
       .grad = rms_norm_grad_rule,
       .step = by_position,
       .rebuild = rebuild<2>},
      {.id = ENG_OP_RMS_NORM_GRAD,
       .min_in = 4,
       .max_in = 6,
       .infer = norm_grad_shapes,
       .in_place = {{0, 4, true}, {1, 5, true}},
       .sums = 1U << 1},
      {.id = ENG_OP_LAYER_NORM,
       .min_in = 1,
       .max_in = 4,
       .infer = layer_norm,
       .in_place = {{2, 3, false}, {2, 0, false}},
       .grad = layer_norm_grad_rule,
       .step = by_position,
       .rebuild = rebuild<3>},
      {.id = ENG_OP_LAYER_NORM_GRAD,
       .min_in = 2,
       .max_in = 7,
       .infer = norm_grad_shapes,
       .in_place = {{0, 4, true}, {1, 5, true}, {2, 6, true}},
       .sums = 1U << 1 | 1U << 2},
  };
  return ops;
}

}  // namespace eng
