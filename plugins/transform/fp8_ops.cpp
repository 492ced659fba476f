// SPDX-License-Identifier: Apache-2.0
#include "fp8_ops.hpp"

#include "../common/call.hpp"
#include "engine/ops_fp8.h"

namespace fp8 {
namespace {

using common::Call;
using common::columns;
using common::elements;
using common::rows;

void expect(bool right, const char* rule) {
  if (!right) throw common::Error{ENG_INVALID, rule};
}

bool is_real(const eng_desc& d) {
  return d.dtype == ENG_F32 || d.dtype == ENG_F64 || d.dtype == ENG_BF16 || d.dtype == ENG_F16;
}

eng_desc with_last(eng_desc d, int64_t n) {
  return d.dims[d.ndim - 1] = n, d;
}

void expect_format(const Call& c, const char* key) {
  const int64_t format = c.integer_or(key, ENG_FP8_E5M2);
  expect(format == ENG_FP8_E4M3 || format == ENG_FP8_E5M2, "a format must be ENG_FP8_E4M3 or ENG_FP8_E5M2");
}

eng_desc linear(const Call& c) {
  const eng_desc &x = c.in[0], &w = c.in[1];
  expect(is_real(x) && x.ndim >= 1 && w.ndim == 2 && w.dtype == x.dtype && columns(x) == w.dims[1],
         "x (..., K) needs w (N, K) of its type");
  expect(!c.has(2) || (c.in[2].ndim == 1 && c.in[2].dims[0] == w.dims[0] && c.in[2].dtype == x.dtype),
         "bias must be (N), of the type of x");
  expect_format(c, "gradients");
  return with_last(x, w.dims[0]);
}

// The sizes of a product: op(a) is (m, k), op(b) is (k, n).
struct Sizes {
  bool ta, tb;
  int64_t m, k, n;
  explicit Sizes(const Call& c) : ta(c.integer("ta") != 0), tb(c.integer("tb") != 0) {
    const eng_desc &a = c.in[0], &b = c.in[1];
    m = ta ? columns(a) : rows(a), k = ta ? rows(a) : columns(a), n = tb ? rows(b) : columns(b);
    expect(k == (tb ? columns(b) : rows(b)), "the inner sizes of op(a) and op(b) must agree");
  }
};

eng_desc matmul(const Call& c) {
  expect(is_real(c.in[0]) && c.in[0].ndim >= 1 && c.in[1].ndim >= 1 && c.in[0].dtype == c.in[1].dtype,
         "a and b must have one type");
  expect_format(c, "a"), expect_format(c, "b");
  const Sizes s(c);
  eng_desc out = with_last(c.in[0], s.n);
  if (s.ta) out.ndim = 2, out.dims[0] = s.m, out.dims[1] = s.n;
  expect(!c.has(2) || elements(c.in[2]) == elements(out), "acc must have the shape of the product");
  return out;
}

template <eng_desc (*Shape)(const Call&)>
eng_status infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  return common::guarded(error, [&] {
    expect(cap >= 1, "the host has no room for the output");
    out[0] = Shape(Call(*call));
    *n = 1;
  });
}

double linear_flops(const eng_call* c) {
  return 2.0 * static_cast<double>(elements(c->out[0])) * static_cast<double>(columns(c->in[0]));
}
double matmul_flops(const eng_call* c) {
  return 2.0 * static_cast<double>(elements(c->out[0])) * static_cast<double>(Sizes(Call(*c)).k);
}

int64_t integer(const eng_attr* attrs, uint32_t n, const char* key, int64_t fallback) {
  for (uint32_t k = 0; k < n; ++k)
    if (std::strcmp(attrs[k].key, key) == 0) return attrs[k].i;
  return fallback;
}

// As that of eng.linear/1, with products in 8 bits: the weight's first, which may be the last to read x.
eng_status linear_gradient(eng_gradient* g, eng_error* error) {
  const eng_gradient_api& api = *g->api;
  uint32_t n = 0;
  const eng_attr* const attrs = api.attrs(g, &n);
  const int64_t format = integer(attrs, n, "gradients", ENG_FP8_E5M2), margin = integer(attrs, n, "margin", 0);
  const eng_id dy = api.d_out(g, 0);
  const auto give_product = [&](uint32_t input, eng_id with, int64_t ta) {
    const eng_id in[3] = {dy, with, api.take(g, input)};
    const eng_attr own[5] = {
        {"ta", ta, 0}, {"tb", 0, 0}, {"a", format, 0}, {"b", ENG_FP8_E4M3, 0}, {"margin", margin, 0}};
    eng_id made = 0;
    api.emit(g, ENG_OP_FP8_MATMUL, in, 3, &made, 1, own, 5, nullptr);
    api.give(g, input, made);
  };
  if (api.wants(g, 1)) give_product(1, api.in(g, 0), 1);
  if (api.wants(g, 0)) give_product(0, api.in(g, 1), 0);
  if (api.in(g, 2) && api.wants(g, 2)) {
    const eng_id in[2] = {dy, api.take(g, 2)};
    eng_id made = 0;
    api.emit(g, ENG_OP_SUM_ROWS, in, 2, &made, 1, nullptr, 0, nullptr);
    api.give(g, 2, made);
  }
  return api.status(g, error);
}

eng_status linear_next(eng_stepping* s, eng_error* error) {
  const eng_stepping_api& api = *s->api;
  const uint32_t n = api.inputs(s);
  eng_id in[3] = {0, 0, 0}, made = 0;
  for (uint32_t k = 0; k < n && k < 3; ++k) in[k] = api.has(s, k) ? api.in(s, k) : 0;
  api.emit(s, ENG_OP_LINEAR, in, n, &made, 1, nullptr, 0, nullptr);
  api.give(s, 0, made);
  return api.status(s, error);
}

constexpr eng_in_place matmul_places[] = {{0, 2, 1, 0}};

constexpr eng_op make_linear() {
  eng_op op{};
  op.struct_size = sizeof op, op.id = ENG_OP_FP8_LINEAR, op.min_in = 2, op.max_in = 3, op.infer = infer<linear>;
  op.flops = linear_flops, op.grad = linear_gradient, op.step = linear_next;
  return op;
}
constexpr eng_op make_matmul() {
  eng_op op{};
  op.struct_size = sizeof op, op.id = ENG_OP_FP8_MATMUL, op.min_in = 2, op.max_in = 3, op.infer = infer<matmul>;
  op.flops = matmul_flops, op.in_place = matmul_places, op.n_in_place = 1, op.sums = 1U << 0;
  return op;
}
constexpr eng_op linear_op = make_linear(), matmul_op = make_matmul();
const eng_op* const list[] = {&linear_op, &matmul_op};

}  // namespace

const eng_ops ops = {.struct_size = sizeof(eng_ops), .count = 2, .ops = list};

}  // namespace fp8
