// SPDX-License-Identifier: Apache-2.0
// Shapes, work and gradients of the ops.
#include "ops.hpp"

#include <array>
#include <vector>

#include "../common/call.hpp"

namespace moe {
namespace {

using common::columns;
using common::elements;
using common::Error;
using Descs = std::vector<eng_desc>;

void expect(bool right, const char* rule) {
  if (!right) throw Error{ENG_INVALID, rule};
}
eng_desc make(int32_t dtype, std::initializer_list<int64_t> dims) {
  eng_desc d{};
  d.dtype = dtype;
  for (int64_t n : dims) d.dims[d.ndim++] = n;
  return d;
}
int32_t wide(int32_t dtype) {
  return dtype == ENG_F64 ? ENG_F64 : ENG_F32;
}
bool is(const eng_desc& d, int32_t dtype, std::initializer_list<int64_t> dims) {
  const eng_desc want = make(dtype, dims);
  return d.dtype == dtype && d.ndim == want.ndim && std::equal(d.dims, d.dims + d.ndim, want.dims);
}

// Writes what `shapes` gives for the call.
template <Descs (*shapes)(const common::Call&)>
eng_status infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  return common::guarded(error, [&] {
    const Descs made = shapes(common::Call(*call));
    expect(made.size() <= cap, "the host has no room for the outputs");
    std::copy(made.begin(), made.end(), out);
    *n_out = static_cast<uint32_t>(made.size());
  });
}

// Tensors of one number for each pair of a token and an expert.
bool pairs(const eng_desc& d, int32_t dtype, const eng_desc& rows) {
  return rows.ndim >= 3 && is(d, dtype, {rows.dims[0], rows.dims[1], rows.dims[2]});
}
bool offsets_of(const eng_desc& offsets, const eng_desc& w) {
  return is(offsets, ENG_I32, {w.dims[0] + 1});
}
eng_desc with_columns(eng_desc d, int64_t n) {
  return d.dims[d.ndim - 1] = n, d;
}

Descs route(const common::Call& c) {
  const eng_desc& logits = c.in[0];
  expect(logits.ndim == 3, "logits must be (B, T, E)");
  const int64_t b = logits.dims[0], t = logits.dims[1], e = logits.dims[2], k = c.integer("k");
  expect(e <= 65536 && k >= 1 && k <= e, "k must be 1 to the number of experts, of which there are at most 65536");
  expect(b * t <= INT32_MAX / k, "there are more than 2^31 pairs of a token and an expert; take a smaller micro-batch");
  const eng_desc one = make(ENG_I32, {b, t, k});
  return {make(wide(logits.dtype), {b, t, k}),     one, one, one, make(ENG_I32, {e + 1}),
          make(wide(logits.dtype), {b, 2 * e + 1})};
}

Descs route_grad(const common::Call& c) {
  const eng_desc &logits = c.in[0], &experts = c.in[1];
  expect(logits.ndim == 3 && experts.ndim == 3 && pairs(experts, ENG_I32, experts), "experts must be (B, T, k) i32");
  const int32_t type = wide(logits.dtype);
  expect(!c.has(2) || pairs(c.in[2], type, experts), "dweights must be (B, T, k)");
  expect(!c.has(3) || is(c.in[3], type, {logits.dims[0], 2 * logits.dims[2] + 1}), "dload must be (B, 2E + 1)");
  return {logits};
}

void expect_groups(const common::Call& c, int64_t experts) {
  const int64_t groups = c.integer("groups"), chosen = c.integer("chosen_groups"), k = c.integer("k");
  expect(groups >= 1 && chosen >= 1 && chosen <= groups && experts % groups == 0,
         "groups must divide the number of experts, and chosen_groups be 1 to groups");
  expect(groups == 1 || experts / groups >= 2, "a group must have at least two experts");
  expect(k >= 1 && k <= experts / groups * chosen, "k must be 1 to the number of experts of the chosen groups");
}

Descs route_sigmoid(const common::Call& c) {
  Descs out = route(c);
  out.pop_back();  // there is no load
  const int64_t experts = columns(c.in[0]);
  expect_groups(c, experts);
  expect(!c.has(1) || is(c.in[1], ENG_F32, {experts}) || is(c.in[1], ENG_F64, {experts}),
         "the correction must be (E), f32 or f64");
  return out;
}

Descs route_sigmoid_grad(const common::Call& c) {
  expect(c.has(2), "dweights must be (B, T, k)");
  expect_groups(c, columns(c.in[0]));
  return route_grad(c);
}

void expect_product(const common::Call& c, size_t w, const char* rule) {
  expect(c.in[w].ndim == 3 && offsets_of(c.in[2], c.in[w]), rule);
}

Descs linear(const common::Call& c) {
  const eng_desc &x = c.in[0], &w = c.in[1];
  expect_product(c, 1, "w must be (E, N, K) and offsets (E + 1) i32");
  expect(c.has(3) == c.has(4), "order and place must be given together");
  expect(columns(x) == w.dims[2] && x.dtype == w.dtype, "x must have the type of w and K columns");
  if (!c.has(3)) {
    expect(x.ndim == 4, "x must be (B, T, k, K)");
    return {with_columns(x, w.dims[1])};
  }
  expect(x.ndim == 3 && c.in[3].ndim == 3 && is(c.in[3], ENG_I32, {x.dims[0], x.dims[1], c.in[3].dims[2]}) &&
             pairs(c.in[4], ENG_I32, c.in[3]),
         "x must be (B, T, K), order and place (B, T, k) i32");
  return {make(x.dtype, {x.dims[0], x.dims[1], c.in[3].dims[2], w.dims[1]})};
}

double product_flops(double rows, const eng_desc& w) {
  return 2.0 * rows * static_cast<double>(w.dims[1]) * static_cast<double>(w.dims[2]);
}
double rows_of(const eng_desc& d) {
  return static_cast<double>(common::rows(d));
}
double linear_flops(const eng_call* c) {
  return product_flops(rows_of(c->out[0]), c->in[1]);
}
double weight_grad_flops(const eng_call* c) {
  return product_flops(rows_of(c->in[0]), c->out[0]);
}

Descs input_grad(const common::Call& c) {
  const eng_desc &dy = c.in[0], &w = c.in[1];
  expect_product(c, 1, "w must be (E, N, K) and offsets (E + 1) i32");
  expect(dy.ndim == 4 && columns(dy) == w.dims[1] && dy.dtype == w.dtype, "dy must be (B, T, k, N), of the type of w");
  return {with_columns(dy, w.dims[2])};
}

Descs weight_grad(const common::Call& c) {
  const eng_desc &dy = c.in[0], &x = c.in[1];
  expect(dy.ndim == 4 && x.ndim == 4 && dy.dtype == x.dtype && common::rows(dy) == common::rows(x),
         "dy must be (B, T, k, N) and x (B, T, k, K)");
  expect(c.in[2].dtype == ENG_I32 && c.in[2].ndim == 1 && c.in[2].dims[0] > 1, "offsets must be (E + 1) i32");
  const eng_desc made = make(dy.dtype, {c.in[2].dims[0] - 1, columns(dy), columns(x)});
  expect(!c.has(3) || elements(c.in[3]) == elements(made), "acc must be (E, N, K)");
  return {made};
}

eng_status linear_rule(eng_gradient* g, eng_error* error) {
  const auto& api = *g->api;
  const eng_id dy = api.d_out(g, 0), offsets = api.in(g, 2), order = api.inputs(g) > 3 ? api.in(g, 3) : 0;
  if (api.wants(g, 1)) {
    eng_id x = api.in(g, 0), dw = 0;
    if (order) {  // gathered again, so that x alone is kept
      const std::array<eng_id, 2> from = {x, order};
      api.emit(g, MOE_OP_GATHER, from.data(), 2, &x, 1, nullptr, 0, nullptr);
    }
    const std::array<eng_id, 4> in = {dy, x, offsets, api.take(g, 1)};
    api.emit(g, MOE_OP_LINEAR_WEIGHT_GRAD, in.data(), 4, &dw, 1, nullptr, 0, nullptr);
    api.give(g, 1, dw);
  }
  if (api.wants(g, 0)) {
    const std::array<eng_id, 3> in = {dy, api.in(g, 1), offsets};
    eng_id dx = 0;
    api.emit(g, MOE_OP_LINEAR_INPUT_GRAD, in.data(), 3, &dx, 1, nullptr, 0, nullptr);
    if (order) {
      const std::array<eng_id, 3> from = {dx, api.in(g, 4), order};
      api.emit(g, MOE_OP_COMBINE, from.data(), 3, &dx, 1, nullptr, 0, nullptr);
    }
    api.give(g, 0, dx);
  }
  return api.status(g, error);
}

Descs gated(const common::Call& c) {
  const eng_desc& x = c.in[0];
  expect(x.ndim == 4 && columns(x) % 2 == 0, "x must be (B, T, k, 2I)");
  expect(pairs(c.in[1], wide(x.dtype), x) && pairs(c.in[2], ENG_I32, x), "weights and order must be (B, T, k)");
  return {with_columns(x, columns(x) / 2)};
}

Descs gated_grad(const common::Call& c) {
  const eng_desc &dy = c.in[0], &x = c.in[1];
  expect(x.ndim == 4 && elements(x) == 2 * elements(dy) && dy.dtype == x.dtype, "dy must be (B, T, k, I)");
  expect(pairs(c.in[2], wide(x.dtype), x) && pairs(c.in[3], ENG_I32, x), "weights and order must be (B, T, k)");
  return {x, c.in[2]};
}

// Emits `op` with the node's attributes on these inputs, and gives its outputs to the inputs `to` of the node.
template <size_t N, size_t M>
eng_status answer(eng_gradient* g, const char* op, const std::array<eng_id, N>& in, const std::array<uint32_t, M>& to,
                  eng_error* error) {
  const auto& api = *g->api;
  uint32_t n = 0;
  const eng_attr* attrs = api.attrs(g, &n);
  std::array<eng_id, M> d{};
  api.emit(g, op, in.data(), N, d.data(), M, attrs, n, nullptr);
  for (uint32_t k = 0; k < M; ++k)
    if (api.wants(g, to[k])) api.give(g, to[k], d[k]);
  return api.status(g, error);
}

eng_status route_rule(eng_gradient* g, eng_error* error) {
  const auto& api = *g->api;
  const eng_id dweights = api.d_out(g, 0), dload = api.d_out(g, 5);
  if (!dweights && !dload) return api.status(g, error);
  return answer<4, 1>(g, MOE_OP_ROUTE_GRAD, {api.in(g, 0), api.out(g, 1), dweights, dload}, {0}, error);
}
eng_status route_sigmoid_rule(eng_gradient* g, eng_error* error) {
  const auto& api = *g->api;
  if (!api.d_out(g, 0)) return api.status(g, error);
  return answer<3, 1>(g, MOE_OP_ROUTE_SIGMOID_GRAD, {api.in(g, 0), api.out(g, 1), api.d_out(g, 0)}, {0}, error);
}
eng_status gated_rule(eng_gradient* g, eng_error* error) {
  const auto& api = *g->api;
  return answer<4, 2>(g, MOE_OP_GATED_GRAD, {api.d_out(g, 0), api.in(g, 0), api.in(g, 1), api.in(g, 2)}, {0, 1}, error);
}
eng_status combine_rule(eng_gradient* g, eng_error* error) {
  return answer<2, 1>(g, MOE_OP_GATHER, {g->api->d_out(g, 0), g->api->in(g, 2)}, {0}, error);
}
eng_status balance_rule(eng_gradient* g, eng_error* error) {
  const auto& api = *g->api;
  return answer<3, 1>(g, MOE_OP_BALANCE_GRAD, {api.in(g, 0), api.d_out(g, 0), api.d_out(g, 1)}, {0}, error);
}

Descs combine(const common::Call& c) {
  const eng_desc& x = c.in[0];
  expect(x.ndim == 4 && pairs(c.in[1], ENG_I32, x) && pairs(c.in[2], ENG_I32, x),
         "x must be (B, T, k, H), place and order (B, T, k) i32");
  return {make(x.dtype, {x.dims[0], x.dims[1], x.dims[3]})};
}

Descs gather(const common::Call& c) {
  const eng_desc &x = c.in[0], &order = c.in[1];
  expect(x.ndim == 3 && order.ndim == 3 && is(order, ENG_I32, {x.dims[0], x.dims[1], order.dims[2]}),
         "x must be (B, T, H) and order (B, T, k) i32");
  return {make(x.dtype, {x.dims[0], x.dims[1], order.dims[2], x.dims[2]})};
}

void expect_load(const common::Call& c) {
  const eng_desc& load = c.in[0];
  expect(load.ndim == 2 && columns(load) % 2 == 1 && (load.dtype == ENG_F32 || load.dtype == ENG_F64),
         "load must be (B, 2E + 1), f32 or f64");
  expect(c.integer("rows") > 0, "rows must be above 0");
}
Descs balance(const common::Call& c) {
  expect_load(c);
  const eng_desc one = make(c.in[0].dtype, {1});
  return {one, one};
}
Descs balance_grad(const common::Call& c) {
  expect_load(c);
  for (size_t k : {1, 2}) expect(!c.has(k) || is(c.in[k], c.in[0].dtype, {1}), "gradients of the terms must be (1)");
  return {c.in[0]};
}

constexpr eng_in_place first_of_first[] = {{.out = 0, .in = 0}};
constexpr eng_in_place first_of_second[] = {{.out = 0, .in = 1}};
constexpr eng_in_place first_of_sum[] = {{.out = 0, .in = 3, .must = 1}};
// Members that are not named are 0.
const eng_op ops[] = {
    {.struct_size = sizeof(eng_op),
     .flags = ENG_OP_BY_POSITION,
     .id = MOE_OP_ROUTE,
     .min_in = 1,
     .max_in = 1,
     .infer = infer<route>,
     .grad = route_rule},
    {.struct_size = sizeof(eng_op),
     .id = MOE_OP_ROUTE_GRAD,
     .min_in = 2,
     .max_in = 4,
     .infer = infer<route_grad>,
     .in_place = first_of_first,
     .n_in_place = 1},
    {.struct_size = sizeof(eng_op),
     .flags = ENG_OP_BY_POSITION,
     .id = MOE_OP_LINEAR,
     .min_in = 3,
     .max_in = 5,
     .infer = infer<linear>,
     .flops = linear_flops,
     .grad = linear_rule},
    {.struct_size = sizeof(eng_op),
     .id = MOE_OP_LINEAR_INPUT_GRAD,
     .min_in = 3,
     .max_in = 3,
     .infer = infer<input_grad>,
     .flops = linear_flops},
    {.struct_size = sizeof(eng_op),
     .id = MOE_OP_LINEAR_WEIGHT_GRAD,
     .min_in = 3,
     .max_in = 4,
     .infer = infer<weight_grad>,
     .flops = weight_grad_flops,
     .in_place = first_of_sum,
     .n_in_place = 1,
     .sums = 1U},
    {.struct_size = sizeof(eng_op),
     .flags = ENG_OP_CHEAP | ENG_OP_BY_POSITION,
     .id = MOE_OP_GATED,
     .min_in = 3,
     .max_in = 3,
     .infer = infer<gated>,
     .grad = gated_rule},
    {.struct_size = sizeof(eng_op),
     .id = MOE_OP_GATED_GRAD,
     .min_in = 4,
     .max_in = 4,
     .infer = infer<gated_grad>,
     .in_place = first_of_second,
     .n_in_place = 1},
    {.struct_size = sizeof(eng_op),
     .flags = ENG_OP_BY_POSITION,
     .id = MOE_OP_COMBINE,
     .min_in = 3,
     .max_in = 3,
     .infer = infer<combine>,
     .grad = combine_rule},
    {.struct_size = sizeof(eng_op), .id = MOE_OP_GATHER, .min_in = 2, .max_in = 2, .infer = infer<gather>},
    {.struct_size = sizeof(eng_op),
     .id = MOE_OP_BALANCE,
     .min_in = 1,
     .max_in = 1,
     .infer = infer<balance>,
     .grad = balance_rule},
    {.struct_size = sizeof(eng_op),
     .id = MOE_OP_BALANCE_GRAD,
     .min_in = 1,
     .max_in = 3,
     .infer = infer<balance_grad>,
     .in_place = first_of_first,
     .n_in_place = 1},
    {.struct_size = sizeof(eng_op),
     .flags = ENG_OP_BY_POSITION,
     .id = MOE_OP_ROUTE_SIGMOID,
     .min_in = 1,
     .max_in = 2,
     .infer = infer<route_sigmoid>,
     .grad = route_sigmoid_rule},
    {.struct_size = sizeof(eng_op),
     .id = MOE_OP_ROUTE_SIGMOID_GRAD,
     .min_in = 3,
     .max_in = 3,
     .infer = infer<route_sigmoid_grad>},
};
const eng_op* const list[] = {&ops[0], &ops[1], &ops[2], &ops[3],  &ops[4],  &ops[5], &ops[6],
                              &ops[7], &ops[8], &ops[9], &ops[10], &ops[11], &ops[12]};

}  // namespace

extern const eng_ops all_ops = {.struct_size = sizeof(eng_ops), .count = sizeof list / sizeof *list, .ops = list};

}  // namespace moe
