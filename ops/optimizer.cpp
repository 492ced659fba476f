// SPDX-License-Identifier: Apache-2.0
// The update of a step: the norm of the gradients, the loss scale, and the standard optimizers.
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

std::string sum_squares(const Call& c, Descs& out) {
  if (count(c.in(0)) % 4096) return "the length must be a multiple of 4096";
  out.push_back(make_desc(ENG_F32, {count(c.in(0)) / 4096}));
  return "";
}

// Appends the 16-bit weight that an update may write beside p, its first input.
std::string add_weight(const Call& c, Descs& out) {
  const int64_t dtype = c.i("weight");
  if (!dtype) return "";
  if (c.in(0).dtype != ENG_F32 || (dtype != ENG_BF16 && dtype != ENG_F16))
    return "the weight that it writes must be bf16 or f16, and p f32";
  out.push_back(c.in(0));
  out.back().dtype = static_cast<int32_t>(dtype);
  return "";
}

// Values that are kept in bf16 are rounded by numbers that depend on the update: input `at` are the counters.
std::string counted(const Call& c, uint32_t at) {
  const bool given = c.has(at) && c.in(at).dtype == ENG_I64;
  return c.in(0).dtype == ENG_BF16 && !given ? "p in bf16 needs the counters" : "";
}

std::string adamw(const Call& c, Descs& out) {
  if (std::string wrong = counted(c, 5); !wrong.empty()) return wrong;
  out = {c.in(0), c.in(2), c.in(3)};
  return add_weight(c, out);
}

std::string sgd(const Call& c, Descs& out) {
  if (std::string wrong = counted(c, 4); !wrong.empty()) return wrong;
  out.push_back(c.in(0));
  if (c.has(2)) out.push_back(c.in(2));
  return add_weight(c, out);
}

const eng_in_place finish_places[] = {must_take(0, 2), must_take(1, 3)};
const eng_in_place loss_scale_places[] = {must_take(0, 1)};
const eng_in_place scaler_places[] = {must_take(0, 0)};
const eng_in_place adamw_places[] = {must_take(0, 0), must_take(1, 2), must_take(2, 3)};
const eng_in_place sgd_places[] = {must_take(0, 0), must_take(1, 2)};

}  // namespace

Family optimizer_ops() {
  static const eng_op all[] = {
      {.struct_size = sizeof(eng_op), .id = ENG_OP_SUM_SQUARES, .min_in = 1, .max_in = 1, .infer = infer<sum_squares>},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_FINISH,
       .min_in = 4,
       .max_in = 4,
       .infer = infer<as_inputs<2, 3>>,
       .in_place = finish_places,
       .n_in_place = 2},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_LOSS_SCALE,
       .min_in = 2,
       .max_in = 2,
       .infer = infer<as_inputs<1>>,
       .in_place = loss_scale_places,
       .n_in_place = 1},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_SCALER,
       .min_in = 2,
       .max_in = 2,
       .infer = infer<as_inputs<0>>,
       .in_place = scaler_places,
       .n_in_place = 1},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_ADAMW,
       .min_in = 5,
       .max_in = 6,
       .infer = infer<adamw>,
       .in_place = adamw_places,
       .n_in_place = 3},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_SGD,
       .min_in = 4,
       .max_in = 5,
       .infer = infer<sgd>,
       .in_place = sgd_places,
       .n_in_place = 2,
       .optional = 1U << 2},
  };
  return all;
}

}  // namespace ops
