// SPDX-License-Identifier: Apache-2.0
// Products and column sums that add to what is there.
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
       .in_place = matmul_places,
       .n_in_place = 1,
       .sums = 1U << 0},
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
