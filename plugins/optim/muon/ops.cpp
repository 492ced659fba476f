// SPDX-License-Identifier: Apache-2.0
// Shapes and work of muon's ops, for the planner.
#include <cstring>

#include "neurons.hpp"

namespace muon {
namespace {

eng_status refuse(eng_error* error, const char* text) {
  return common::report(error, ENG_INVALID, text);
}

int64_t elements(const eng_desc& d) {
  int64_t n = 1;
  for (uint32_t k = 0; k < d.ndim; ++k) n *= d.dims[k];
  return n;
}

bool fits(const eng_call* c, uint32_t n_equal, uint32_t scalars) {
  for (uint32_t k = 0; k < n_equal; ++k)
    if (c->in[k].dtype != c->in[0].dtype || elements(c->in[k]) != elements(c->in[0])) return false;
  return elements(c->in[scalars]) == 32;
}

eng_status infer_momentum(const eng_call* c, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  if (cap < 2 || !fits(c, 2, 2)) return refuse(error, "takes grad and m of one type and shape, and scalars (32)");
  out[0] = c->in[0], out[1] = c->in[1];
  *n_out = 2;
  return ENG_OK;
}

eng_status infer_normalize(const eng_call* c, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  if (cap < 1 || c->in[0].ndim != 2) return refuse(error, "takes a matrix (M, N)");
  out[0] = c->in[0];
  *n_out = 1;
  return ENG_OK;
}

eng_status infer_neurons(const eng_call* c, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  if (cap < 2 || c->in[0].ndim != 2 || c->in[1].dtype != c->in[0].dtype || elements(c->in[1]) != c->in[0].dims[0] ||
      elements(c->in[2]) != 32)
    return refuse(error, "takes a matrix (M, N), a value for each of its rows of the same type, and scalars (32)");
  out[0] = c->in[0], out[1] = c->in[1];
  *n_out = 2;
  return ENG_OK;
}

eng_status infer_apply(const eng_call* c, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  if (cap < 2 || !fits(c, 2, 2)) return refuse(error, "takes p and o of one type and shape, and scalars (32)");
  out[0] = out[1] = c->in[0];
  *n_out = 1;
  for (uint32_t k = 0; k < c->n_attrs; ++k)
    if (!std::strcmp(c->attrs[k].key, "weight")) out[1].dtype = static_cast<int32_t>(c->attrs[k].i), *n_out = 2;
  if (*n_out == 2 && (c->in[0].dtype != ENG_F32 || (out[1].dtype != ENG_BF16 && out[1].dtype != ENG_F16)))
    return refuse(error, "the weight that it writes must be bf16 or f16, and p f32");
  return ENG_OK;
}

const eng_in_place momentum_in_place[] = {{0, 0, 1, 0}, {1, 1, 1, 0}};
const eng_in_place first_in_place[] = {{0, 0, 1, 0}}, first_may_be_in_place[] = {{0, 0, 0, 0}};

constexpr eng_op make_op(const char* id, uint32_t inputs, decltype(eng_op::infer) infer) {
  eng_op op{};
  op.struct_size = sizeof op, op.id = id, op.min_in = op.max_in = inputs, op.infer = infer;
  return op;
}
template <uint32_t n>
constexpr eng_op in_place(eng_op op, const eng_in_place (&pairs)[n]) {
  op.in_place = pairs, op.n_in_place = n;
  return op;
}
const eng_op momentum_op = in_place(make_op(MUON_OP_MOMENTUM, 3, infer_momentum), momentum_in_place);
const eng_op normalize_op = in_place(make_op(MUON_OP_NORMALIZE, 1, infer_normalize), first_may_be_in_place);
const eng_op neurons_op = in_place(make_op(MUON_OP_NEURONS, 3, infer_neurons), momentum_in_place);
const eng_op apply_op = in_place(make_op(MUON_OP_APPLY, 3, infer_apply), first_in_place);
const eng_op* const list[] = {&momentum_op, &normalize_op, &apply_op, &neurons_op};

}  // namespace

const eng_ops ops = {.struct_size = sizeof(eng_ops), .count = 4, .ops = list};

}  // namespace muon
