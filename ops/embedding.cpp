// SPDX-License-Identifier: Apache-2.0
// eng.embedding/1 and its gradient.
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

std::string embedding(const Call& c, Descs& out) {
  const eng_desc &tokens = c.in(0), &table = c.in(1);
  if (tokens.dtype != ENG_I32 || tokens.ndim != 2 || table.ndim != 2) return "tokens must be (B, T) i32, table (V, H)";
  out.push_back(make_desc(table.dtype, {tokens.dims[0], tokens.dims[1], table.dims[1]}));
  return "";
}

void embedding_backward(Gradient& g) {
  if (!g.wants(1)) return;
  const int64_t rows = g.desc(g.in(1)).dims[0];
  g.give(1, g.emit(ENG_OP_EMBEDDING_GRAD, {g.in(0), g.d_out(0), g.take(1)}, {{"rows", rows, 0}}));
}

std::string embedding_grad(const Call& c, Descs& out) {
  const eng_desc& dy = c.in(1);
  if (c.in(0).dtype != ENG_I32 || dy.ndim != 3) return "tokens must be (B, T) i32, dy (B, T, H)";
  out.push_back(make_desc(dy.dtype, {c.i("rows"), last(dy)}));
  return "";
}

const eng_in_place embedding_grad_places[] = {must_take(0, 2)};
const eng_index embedding_rows[] = {{.ids = 0, .table = 1, .flags = ENG_INDEX_TOKENS}};

}  // namespace

Family embedding_ops() {
  static const eng_op all[] = {
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_BY_POSITION,
       .id = ENG_OP_EMBEDDING,
       .min_in = 2,
       .max_in = 2,
       .infer = infer<embedding>,
       .grad = grad<embedding_backward>,
       .indexes = embedding_rows,
       .n_indexes = 1},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_EMBEDDING_GRAD,
       .min_in = 2,
       .max_in = 3,
       .infer = infer<embedding_grad>,
       .in_place = embedding_grad_places,
       .n_in_place = 1,
       .sums = 1U << 0},
  };
  return all;
}

}  // namespace ops
