// SPDX-License-Identifier: Apache-2.0
// eng.linear/1 and eng.linear_relu/1. Their gradients are products and sums (matmul.cpp).
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

std::string linear(const Call& c, Descs& out) {
  const eng_desc &x = c.in(0), &w = c.in(1);
  if (x.ndim < 1 || w.ndim != 2 || last(x) != w.dims[1]) return "x (..., K) needs w (N, K)";
  if (c.has(2) && (c.in(2).ndim != 1 || c.in(2).dims[0] != w.dims[0])) return "bias must be (N)";
  out.push_back(with_last(x, w.dims[0]));
  return "";
}

double linear_work(const Call& c) {
  return 2.0 * static_cast<double>(count(c.out(0))) * static_cast<double>(last(c.in(0)));
}

eng_desc relu_mask(eng_desc y) {
  y.dtype = ENG_U8;
  return with_last(y, eng_relu_mask_bytes(last(y)));
}

std::string linear_relu(const Call& c, Descs& out) {
  std::string wrong = linear(c, out);
  if (wrong.empty()) out.push_back(relu_mask(out[0]));
  return wrong;
}

std::string matmul_relu_grad(const Call& c, Descs& out) {
  const eng_desc &dy = c.in(0), &w = c.in(1);
  if (dy.ndim < 1 || w.ndim != 2 || last(dy) != w.dims[0]) return "dy (..., N) needs w (N, K)";
  out.push_back(with_last(dy, w.dims[1]));
  if (!same(c.in(2), relu_mask(out[0]))) return "the mask must be (..., 16 ceil(K/128)) u8";
  if (c.i("sums")) out.push_back(make_desc(dy.dtype, {w.dims[1]}));
  return "";
}

// The gradients of x w^T + bias from that of the sum. dbias: that of the bias, if it is there already.
void linear_gradients(Gradient& g, eng_id dy, eng_id dbias) {
  // The weight's gradient first: it may be the last to read x, whose memory is then free for the gradient of x.
  if (g.wants(1)) g.give(1, g.emit(ENG_OP_MATMUL, {dy, g.in(0), g.take(1)}, {{"ta", 1, 0}, {"tb", 0, 0}}));
  if (g.wants(0)) {
    // Behind a relu the product masks its result, and gives the bias' gradient too. If others read x as well, the rule
    // of linear_relu masks the sum: masking twice changes nothing.
    const eng_node relu = g.so_far(g.in(0)) ? eng_node{} : g.made_by(ENG_OP_LINEAR_RELU, g.in(0));
    if (relu.n_out) {
      const eng_id bias = relu.n_in > 2 ? relu.in[2] : 0;
      const int64_t sums = g.wanted(bias) && !g.so_far(bias);
      g.give(0, g.emit(ENG_OP_MATMUL_RELU_GRAD, {dy, g.in(1), relu.out[1]}, {{"sums", sums, 0}}));
    } else {
      g.give(0, g.emit(ENG_OP_MATMUL, {dy, g.in(1), g.take(0)}, {{"ta", 0, 0}, {"tb", 0, 0}}));
    }
  }
  if (g.wants(2)) g.give(2, dbias ? dbias : g.emit(ENG_OP_SUM_ROWS, {dy, g.take(2)}));
}

void linear_backward(Gradient& g) {
  linear_gradients(g, g.d_out(0), 0);
}

void linear_relu_backward(Gradient& g) {
  const eng_node masked = g.made_by(ENG_OP_MATMUL_RELU_GRAD, g.d_out(0));
  if (masked.n_out && masked.in[2] == g.out(1))
    linear_gradients(g, masked.out[0], masked.n_out > 1 ? masked.out[1] : 0);
  else
    linear_gradients(g, g.emit(ENG_OP_ACTIVATION_GRAD, {g.d_out(0), g.out(0)}, {{"act", ENG_ACT_RELU, 0}}), 0);
}

const eng_in_place matmul_relu_grad_places[] = {must_take(1, 3)};

}  // namespace

Family linear_ops() {
  static const eng_op all[] = {
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_BY_POSITION,
       .id = ENG_OP_LINEAR,
       .min_in = 2,
       .max_in = 3,
       .infer = infer<linear>,
       .flops = flops<linear_work>,
       .grad = grad<linear_backward>},
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_BY_POSITION,
       .id = ENG_OP_LINEAR_RELU,
       .min_in = 2,
       .max_in = 3,
       .infer = infer<linear_relu>,
       .flops = flops<linear_work>,
       .grad = grad<linear_relu_backward>,
       .counts_as = 2},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_MATMUL_RELU_GRAD,
       .min_in = 3,
       .max_in = 4,
       .infer = infer<matmul_relu_grad>,
       .flops = flops<linear_work>,
       .in_place = matmul_relu_grad_places,
       .n_in_place = 1,
       .sums = 1U << 1},
  };
  return all;
}

}  // namespace ops
