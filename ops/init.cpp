// SPDX-License-Identifier: Apache-2.0
// The ops that fill parameters. Attribute `count`: the number of elements.
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

std::string filled(const Call& c, Descs& out) {
  out.push_back(make_desc(ENG_F32, {c.i("count")}));
  return "";
}

}  // namespace

Family init_ops() {
  static const eng_op all[] = {
      {.struct_size = sizeof(eng_op), .id = ENG_OP_INIT_CONSTANT, .infer = infer<filled>},
      {.struct_size = sizeof(eng_op), .id = ENG_OP_INIT_NORMAL, .infer = infer<filled>},
      {.struct_size = sizeof(eng_op), .id = ENG_OP_INIT_UNIFORM, .infer = infer<filled>},
  };
  return all;
}

}  // namespace ops
