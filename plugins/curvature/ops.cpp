// SPDX-License-Identifier: Apache-2.0
// The shapes of the ops, for the planner. What else a call must bring is checked by the kernels.
#include "call.hpp"

namespace curvature {
namespace {

template <uint32_t... from>
eng_status infer(const eng_call* c, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  const uint32_t inputs[] = {from...};
  if (cap < sizeof...(from)) return common::report(error, ENG_OUT_OF_RANGE, "the host has no room for the outputs");
  for (uint32_t k = 0; k < sizeof...(from); ++k) out[k] = c->in[inputs[k]];
  *n_out = sizeof...(from);
  return ENG_OK;
}

const eng_in_place hutchinson_places[] = {{0, 2, 1, 0}, {1, 3, 1, 0}}, fisher_places[] = {{0, 1, 1, 0}, {1, 2, 1, 0}},
                   count_places[] = {{0, 1, 1, 0}};

// Members that are not named are 0.
const eng_op all[] = {
    {.struct_size = sizeof(eng_op), .id = CURVATURE_OP_PERTURB, .min_in = 3, .max_in = 3, .infer = infer<0>},
    {.struct_size = sizeof(eng_op), .id = CURVATURE_OP_NOISE, .min_in = 5, .max_in = 5, .infer = infer<0>},
    {.struct_size = sizeof(eng_op),
     .id = CURVATURE_OP_HUTCHINSON,
     .min_in = 6,
     .max_in = 6,
     .infer = infer<2, 3>,
     .in_place = hutchinson_places,
     .n_in_place = 2},
    {.struct_size = sizeof(eng_op),
     .id = CURVATURE_OP_FISHER,
     .min_in = 4,
     .max_in = 4,
     .infer = infer<1, 2>,
     .in_place = fisher_places,
     .n_in_place = 2},
    {.struct_size = sizeof(eng_op), .id = CURVATURE_OP_COPY, .min_in = 1, .max_in = 1, .infer = infer<0>},
    {.struct_size = sizeof(eng_op),
     .id = CURVATURE_OP_COUNT,
     .min_in = 2,
     .max_in = 2,
     .infer = infer<1>,
     .in_place = count_places,
     .n_in_place = 1},
};
const eng_op* const list[] = {&all[0], &all[1], &all[2], &all[3], &all[4], &all[5]};

}  // namespace

const eng_ops ops = {.struct_size = sizeof(eng_ops), .count = 6, .ops = list};

}  // namespace curvature
