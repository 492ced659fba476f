// SPDX-License-Identifier: Apache-2.0
// Ops of a step around the model: its begin, rows of the batch and of losses, copies, and sums over ranks.
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

std::string begin_step(const Call& c, Descs& out) {
  out = {make_desc(ENG_F32, {ENG_S_COUNT}), c.in(1)};
  return "";
}

std::string get_row(const Call& c, Descs& out) {
  eng_desc row = c.in(0);
  for (uint32_t k = 1; k < row.ndim; ++k) row.dims[k - 1] = row.dims[k];
  row.ndim -= 1;
  out.push_back(row);
  return "";
}

// The flat input is `rows` rows, one after the other. Attribute dtype: that of the sum; absent: that of x.
std::string fold(const Call& c, Descs& out) {
  const eng_desc& x = c.in(0);
  const int64_t m = c.i("rows");
  if (m < 1 || count(x) % m) return "x must be m rows of equal length";
  if (x.ndim != 1) return "the input must be flat (one dimension)";
  const int64_t sum = c.i("dtype", x.dtype);
  if (sum != x.dtype && sum != wide(x.dtype)) return "the sum must have the dtype of x, or be f32";
  out.push_back(make_desc(sum, {count(x) / m}));
  return "";
}

const eng_in_place begin_places[] = {must_take(1, 1)};
const eng_in_place put_row_places[] = {must_take(0, 1), must_take(1, 2)};

}  // namespace

Family step_ops() {
  static const eng_op all[] = {
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_BEGIN,
       .min_in = 2,
       .max_in = 2,
       .infer = infer<begin_step>,
       .in_place = begin_places,
       .n_in_place = 1},
      {.struct_size = sizeof(eng_op), .id = ENG_OP_GET_ROW, .min_in = 2, .max_in = 2, .infer = infer<get_row>},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_PUT_ROW,
       .min_in = 3,
       .max_in = 3,
       .infer = infer<as_inputs<1, 2>>,
       .in_place = put_row_places,
       .n_in_place = 2},
      {.struct_size = sizeof(eng_op), .id = ENG_OP_COPY, .min_in = 1, .max_in = 1, .infer = infer<as_inputs<0>>},
      {.struct_size = sizeof(eng_op), .id = ENG_OP_FOLD, .min_in = 1, .max_in = 1, .infer = infer<fold>},
  };
  return all;
}

}  // namespace ops
