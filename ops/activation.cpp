// SPDX-License-Identifier: Apache-2.0
// eng.activation/1, eng.gated/1 and their gradients.
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

bool known_activation(const Call& c) {
  return c.i("act") >= ENG_ACT_SILU && c.i("act") <= ENG_ACT_RELU;
}

std::string activation(const Call& c, Descs& out) {
  return known_activation(c) ? as_inputs<0>(c, out) : "unknown activation";
}

// The slope of relu follows from its output, which is usually kept anyway: the next matrix product reads it.
void activation_backward(Gradient& g) {
  const eng_id from = g.i("act") == ENG_ACT_RELU ? g.out(0) : g.in(0);
  if (g.wants(0)) g.give(0, g.emit(ENG_OP_ACTIVATION_GRAD, {g.d_out(0), from}, g.attrs()));
}

std::string activation_grad(const Call& c, Descs& out) {
  return same(c.in(0), c.in(1)) ? as_inputs<0>(c, out) : "dy and x must have the same shape";
}

std::string gated(const Call& c, Descs& out) {
  if (!same(c.in(0), c.in(1))) return "gate and up must have the same shape";
  return activation(c, out);
}

void gated_backward(Gradient& g) {
  const Ids d = g.emit(2, ENG_OP_GATED_GRAD, {g.d_out(0), g.in(0), g.in(1)}, g.attrs());
  if (g.wants(0)) g.give(0, d[0]);
  if (g.wants(1)) g.give(1, d[1]);
}

std::string gated_grad(const Call& c, Descs& out) {
  if (!same(c.in(0), c.in(1)) || !same(c.in(1), c.in(2))) return "dy, gate and up must have the same shape";
  return as_inputs<1, 2>(c, out);
}

const eng_in_place activation_places[] = {may_take(0, 0)};
const eng_in_place activation_grad_places[] = {may_take(0, 0), may_take(0, 1)};
const eng_in_place gated_grad_places[] = {may_take(0, 1), may_take(1, 2)};

}  // namespace

Family activation_ops() {
  static const eng_op all[] = {
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_CHEAP | ENG_OP_BY_POSITION,
       .id = ENG_OP_ACTIVATION,
       .min_in = 1,
       .max_in = 1,
       .infer = infer<activation>,
       .grad = grad<activation_backward>,
       .in_place = activation_places,
       .n_in_place = 1},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_ACTIVATION_GRAD,
       .min_in = 2,
       .max_in = 2,
       .infer = infer<activation_grad>,
       .in_place = activation_grad_places,
       .n_in_place = 2},
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_CHEAP | ENG_OP_BY_POSITION,
       .id = ENG_OP_GATED,
       .min_in = 2,
       .max_in = 2,
       .infer = infer<gated>,
       .grad = grad<gated_backward>},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_GATED_GRAD,
       .min_in = 3,
       .max_in = 3,
       .infer = infer<gated_grad>,
       .in_place = gated_grad_places,
       .n_in_place = 2},
  };
  return all;
}

}  // namespace ops
