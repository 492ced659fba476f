// SPDX-License-Identifier: Apache-2.0
// Shapes, work and gradients of the ops of Mamba-2.
#include "ssd.hpp"

#include <array>

#include "rules.hpp"

namespace mamba {
namespace {

using common::columns;
using common::elements;
using common::rows;

// The inputs from `first`: xbc, dt, a_log, d, dt_bias. Returns E, the channels.
int64_t expect_ssd(const common::Call& c, size_t first) {
  const eng_desc &xbc = c.in[first], &dt = c.in[first + 1], &a_log = c.in[first + 2];
  const int64_t groups = c.integer("groups"), states = c.integer("states");
  expect(groups >= 1 && states >= 1, "groups and states must be at least 1");
  expect(xbc.ndim == 3 && a_log.ndim == 1, "xbc must be (B, T, E + 2 G N) and a_log (H)");
  const int64_t heads = a_log.dims[0], channels = columns(xbc) - 2 * groups * states;
  expect(heads % groups == 0, "the number of heads must be a multiple of that of groups");
  expect(channels >= heads && channels % heads == 0, "xbc must have a multiple of H columns before B and C");
  expect(dt.ndim == 3 && dt.dims[0] == xbc.dims[0] && dt.dims[1] == xbc.dims[1] && dt.dims[2] >= heads,
         "dt must be (B, T, H or more)");
  expect(is(c.in[first + 3], {heads}) && is(c.in[first + 4], {heads}), "d and dt_bias must be (H)");
  expect(c.real("low") <= c.real("high"), "low must not be above high");
  return channels;
}

Descs ssd(const common::Call& c) {
  const int64_t channels = expect_ssd(c, 0);
  expect_segments(c, 5, c.in[0]);
  return {with_columns(c.in[0], channels)};
}
INFER(ssd)

Descs ssd_grad(const common::Call& c) {
  const int64_t channels = expect_ssd(c, 1);
  expect(is(c.in[0], {c.in[1].dims[0], c.in[1].dims[1], channels}), "dy must be (B, T, E)");
  expect_segments(c, 6, c.in[1]);
  return {c.in[1], c.in[2], c.in[3], c.in[4], c.in[5]};
}
INFER(ssd_grad)

Descs ssd_step(const common::Call& c) {
  const eng_desc &xbc = c.in[0], &h = c.in[5];
  const int64_t channels = expect_ssd(c, 0), heads = c.in[2].dims[0];
  expect(h.dtype == wide(xbc.dtype) && is(h, {xbc.dims[0], heads, c.integer("states"), channels / heads}),
         "h must be (B, H, N, P)");
  return {with_columns(xbc, channels), h};
}
INFER(ssd_step)

// The work in chunks: so many products with the states of all channels, and so many within a chunk
// of all channels, and of the B and C of all groups.
double flops(const common::Call& c, const eng_desc& xbc, double with_states, double of_channels, double of_groups) {
  const auto part = static_cast<double>(c.integer("groups") * c.integer("states"));
  const double channels = static_cast<double>(columns(xbc)) - 2 * part;
  return static_cast<double>(rows(xbc)) * (2 * with_states * channels * static_cast<double>(c.integer("states")) +
                                           static_cast<double>(chunk) * (of_channels * channels + of_groups * part));
}
double ssd_flops(const eng_call* call) {
  return flops(*call, call->in[0], 2, 1, 1);
}
double ssd_grad_flops(const eng_call* call) {
  return flops(*call, call->in[1], 5, 2, 3);
}

eng_status ssd_rule(eng_gradient* g, eng_error* error) {
  const auto& api = *g->api;
  const std::array<eng_id, 7> in = {api.d_out(g, 0), api.in(g, 0), api.in(g, 1), api.in(g, 2),
                                    api.in(g, 3),    api.in(g, 4), api.in(g, 5)};
  uint32_t n_attrs = 0;
  const eng_attr* attrs = api.attrs(g, &n_attrs);
  eng_id d[5] = {};
  api.emit(g, MAMBA_OP_SSD_GRAD, in.data(), in[6] ? 7 : 6, d, 5, attrs, n_attrs, nullptr);
  for (uint32_t k = 0; k < 5; ++k)
    if (api.wants(g, k)) api.give(g, k, d[k]);
  return api.status(g, error);
}

eng_status ssd_step_rule(eng_stepping* s, eng_error* error) {
  const auto& api = *s->api;
  if (api.has(s, 5)) return refuse_segments(error);
  uint32_t n_attrs = 0;
  const eng_attr* attrs = api.attrs(s, &n_attrs);
  int64_t groups = 1, states = 1;
  for (uint32_t k = 0; k < n_attrs; ++k) {
    if (attrs[k].key == std::string("groups")) groups = attrs[k].i;
    if (attrs[k].key == std::string("states")) states = attrs[k].i;
  }
  std::array<eng_id, 6> in = {};
  for (uint32_t k = 0; k < 5; ++k) in[k] = api.in(s, k);
  eng_desc xbc{}, a_log{};
  api.shape(s, in[0], &xbc, nullptr);
  api.shape(s, in[2], &a_log, nullptr);
  if (eng_status failed = api.status(s, error)) return failed;
  const int64_t heads = a_log.dims[0];
  const eng_desc h = make(wide(xbc.dtype), {xbc.dims[0], heads, states, (columns(xbc) - 2 * groups * states) / heads});
  in[5] = api.state(s, &h);
  eng_id out[2] = {0, 0};
  api.emit(s, MAMBA_OP_SSD_STEP, in.data(), 6, out, 2, attrs, n_attrs, nullptr);
  api.give(s, 0, out[0]);
  return api.status(s, error);
}

void expect_norm(const common::Call& c, size_t first) {
  const int64_t groups = c.integer("groups"), width = columns(c.in[first]);
  expect(groups >= 1 && width % groups == 0, "groups must divide the columns of x");
  expect(rows(c.in[first]) == rows(c.in[first + 1]) && width == columns(c.in[first + 1]), "x and z must agree");
  expect(is(c.in[first + 2], {width}), "w must be (E)");
}

Descs gated_norm(const common::Call& c) {
  expect_norm(c, 0);
  return {c.in[0]};
}
INFER(gated_norm)

Descs gated_norm_grad(const common::Call& c) {
  expect_norm(c, 1);
  expect(elements(c.in[0]) == elements(c.in[1]), "dy must have the shape of x");
  return {c.in[1], c.in[2], c.in[3]};
}
INFER(gated_norm_grad)

eng_status gated_norm_rule(eng_gradient* g, eng_error* error) {
  const auto& api = *g->api;
  const std::array<eng_id, 4> in = {api.d_out(g, 0), api.in(g, 0), api.in(g, 1), api.in(g, 2)};
  uint32_t n_attrs = 0;
  const eng_attr* attrs = api.attrs(g, &n_attrs);
  eng_id d[3] = {};
  api.emit(g, MAMBA_OP_GATED_NORM_GRAD, in.data(), 4, d, 3, attrs, n_attrs, nullptr);
  for (uint32_t k = 0; k < 3; ++k)
    if (api.wants(g, k)) api.give(g, k, d[k]);
  return api.status(g, error);
}

const eng_in_place ssd_step_places[] = {{.out = 1, .in = 5, .must = 1}};
const eng_in_place gated_norm_grad_places[] = {{.out = 0, .in = 0}};

}  // namespace

// Members that are not named are 0.
extern const eng_op ssd_ops[ssd_op_count] = {
    {.struct_size = sizeof(eng_op),
     .id = MAMBA_OP_SSD,
     .min_in = 5,
     .max_in = 6,
     .infer = ssd_infer,
     .flops = ssd_flops,
     .grad = ssd_rule,
     .step = ssd_step_rule},
    {.struct_size = sizeof(eng_op),
     .id = MAMBA_OP_SSD_GRAD,
     .min_in = 6,
     .max_in = 7,
     .infer = ssd_grad_infer,
     .flops = ssd_grad_flops},
    {.struct_size = sizeof(eng_op),
     .id = MAMBA_OP_SSD_STEP,
     .min_in = 6,
     .max_in = 6,
     .infer = ssd_step_infer,
     .flops = ssd_flops,
     .in_place = ssd_step_places,
     .n_in_place = 1},
    {.struct_size = sizeof(eng_op),
     .flags = ENG_OP_CHEAP | ENG_OP_BY_POSITION,
     .id = MAMBA_OP_GATED_NORM,
     .min_in = 3,
     .max_in = 3,
     .infer = gated_norm_infer,
     .grad = gated_norm_rule},
    {.struct_size = sizeof(eng_op),
     .id = MAMBA_OP_GATED_NORM_GRAD,
     .min_in = 4,
     .max_in = 4,
     .infer = gated_norm_grad_infer,
     .in_place = gated_norm_grad_places,
     .n_in_place = 1,
     .sums = 1U << 2},
    {.struct_size = sizeof(eng_op), .id = MAMBA_OP_INIT_LOG_UNIFORM},
};

}  // namespace mamba
