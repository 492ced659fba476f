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

void expect_state(const Call& c, size_t k) {
  expect(!c.has(k) || (c.in[k].dtype == ENG_F32 && c.in[k].ndim == 2 && c.in[k].dims[0] == 3 && c.in[k].dims[1] > 2),
         "a state must be f32 (3, 2 + H)");
}

eng_desc linear(const Call& c) {
  const eng_desc &x = c.in[0], &w = c.in[1];
  expect(is_real(x) && x.ndim >= 1 && w.ndim == 2 && w.dtype == x.dtype && columns(x) == w.dims[1],
         "x (..., K) needs w (N, K) of its type");
  expect(!c.has(2) || (c.in[2].ndim == 1 && c.in[2].dims[0] == w.dims[0] && c.in[2].dtype == x.dtype),
         "bias must be (N), of the type of x");
  expect_format(c, "gradients"), expect_state(c, 3);
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
  expect_format(c, "a"), expect_format(c, "b"), expect_state(c, 3);
  const Sizes s(c);
  eng_desc out = with_last(c.in[0], s.n);
  if (s.ta) out.ndim = 2, out.dims[0] = s.m, out.dims[1] = s.n;
  expect(!c.has(2) || elements(c.in[2]) == elements(out), "acc must have the shape of the product");
  return out;
}

eng_desc largest(const Call& c) {
  expect_state(c, 0);
  for (size_t k = 1; k < 4; ++k) expect(!c.has(k) || is_real(c.in[k]), "x, w and dy must be floating types");
  return c.in[0];
}

// The rows of states behind each other.
int64_t rows_of(const Call& c) {
  const int64_t n = elements(c.in[0]), history = c.integer("history");
  expect(history > 0 && c.in[0].dtype == ENG_F32 && n % (3 * (2 + history)) == 0,
         "states must be f32 (M * 3 * (2 + H))");
  return n / (2 + history);
}

eng_desc collect(const Call& c) {
  eng_desc out = c.in[0];
  out.ndim = 1, out.dims[0] = rows_of(c);
  return out;
}

eng_desc roll(const Call& c) {
  const int64_t n = rows_of(c);
  expect(!c.has(1) || (c.in[1].dtype == ENG_F32 && elements(c.in[1]) % n == 0),
         "what the ranks have must be f32 (R * M * 3)");
  expect_format(c, "gradients");
  return c.in[0];
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
  const eng_id dy = api.d_out(g, 0), state = api.in(g, 3);
  const auto give_product = [&](uint32_t input, uint32_t with, int64_t ta) {
    const eng_id in[4] = {dy, api.in(g, with), api.take(g, input), state};
    const eng_attr own[7] = {{"ta", ta, 0},         {"tb", 0, 0},    {"a", format, 0},  {"b", ENG_FP8_E4M3, 0},
                             {"margin", margin, 0}, {"a_row", 2, 0}, {"b_row", with, 0}};
    eng_id made = 0;
    api.emit(g, ENG_OP_FP8_MATMUL, in, state ? 4 : 3, &made, 1, own, state ? 7 : 5, nullptr);
    api.give(g, input, made);
  };
  if (api.wants(g, 1)) give_product(1, 0, 1);
  if (api.wants(g, 0)) give_product(0, 1, 0);
  if (state) {  // of what the products read
    const eng_id in[4] = {state, api.wants(g, 1) ? api.in(g, 0) : 0, api.wants(g, 0) ? api.in(g, 1) : 0, dy};
    eng_id made = 0;
    api.emit(g, ENG_OP_FP8_LARGEST, in, 4, &made, 1, nullptr, 0, nullptr);
  }
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
  const uint32_t n = std::min(api.inputs(s), 3U);  // without a state
  eng_id in[3] = {0, 0, 0}, made = 0;
  for (uint32_t k = 0; k < n; ++k) in[k] = api.has(s, k) ? api.in(s, k) : 0;
  api.emit(s, ENG_OP_LINEAR, in, n, &made, 1, nullptr, 0, nullptr);
  api.give(s, 0, made);
  return api.status(s, error);
}

constexpr eng_in_place matmul_places[] = {{0, 2, 1, 0}}, state_places[] = {{0, 0, 1, 0}};

constexpr eng_op make_linear() {
  eng_op op{};
  op.struct_size = sizeof op, op.id = ENG_OP_FP8_LINEAR, op.min_in = 2, op.max_in = 4, op.infer = infer<linear>;
  op.flops = linear_flops, op.grad = linear_gradient, op.step = linear_next;
  return op;
}
constexpr eng_op make_matmul() {
  eng_op op{};
  op.struct_size = sizeof op, op.id = ENG_OP_FP8_MATMUL, op.min_in = 2, op.max_in = 4, op.infer = infer<matmul>;
  op.flops = matmul_flops, op.in_place = matmul_places, op.n_in_place = 1, op.sums = 1U << 0;
  return op;
}
template <eng_desc (*Shape)(const Call&)>
constexpr eng_op make_plain(const char* id, uint32_t most, bool in_place) {
  eng_op op{};
  op.struct_size = sizeof op, op.id = id, op.min_in = 1, op.max_in = most, op.infer = infer<Shape>;
  if (in_place) op.in_place = state_places, op.n_in_place = 1;
  return op;
}
constexpr eng_op linear_op = make_linear(), matmul_op = make_matmul(),
                 largest_op = make_plain<largest>(ENG_OP_FP8_LARGEST, 4, true),
                 collect_op = make_plain<collect>(ENG_OP_FP8_COLLECT, 1, false),
                 roll_op = make_plain<roll>(ENG_OP_FP8_ROLL, 2, true);
const eng_op* const list[] = {&linear_op, &matmul_op, &largest_op, &collect_op, &roll_op};

}  // namespace

const eng_ops ops = {.struct_size = sizeof(eng_ops), .count = 5, .ops = list};

}  // namespace fp8
