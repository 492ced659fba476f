// SPDX-License-Identifier: Apache-2.0
// Shapes and gradients of the ops of a norm whose groups are divided.
#include "norm_part.hpp"

#include <array>

#include "rules.hpp"

namespace mamba {
namespace {

using common::columns;
using common::rows;

void expect_part(const common::Call& c, size_t x, int64_t groups) {
  expect(rows(c.in[x]) == rows(c.in[x + 1]) && columns(c.in[x]) == columns(c.in[x + 1]), "x and z must agree");
  expect(c.integer("at") >= 0 && c.integer("at") < groups, "`at` must be the number of a group");
}
void expect_sums(const common::Call& c, size_t sums, size_t x) {
  expect(c.in[sums].dtype == wide(c.in[x].dtype) && rows(c.in[sums]) == rows(c.in[x]), "sums must be (B, T, groups)");
}

Descs gated_squares(const common::Call& c) {
  expect_part(c, 0, c.integer("groups"));
  eng_desc out = with_columns(c.in[0], c.integer("groups"));
  out.dtype = wide(out.dtype);
  return {out};
}
INFER(gated_squares)

Descs gated_squares_grad(const common::Call& c) {
  expect_part(c, 0, c.integer("groups"));
  expect_sums(c, 2, 0);
  return {c.in[0], c.in[1]};
}
INFER(gated_squares_grad)

eng_status gated_squares_rule(eng_gradient* g, eng_error* error) {
  const auto& api = *g->api;
  const std::array<eng_id, 5> in = {api.in(g, 0), api.in(g, 1), api.d_out(g, 0), api.take(g, 0), api.take(g, 1)};
  uint32_t n_attrs = 0;
  const eng_attr* attrs = api.attrs(g, &n_attrs);
  eng_id d[2] = {};
  api.emit(g, MAMBA_OP_GATED_SQUARES_GRAD, in.data(), 5, d, 2, attrs, n_attrs, nullptr);
  for (uint32_t k = 0; k < 2; ++k)
    if (api.wants(g, k)) api.give(g, k, d[k]);
  return api.status(g, error);
}

void expect_norm_part(const common::Call& c, size_t x) {
  expect_part(c, x, columns(c.in[x + 3]));
  expect_sums(c, x + 3, x);
  expect(is(c.in[x + 2], {columns(c.in[x])}), "w must be (E)");
  expect(c.integer("columns") >= columns(c.in[x]), "a group must have the columns of x");
}

Descs gated_norm_part(const common::Call& c) {
  expect_norm_part(c, 0);
  return {c.in[0]};
}
INFER(gated_norm_part)

Descs gated_norm_part_grad(const common::Call& c) {
  expect_norm_part(c, 1);
  expect(common::elements(c.in[0]) == common::elements(c.in[1]), "dy must have the shape of x");
  return {c.in[1], c.in[2], c.in[3], c.in[4]};
}
INFER(gated_norm_part_grad)

eng_status gated_norm_part_rule(eng_gradient* g, eng_error* error) {
  const auto& api = *g->api;
  const std::array<eng_id, 5> in = {api.d_out(g, 0), api.in(g, 0), api.in(g, 1), api.in(g, 2), api.in(g, 3)};
  uint32_t n_attrs = 0;
  const eng_attr* attrs = api.attrs(g, &n_attrs);
  eng_id d[4] = {};
  api.emit(g, MAMBA_OP_GATED_NORM_PART_GRAD, in.data(), 5, d, 4, attrs, n_attrs, nullptr);
  for (uint32_t k = 0; k < 4; ++k)
    if (api.wants(g, k)) api.give(g, k, d[k]);
  return api.status(g, error);
}

const eng_in_place squares_places[] = {{.out = 0, .in = 3, .must = 1}, {.out = 1, .in = 4, .must = 1}};
const eng_in_place norm_places[] = {{.out = 0, .in = 0}};

}  // namespace

// Members that are not named are 0.
extern const eng_op norm_part_ops[norm_part_op_count] = {
    {.struct_size = sizeof(eng_op),
     .flags = ENG_OP_BY_POSITION,
     .id = MAMBA_OP_GATED_SQUARES,
     .min_in = 2,
     .max_in = 2,
     .infer = gated_squares_infer,
     .grad = gated_squares_rule},
    {.struct_size = sizeof(eng_op),
     .id = MAMBA_OP_GATED_SQUARES_GRAD,
     .min_in = 3,
     .max_in = 5,
     .infer = gated_squares_grad_infer,
     .in_place = squares_places,
     .n_in_place = 2},
    {.struct_size = sizeof(eng_op),
     .flags = ENG_OP_CHEAP | ENG_OP_BY_POSITION,
     .id = MAMBA_OP_GATED_NORM_PART,
     .min_in = 4,
     .max_in = 4,
     .infer = gated_norm_part_infer,
     .grad = gated_norm_part_rule},
    {.struct_size = sizeof(eng_op),
     .id = MAMBA_OP_GATED_NORM_PART_GRAD,
     .min_in = 5,
     .max_in = 5,
     .infer = gated_norm_part_grad_infer,
     .in_place = norm_places,
     .n_in_place = 1,
     .sums = 1U << 2},
};

}  // namespace mamba
