// SPDX-License-Identifier: Apache-2.0
// eng.matmul/1 and eng.sum_rows/1, which may add to what is there.
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

std::string matmul(const Call& c, Descs& out) {
  const eng_desc &a = c.in(0), &b = c.in(1);
  const bool ta = c.i("ta") != 0, tb = c.i("tb") != 0;
  const int64_t m = ta ? last(a) : rows(a), k = ta ? rows(a) : last(a);
  const int64_t kb = tb ? last(b) : rows(b), n = tb ? rows(b) : last(b);
  if (k != kb) return "inner sizes differ: " + std::to_string(k) + " and " + std::to_string(kb);
  // Without ta, the leading dimensions are kept: (B, T, N) x (N, K) -> (B, T, K).
  out.push_back(ta ? make_desc(a.dtype, {m, n}) : with_last(a, n));
  if (c.has(2) && count(c.in(2)) != count(out[0])) return "acc must have the shape of the product";
  return "";
}

// Gives input k the gradient op(x) op(y), with the dimensions of the input.
void give_product(Gradient& g, uint32_t k, eng_id x, eng_id y, bool tx, bool ty) {
  const eng_desc want = g.desc(g.in(k)), left = g.desc(x), right = g.desc(y);
  const int64_t n = ty ? rows(right) : last(right);
  const bool folded = !same(want, tx ? make_desc(left.dtype, {last(left), n}) : with_last(left, n));
  eng_id product = g.emit(ENG_OP_MATMUL, {x, y, folded ? 0 : g.take(k)}, {{"ta", tx, 0}, {"tb", ty, 0}});
  if (folded) {
    Attrs dims = {{"keep", 0, 0}, {"ndim", want.ndim, 0}};
    for (uint32_t d = 0; d < want.ndim; ++d) dims.push_back({eng_numbered_key_(0, d), want.dims[d], 0});
    product = g.emit(ENG_OP_RESHAPE, {product}, dims);
  }
  g.give(k, product);
}

void matmul_backward(Gradient& g) {
  const eng_id dc = g.d_out(0), a = g.in(0), b = g.in(1);
  const bool ta = g.i("ta") != 0, tb = g.i("tb") != 0;
  if (g.wants(1)) tb ? give_product(g, 1, dc, a, true, ta) : give_product(g, 1, a, dc, !ta, false);
  if (g.wants(0)) ta ? give_product(g, 0, b, dc, tb, true) : give_product(g, 0, dc, b, false, !tb);
  if (!g.wants(2)) return;
  if (!same(g.desc(g.in(2)), g.desc(dc)))
    throw Refused{ENG_UNSUPPORTED, ENG_OP_MATMUL ": an acc with a gradient must have the dimensions of the product"};
  g.give(2, dc);
}

void matmul_next(Stepping& s) {
  if (!s.fixed(1) || (s.i("ta") && !s.fixed(0)))
    throw Refused{ENG_UNSUPPORTED, ENG_OP_MATMUL
                  ": only its first input may have positions, and it must not be "
                  "transposed: such a model cannot generate"};
  Ids in;
  for (uint32_t k = 0; k < s.inputs(); ++k) in.push_back(s.has(k) ? s.in(k) : 0);
  s.give(0, s.emit(ENG_OP_MATMUL, in, s.attrs()));
}

double matmul_work(const Call& c) {
  const int64_t k = c.i("ta") ? rows(c.in(0)) : last(c.in(0));
  return 2.0 * static_cast<double>(count(c.out(0))) * static_cast<double>(k);
}

std::string sum_rows(const Call& c, Descs& out) {
  out.push_back(make_desc(c.in(0).dtype, {last(c.in(0))}));
  return "";
}

const eng_in_place matmul_places[] = {must_take(0, 2)};
const eng_in_place sum_rows_places[] = {must_take(0, 1)};

}  // namespace

Family matmul_ops() {
  static const eng_op all[] = {
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_MATMUL,
       .min_in = 2,
       .max_in = 3,
       .infer = infer<matmul>,
       .flops = flops<matmul_work>,
       .grad = grad<matmul_backward>,
       .in_place = matmul_places,
       .n_in_place = 1,
       .sums = 1U << 0,
       .step = step<matmul_next>},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_SUM_ROWS,
       .min_in = 1,
       .max_in = 2,
       .infer = infer<sum_rows>,
       .in_place = sum_rows_places,
       .n_in_place = 1,
       .sums = 1U << 0},
  };
  return all;
}

}  // namespace ops
