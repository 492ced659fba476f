// SPDX-License-Identifier: Apache-2.0
// rms_norm, layer_norm and their gradients. Inputs: x, the parameters, [residual]. Outputs: y, statistics,
// [s = x + residual]. They differ in their parameters: inputs 1 to residual - 1, where `residual` is the number of that
// input.
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

// `stats`: the shape of the statistics. What is normed may be f32 where the parameters have 16 bits; y then has 16
// bits.
std::string norm(const Call& c, uint32_t residual, eng_desc stats, Descs& out) {
  const eng_desc& x = c.in(0);
  for (uint32_t k = 1; k < residual; ++k)
    if (c.has(k) && (c.in(k).ndim != 1 || c.in(k).dims[0] != last(x)))
      return "w and bias must be (H), H the last dimension of x";
  if (c.has(residual) && !same(x, c.in(residual))) return "residual must have the shape of x";
  stats.dtype = wide(x.dtype);
  out = {x, stats};
  if (c.has(1) && x.dtype == wide(c.in(1).dtype)) out[0].dtype = c.in(1).dtype;
  if (c.has(residual)) out.push_back(x);
  return "";
}

std::string rms_norm(const Call& c, Descs& out) {
  if (c.in(0).ndim < 2) return "x must be (..., H)";
  eng_desc rstd = c.in(0);
  rstd.ndim -= 1;
  return norm(c, 2, rstd, out);
}

std::string layer_norm(const Call& c, Descs& out) {
  if (c.in(0).ndim < 2) return "x must be (..., H)";
  if (c.has(2) && !c.has(1)) return "a bias needs a weight";
  return norm(c, 3, with_last(c.in(0), 2), out);
}

// The norm reads s = x + residual, or x if there is no residual.
// Inputs of the gradient op: dy, what the norm read, weight, statistics, then the gradients so far, to which it adds:
// of what the norm read, and of each parameter. Outputs: the gradients of what the norm read and of each parameter.
void norm_backward(Gradient& g, const char* op, uint32_t residual, const Attrs& attrs) {
  const eng_id dy = g.d_out(0), d_sum = g.d_out(2);
  const auto give_summands = [&](eng_id gradient) {  // x and the residual have the gradient of their sum
    for (uint32_t summand : {0u, residual})
      if (g.wants(summand)) g.give(summand, gradient);
  };
  if (!dy) return give_summands(d_sum);  // nothing uses y
  const bool sum = g.in(residual) != 0;
  const eng_id read = sum ? g.out(2) : g.in(0);
  const eng_id so_far = sum ? g.own_d_out(2) : g.take(0);
  Ids in = {dy, read, g.in(1), g.out(1), so_far};
  for (uint32_t k = 1; k < residual; ++k) {
    const bool again = k > 1 && g.in(k) == g.in(1);  // weight and bias may be the same parameter
    in.push_back(again ? 0 : g.take(k));
  }
  uint32_t parameters = g.in(1) ? residual - 1 : 0;
  if (parameters == 2 && !g.in(2)) parameters = 1;
  const Ids gradients = g.emit(1 + parameters, op, in, attrs);
  eng_id d_read = gradients[0];
  // Other ops use s as well, and their gradient could not be accumulated in place.
  if (sum && !so_far && d_sum) d_read = g.emit(ENG_OP_ADD, {d_read, d_sum});
  give_summands(d_read);
  for (uint32_t k = 1; k < residual; ++k)
    if (g.wants(k)) g.give(k, gradients[k]);
}

void rms_norm_backward(Gradient& g) {
  norm_backward(g, ENG_OP_RMS_NORM_GRAD, 2, {});
}
void layer_norm_backward(Gradient& g) {
  norm_backward(g, ENG_OP_LAYER_NORM_GRAD, 3, {{"bias", g.in(2) != 0, 0}});
}

// y can be computed again from what the norm read and the parameters.
template <uint32_t Residual>
uint32_t norm_rebuild(const eng_call* call, uint32_t* from, uint32_t) {
  const Call c{*call};
  uint32_t n = 0;
  from[n++] = c.has(Residual) ? ENG_OP_OUTPUT + 2 : 0;
  for (uint32_t k = 1; k < Residual; ++k)
    if (c.has(k)) from[n++] = k;
  return n;
}

std::string norm_grad(const Call& c, Descs& out) {
  eng_desc dy = c.in(0);
  if (c.in(1).dtype == wide(dy.dtype)) dy.dtype = c.in(1).dtype;
  if (!same(dy, c.in(1))) return "dy and s must have the same shape";
  out.push_back(c.in(1));
  if (c.has(2)) out.insert(out.end(), c.i("bias") ? 2 : 1, c.in(2));
  return "";
}

const eng_in_place rms_norm_places[] = {may_take(2, 2), may_take(2, 0)};
const eng_in_place rms_norm_grad_places[] = {must_take(0, 4), must_take(1, 5)};
const eng_in_place layer_norm_places[] = {may_take(2, 3), may_take(2, 0)};
const eng_in_place layer_norm_grad_places[] = {must_take(0, 4), must_take(1, 5), must_take(2, 6)};

}  // namespace

Family norm_ops() {
  static const eng_op all[] = {
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_CHEAP | ENG_OP_BY_POSITION,
       .id = ENG_OP_RMS_NORM,
       .min_in = 2,
       .max_in = 3,
       .infer = infer<rms_norm>,
       .grad = grad<rms_norm_backward>,
       .in_place = rms_norm_places,
       .n_in_place = 2,
       .rebuild = norm_rebuild<2>},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_RMS_NORM_GRAD,
       .min_in = 4,
       .max_in = 6,
       .infer = infer<norm_grad>,
       .in_place = rms_norm_grad_places,
       .n_in_place = 2,
       .sums = 1U << 1},
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_CHEAP | ENG_OP_BY_POSITION,
       .id = ENG_OP_LAYER_NORM,
       .min_in = 1,
       .max_in = 4,
       .infer = infer<layer_norm>,
       .grad = grad<layer_norm_backward>,
       .in_place = layer_norm_places,
       .n_in_place = 2,
       .rebuild = norm_rebuild<3>},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_LAYER_NORM_GRAD,
       .min_in = 2,
       .max_in = 7,
       .infer = infer<norm_grad>,
       .in_place = layer_norm_grad_places,
       .n_in_place = 3,
       .sums = 1U << 1 | 1U << 2},
  };
  return all;
}

}  // namespace ops
