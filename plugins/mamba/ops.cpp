// SPDX-License-Identifier: Apache-2.0
// Shapes, work and gradients of Mamba's ops.
#include "ops.hpp"

#include <array>

#include "norm_part.hpp"
#include "rules.hpp"
#include "ssd.hpp"

namespace mamba {
namespace {

using common::columns;
using common::elements;
using common::rows;

// The kernels hold the taps of a channel in registers.
void expect_taps(const eng_desc& x, const eng_desc& w) {
  expect(x.ndim == 3 && w.ndim == 3 && w.dims[1] == 1 && columns(x) >= w.dims[0],
         "x must be (B, T, E or more) and w (E, 1, K)");
  expect(w.dims[2] >= 2 && w.dims[2] <= 4, "the convolution has 2 to 4 taps");
}

Descs conv(const common::Call& c) {
  const eng_desc &x = c.in[0], &w = c.in[1];
  expect_taps(x, w);
  expect(!c.has(2) || is(c.in[2], {w.dims[0]}), "bias must be (E)");
  expect_segments(c, 3, x);
  return {with_columns(x, w.dims[0])};
}
INFER(conv)

double conv_flops(const eng_call* c) {
  return 2.0 * static_cast<double>(elements(c->out[0])) * static_cast<double>(columns(c->in[1]));
}

Descs conv_grad(const common::Call& c) {
  expect_taps(c.in[1], c.in[2]);
  expect(!c.has(4) || elements(c.in[4]) == elements(c.in[1]), "dx_acc must have the shape of x");
  expect_segments(c, 5, c.in[1]);
  Descs out = {c.in[1], c.in[2]};
  if (c.has(3)) out.push_back(c.in[3]);
  return out;
}
INFER(conv_grad)

double conv_grad_flops(const eng_call* c) {
  return 6.0 * static_cast<double>(elements(c->in[0])) * static_cast<double>(columns(c->in[2]));
}

eng_status conv_rule(eng_gradient* g, eng_error* error) {
  const auto& api = *g->api;
  const std::array<eng_id, 6> in = {api.d_out(g, 0), api.in(g, 0),   api.in(g, 1),
                                    api.in(g, 2),    api.take(g, 0), api.in(g, 3)};
  const bool bias = in[3] != 0;
  eng_id d[3] = {0, 0, 0};
  api.emit(g, MAMBA_OP_CONV_GRAD, in.data(), in[5] ? 6 : 5, d, bias ? 3 : 2, nullptr, 0, nullptr);
  for (uint32_t k = 0; k < 3; ++k)
    if (api.wants(g, k)) api.give(g, k, d[k]);
  return api.status(g, error);
}

Descs conv_step(const common::Call& c) {
  const int64_t channels = c.in[1].dims[0], taps = columns(c.in[1]);
  expect(is(c.in[2], {c.in[0].dims[0], taps - 1, channels}), "last must be (B, K - 1, E)");
  return {with_columns(c.in[0], channels), c.in[2]};
}
INFER(conv_step)

eng_status conv_step_rule(eng_stepping* s, eng_error* error) {
  const auto& api = *s->api;
  if (api.in(s, 3)) return refuse_segments(error);
  eng_desc x{}, w{};
  api.shape(s, api.in(s, 0), &x, nullptr);
  api.shape(s, api.in(s, 1), &w, nullptr);
  const eng_desc last = make(x.dtype, {x.dims[0], w.dims[2] - 1, w.dims[0]});
  const std::array<eng_id, 4> in = {api.in(s, 0), api.in(s, 1), api.state(s, &last), api.in(s, 2)};
  eng_id out[2] = {0, 0};
  api.emit(s, MAMBA_OP_CONV_STEP, in.data(), 4, out, 2, nullptr, 0, nullptr);
  api.give(s, 0, out[0]);
  return api.status(s, error);
}

Descs scan(const common::Call& c) {
  const eng_desc &u = c.in[0], &a_log = c.in[2], &gate = c.in[6];
  expect(u.ndim == 3 && a_log.ndim == 2 && a_log.dims[0] == columns(u), "u must be (B, T, E) and a_log (E, N)");
  const int64_t batch = u.dims[0], tokens = u.dims[1], channels = u.dims[2], states = a_log.dims[1];
  expect(is(c.in[1], {batch, tokens, channels}), "delta must have the shape of u");
  expect(is(c.in[3], {batch, tokens, 2 * states}), "bc must be (B, T, 2N)");
  expect(is(c.in[4], {channels}) && is(c.in[5], {channels}), "d and dt_bias must be (E)");
  expect(gate.ndim == 3 && gate.dims[0] == batch && gate.dims[1] == tokens && gate.dims[2] >= channels,
         "gate must be (B, T, E or more)");
  expect_segments(c, 9, u);
  expect(c.has(7) == c.has(8), "dt and w must be given together");
  expect(!c.has(7) || (is(c.in[7], {batch, tokens, columns(c.in[7])}) && is(c.in[8], {channels, columns(c.in[7])})),
         "dt must be (B, T, R) and w (E, R)");
  return {u, make(wide(u.dtype), {batch, chunks(tokens), states, channels})};
}
INFER(scan)

// For each state of each channel: the exponent, its power (counted as one), and two multiply-adds.
double scan_flops(const eng_call* c) {
  return 6.0 * static_cast<double>(elements(c->in[0])) * static_cast<double>(columns(c->in[2]));
}

Descs scan_grad(const common::Call& c) {
  expect(elements(c.in[0]) == elements(c.in[1]), "dy must have the shape of u");
  expect_segments(c, 9, c.in[1]);
  return {c.in[1], c.in[2], c.in[3], c.in[4], c.in[5], c.in[6], c.in[7]};
}
INFER(scan_grad)

// For each state of each channel: the work of the forward again, and eight multiply-adds.
double scan_grad_flops(const eng_call* c) {
  return 22.0 * static_cast<double>(elements(c->in[1])) * static_cast<double>(columns(c->in[3]));
}

eng_status scan_rule(eng_gradient* g, eng_error* error) {
  const auto& api = *g->api;
  eng_id delta = api.in(g, 1);
  if (api.in(g, 7)) {
    const std::array<eng_id, 2> in = {api.in(g, 7), api.in(g, 8)};
    api.emit(g, "eng.linear/1", in.data(), 2, &delta, 1, nullptr, 0, nullptr);
  }
  std::array<eng_id, 10> in = {api.d_out(g, 0)};
  for (uint32_t k = 0; k < 7; ++k) in[k + 1] = k == 1 ? delta : api.in(g, k);
  in[8] = api.out(g, 1), in[9] = api.in(g, 9);
  eng_id d[7] = {};
  api.emit(g, MAMBA_OP_SCAN_GRAD, in.data(), in[9] ? 10 : 9, d, 7, nullptr, 0, nullptr);
  for (uint32_t k = 0; k < 7; ++k)
    if (api.wants(g, k)) api.give(g, k, d[k]);
  return api.status(g, error);
}

Descs scan_step(const common::Call& c) {
  const eng_desc &u = c.in[0], &h = c.in[7];
  expect(h.dtype == wide(u.dtype) && is(h, {u.dims[0], columns(c.in[2]), columns(u)}), "h must be (B, N, E)");
  return {u, h};
}
INFER(scan_step)

eng_status scan_step_rule(eng_stepping* s, eng_error* error) {
  const auto& api = *s->api;
  if (api.in(s, 9)) return refuse_segments(error);
  eng_desc u{}, a_log{};
  api.shape(s, api.in(s, 0), &u, nullptr);
  api.shape(s, api.in(s, 2), &a_log, nullptr);
  const eng_desc h = make(wide(u.dtype), {u.dims[0], a_log.dims[1], a_log.dims[0]});
  std::array<eng_id, 8> in = {};
  for (uint32_t k = 0; k < 7; ++k) in[k] = api.in(s, k);
  in[7] = api.state(s, &h);
  eng_id out[2] = {0, 0};
  api.emit(s, MAMBA_OP_SCAN_STEP, in.data(), 8, out, 2, nullptr, 0, nullptr);
  api.give(s, 0, out[0]);
  return api.status(s, error);
}

Descs split(const common::Call& c) {
  const int64_t at = c.integer("at"), all = columns(c.in[0]);
  expect(c.in[0].ndim > 0 && at > 0 && at < all, "`at` must lie inside the last dimension");
  return {with_columns(c.in[0], at), with_columns(c.in[0], all - at)};
}
INFER(split)

Descs join(const common::Call& c) {
  expect(c.in[0].dtype == c.in[1].dtype && c.in[0].ndim > 0 && rows(c.in[0]) == rows(c.in[1]),
         "a and b must agree in all but the last dimension");
  return {with_columns(c.in[0], columns(c.in[0]) + columns(c.in[1]))};
}
INFER(join)

eng_status split_rule(eng_gradient* g, eng_error* error) {
  const auto& api = *g->api;
  const std::array<eng_id, 2> in = {api.d_out(g, 0), api.d_out(g, 1)};
  if (!in[0] || !in[1]) return common::report(error, ENG_UNSUPPORTED, "both outputs of a split must be used");
  eng_id d = 0;
  api.emit(g, MAMBA_OP_JOIN, in.data(), 2, &d, 1, nullptr, 0, nullptr);
  api.give(g, 0, d);
  return api.status(g, error);
}

const eng_in_place conv_grad_places[] = {{.out = 0, .in = 4, .must = 1}};
const eng_in_place scan_grad_places[] = {{.out = 0, .in = 0}, {.out = 1, .in = 2}};
const eng_in_place conv_step_places[] = {{.out = 1, .in = 2, .must = 1}};
const eng_in_place scan_step_places[] = {{.out = 1, .in = 7, .must = 1}};
// Members that are not named are 0.
const eng_op ops[] = {
    {.struct_size = sizeof(eng_op),
     .flags = ENG_OP_CHEAP,
     .id = MAMBA_OP_CONV,
     .min_in = 2,
     .max_in = 4,
     .infer = conv_infer,
     .flops = conv_flops,
     .grad = conv_rule,
     .step = conv_step_rule},
    {.struct_size = sizeof(eng_op),
     .id = MAMBA_OP_CONV_GRAD,
     .min_in = 3,
     .max_in = 6,
     .infer = conv_grad_infer,
     .flops = conv_grad_flops,
     .in_place = conv_grad_places,
     .n_in_place = 1,
     .sums = 1U << 1 | 1U << 2},
    {.struct_size = sizeof(eng_op),
     .id = MAMBA_OP_CONV_STEP,
     .min_in = 3,
     .max_in = 4,
     .infer = conv_step_infer,
     .flops = conv_flops,
     .in_place = conv_step_places,
     .n_in_place = 1},
    {.struct_size = sizeof(eng_op),
     .id = MAMBA_OP_SCAN,
     .min_in = 7,
     .max_in = 10,
     .infer = scan_infer,
     .flops = scan_flops,
     .grad = scan_rule,
     .step = scan_step_rule},
    {.struct_size = sizeof(eng_op),
     .id = MAMBA_OP_SCAN_GRAD,
     .min_in = 9,
     .max_in = 10,
     .infer = scan_grad_infer,
     .flops = scan_grad_flops,
     .in_place = scan_grad_places,
     .n_in_place = 2},
    {.struct_size = sizeof(eng_op),
     .id = MAMBA_OP_SCAN_STEP,
     .min_in = 8,
     .max_in = 8,
     .infer = scan_step_infer,
     .flops = scan_flops,
     .in_place = scan_step_places,
     .n_in_place = 1},
    {.struct_size = sizeof(eng_op),
     .flags = ENG_OP_BY_POSITION,
     .id = MAMBA_OP_SPLIT,
     .min_in = 1,
     .max_in = 1,
     .infer = split_infer,
     .grad = split_rule},
    {.struct_size = sizeof(eng_op), .id = MAMBA_OP_JOIN, .min_in = 2, .max_in = 2, .infer = join_infer},
    {.struct_size = sizeof(eng_op), .id = MAMBA_OP_INIT_A_LOG},
    {.struct_size = sizeof(eng_op), .id = MAMBA_OP_INIT_DT_BIAS},
};
const eng_op* const list[] = {&ops[0],     &ops[1],           &ops[2],           &ops[3],           &ops[4],
                              &ops[5],     &ops[6],           &ops[7],           &ops[8],           &ops[9],
                              &ssd_ops[0], &ssd_ops[1],       &ssd_ops[2],       &ssd_ops[3],       &ssd_ops[4],
                              &ssd_ops[5], &norm_part_ops[0], &norm_part_ops[1], &norm_part_ops[2], &norm_part_ops[3]};
static_assert(sizeof list / sizeof *list == sizeof ops / sizeof *ops + ssd_op_count + norm_part_op_count);

}  // namespace

extern const eng_ops all_ops = {.struct_size = sizeof(eng_ops), .count = sizeof list / sizeof *list, .ops = list};

}  // namespace mamba
