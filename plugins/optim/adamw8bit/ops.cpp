// SPDX-License-Identifier: Apache-2.0
// The shapes of the op, for the planner.
#include <cstring>

#include "adamw8bit.hpp"

namespace adamw8bit {
namespace {

int64_t elements(const eng_desc& d) {
  int64_t n = 1;
  for (uint32_t k = 0; k < d.ndim; ++k) n *= d.dims[k];
  return n;
}

eng_status infer(const eng_call* c, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  const int64_t n = elements(c->in[0]);
  const auto is = [&](uint32_t k, int32_t dtype, int64_t count) {
    return c->in[k].dtype == dtype && elements(c->in[k]) == count;
  };
  if (cap < 6 || n % block || !is(0, ENG_F32, n) || !is(1, ENG_F32, n) || !is(2, ENG_U8, n) ||
      !is(3, ENG_F32, n / block) || !is(4, ENG_U8, n) || !is(5, ENG_F32, n / block) || !is(6, ENG_F32, 32))
    return common::report(error, ENG_INVALID,
                          "takes p and grad (n) f32, codes (n) u8, scales (n/256) f32, codes and scales again, and "
                          "scalars (32) f32; n must be a multiple of 256");
  const uint32_t from[] = {0, 2, 3, 4, 5};
  for (uint32_t k = 0; k < 5; ++k) out[k] = c->in[from[k]];
  *n_out = 5;
  for (uint32_t k = 0; k < c->n_attrs; ++k) {
    const eng_attr& attr = c->attrs[k];
    if (std::strcmp(attr.key, "weight") != 0) continue;
    if (attr.i != ENG_BF16 && attr.i != ENG_F16)
      return common::report(error, ENG_INVALID, "the weight that it writes must be bf16 or f16");
    out[5] = c->in[0];
    out[5].dtype = static_cast<int32_t>(attr.i);
    *n_out = 6;
  }
  return ENG_OK;
}

const eng_in_place in_place[] = {{0, 0, 1, 0}, {1, 2, 1, 0}, {2, 3, 1, 0}, {3, 4, 1, 0}, {4, 5, 1, 0}};

constexpr eng_op make_update() {
  eng_op op{};
  op.struct_size = sizeof op, op.id = ADAMW8BIT_OP_UPDATE, op.min_in = op.max_in = 7, op.infer = infer;
  op.in_place = in_place, op.n_in_place = 5;
  return op;
}
const eng_op update_op = make_update();
const eng_op* const list[] = {&update_op};

}  // namespace

const eng_ops ops = {.struct_size = sizeof(eng_ops), .count = 1, .ops = list};

}  // namespace adamw8bit
