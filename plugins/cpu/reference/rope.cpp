// SPDX-License-Identifier: Apache-2.0
// rope; its gradient is the rotation back, which is the same op with inverse = 1.
#include "reference.hpp"

namespace reference {
namespace {

struct Rope {
  static constexpr const char* op = ENG_OP_ROPE;
  Call c;
  int64_t heads;
  double sign;

  explicit Rope(const Call& call) : c(call), heads(c.integer("heads")), sign(c.integer("inverse") ? -1.0 : 1.0) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1});
    expect_types(c, 3, {0}, 1, {0});
    cpu::need_numbers(c, 2, c.in[0], "positions");
    const Rope op(c);
    expect(c.in[0].ndim == 3 && op.heads > 0 && columns(c.in[0]) % (2 * op.heads) == 0,
           "x must be (B, T, heads*D) with D even");
    expect(is_real(c, 1) && c.in[1].ndim == 2 && c.in[1].dims[0] >= c.in[0].dims[1] &&
               columns(c.in[1]) == columns(c.in[0]) / op.heads,
           "table must be (T or more, D) f32");
    expect(elements(c.out[0]) == elements(c.in[0]), "y must have the shape of x");
  }
  void run(const Args& a) const {
    by_type(c.in[0].dtype, [&]<class Type>(Type) {
      const int64_t B = c.in[0].dims[0], T = c.in[0].dims[1], D = columns(c.in[0]) / heads, d = D / 2;
      const Reals table(c, a, 1);  // (P, D): cos, then sin
      const int32_t* positions = a.in<int32_t>(2);
      if (positions) cpu::need_rows(positions, B * T, 0, c.in[1].dims[0]);
      for (int64_t b = 0; b < B; ++b)
        for (int64_t t = 0; t < T; ++t)
          for (int64_t h = 0; h < heads; ++h) {
            const Type* x = a.in<Type>(0) + ((b * T + t) * heads + h) * D;
            Type* y = a.out<Type>(0) + ((b * T + t) * heads + h) * D;
            const int64_t row = positions ? positions[b * T + t] : t;
            for (int64_t j = 0; j < d; ++j) {
              const double cosine = table[row * D + j], sine = sign * table[row * D + d + j];
              const double x1 = double(x[j]), x2 = double(x[d + j]);
              y[j] = Type(x1 * cosine - x2 * sine);
              y[d + j] = Type(x2 * cosine + x1 * sine);
            }
          }
    });
  }
};

}  // namespace

void add_rope(List& list) {
  list.push_back(&common::kernel<Rope>);
}

}  // namespace reference
