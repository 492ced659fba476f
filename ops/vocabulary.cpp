// SPDX-License-Identifier: Apache-2.0
// Embedding and cross-entropy of a vocabulary whose rows the ranks of a group divide.
#include "engine/ops_parallel.h"
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

std::string embedding_part(const Call& c, Descs& out) {
  const eng_desc &tokens = c.in(0), &table = c.in(1);
  if (tokens.dtype != ENG_I32 || tokens.ndim != 2 || table.ndim != 2) return "tokens must be (B, T) i32, table (R, H)";
  out.push_back(make_desc(table.dtype, {tokens.dims[0], tokens.dims[1], table.dims[1]}));
  return c.i("first", -1) < 0 ? "first must be at least 0" : "";
}

std::string embedding_part_grad(const Call& c, Descs& out) {
  const eng_desc& dy = c.in(1);
  if (c.in(0).dtype != ENG_I32 || dy.ndim != 3) return "tokens must be (B, T) i32, dy (B, T, H)";
  out.push_back(make_desc(dy.dtype, {c.i("rows"), last(dy)}));
  return c.i("first", -1) < 0 ? "first must be at least 0" : "";
}

void group_embedding_backward(Gradient& g) {
  if (!g.wants(1)) return;
  const Attrs attrs = {{"rows", g.desc(g.in(1)).dims[0], 0}, {"first", g.i("first"), 0}};
  g.give(1, g.emit(ENG_OP_EMBEDDING_PART_GRAD, {g.in(0), g.d_out(0), g.take(1)}, attrs));
}

// Errors of the builder are sticky.
Ids emitted(eng_build* b, uint32_t n, const char* op, const Ids& in, const Attrs& attrs) {
  Ids out(n, 0);
  b->api->emit(b, op, in.data(), static_cast<uint32_t>(in.size()), out.data(), n, attrs.data(),
               static_cast<uint32_t>(attrs.size()), nullptr);
  return out;
}

template <class Side>
Attrs group_of(const Side& c) {
  return {{"group", c.i("group"), 0}, {"members", c.i("members"), 0}};
}

eng_status group_embedding_expand(eng_build* b, const eng_call* call, const eng_id* in, eng_id* out, eng_error* error) {
  const Call c{*call};
  const eng_id part = emitted(b, 1, ENG_OP_EMBEDDING_PART, {in[0], in[1]}, {{"first", c.i("first"), 0}})[0];
  out[0] = emitted(b, 1, ENG_OP_GROUP_SUM, {part}, group_of(c))[0];
  return b->api->status(b, error);
}

eng_desc of_tokens(const Call& c, uint32_t labels) {
  eng_desc out = c.in(labels);
  out.dtype = wide(c.in(0).dtype);
  return out;
}

std::string wrong_part(const Call& c) {
  const eng_desc &x = c.in(0), &w = c.in(1);
  if (x.ndim != 3 || w.ndim != 2 || last(x) != w.dims[1]) return "x (B, T, H) needs w (R, H)";
  if (!same(c.in(2), make_desc(ENG_I32, {x.dims[0], x.dims[1]}))) return "labels must be (B, T) i32";
  const int64_t first = c.i("first", -1);
  if (first < 0 || first > c.i("whole") - w.dims[0]) return "the rows of w must lie in 0 .. whole - 1";
  return c.f("z_loss") >= 0 ? "" : "z_loss must be at least 0";
}

std::string wrong_loss_weights(const Call& c, uint32_t labels, uint32_t k) {
  return c.has(k) && !same(c.in(k), of_tokens(c, labels)) ? "loss weights must be (B, T) f32" : "";
}

std::string group_cross_entropy(const Call& c, Descs& out) {
  if (std::string wrong = wrong_part(c); !wrong.empty()) return wrong;
  if (c.i("whole") != c.i("members", 1) * c.in(1).dims[0]) return "every member must have as many rows";
  out.assign(c.f("z_loss") > 0 ? 2 : 1, make_desc(wide(c.in(0).dtype), {1}));
  return wrong_loss_weights(c, 2, 3);
}

std::string vocabulary_scores(const Call& c, Descs& out) {
  out.push_back(make_desc(wide(c.in(0).dtype), {2 * count(c.in(2))}));
  return wrong_part(c);
}

std::string vocabulary_loss(const Call& c, Descs& out) {
  const eng_desc &scores = c.in(0), &labels = c.in(1);
  if (labels.dtype != ENG_I32 || labels.ndim != 2) return "labels must be (B, T) i32";
  if (!same(scores, make_desc(wide(scores.dtype), {c.i("members", 1) * 2 * count(labels)})))
    return "scores must be (members 2 B T) f32";
  out = {make_desc(scores.dtype, {1}), of_tokens(c, 1)};
  if (c.f("z_loss") > 0) out.push_back(out[0]);
  return wrong_loss_weights(c, 1, 2);
}

std::string vocabulary_grad(const Call& c, Descs& out) {
  if (std::string wrong = wrong_part(c); !wrong.empty()) return wrong;
  if (!same(c.in(3), of_tokens(c, 2))) return "lse must be (B, T) f32";
  out = {c.in(0)};
  if (!c.i("no_dw")) out.push_back(c.in(1));
  return wrong_loss_weights(c, 2, 6);
}

double logits_work(const Call& c) {
  return 2.0 * static_cast<double>(count(c.in(0))) * static_cast<double>(c.in(1).dims[0]);
}
// The logits again, dx and dw.
double grad_work(const Call& c) {
  return (c.i("no_dw") ? 2.0 : 3.0) * logits_work(c);
}

template <class Side>
Attrs rows_of(const Side& c) {
  Attrs out = {{"first", c.i("first"), 0}, {"whole", c.i("whole"), 0}};
  if (c.f("softcap") > 0) out.push_back({"softcap", 0, c.f("softcap")});
  return out;
}
template <class Side>
Attrs loss_attrs(const Side& c) {
  Attrs out = {{"members", c.i("members"), 0}};
  if (c.f("z_loss") > 0) out.push_back({"z_loss", 0, c.f("z_loss")});
  return out;
}

void group_cross_entropy_backward(Gradient& g) {
  const bool dw = g.wants(1);
  const double weight = g.weight(0), z = g.weight(1);
  if (z != g.f("z_loss"))
    throw Refused{ENG_INVALID, ENG_OP_GROUP_CROSS_ENTROPY ": its second output must be a term of weight z_loss"};
  const eng_id own = g.emit(ENG_OP_VOCABULARY_SCORES, {g.in(0), g.in(1), g.in(2)}, rows_of(g));
  const eng_id all = g.emit(ENG_OP_ALL_GATHER, {own}, group_of(g));
  const Ids loss = g.emit(z > 0 ? 3 : 2, ENG_OP_VOCABULARY_LOSS, {all, g.in(2), g.in(3)}, loss_attrs(g));
  Attrs attrs = rows_of(g);
  if (!dw) attrs.push_back({"no_dw", 1, 0});
  if (weight != 1) attrs.push_back({"weight", 0, weight});
  if (z > 0) attrs.push_back({"z_loss", 0, z});
  const Ids d = g.emit(1 + dw, ENG_OP_VOCABULARY_GRAD,
                       {g.in(0), g.in(1), g.in(2), loss[1], g.scalars(), dw ? g.take(1) : 0, g.in(3)}, attrs);
  g.replaces(0, loss[0]);
  if (z > 0) g.replaces(1, loss[2]);
  if (g.wants(0)) g.give(0, g.emit(ENG_OP_GROUP_SUM, {d[0]}, group_of(g)));
  if (dw) g.give(1, d[1]);
}

eng_status group_cross_entropy_expand(eng_build* b, const eng_call* call, const eng_id* in, eng_id* out,
                                      eng_error* error) {
  const Call c{*call};
  const bool z = c.f("z_loss") > 0;
  const eng_id own = emitted(b, 1, ENG_OP_VOCABULARY_SCORES, {in[0], in[1], in[2]}, rows_of(c))[0];
  const eng_id all = emitted(b, 1, ENG_OP_ALL_GATHER, {own}, group_of(c))[0];
  const Ids made = emitted(b, z ? 3 : 2, ENG_OP_VOCABULARY_LOSS, {all, in[2], c.has(3) ? in[3] : 0}, loss_attrs(c));
  out[0] = made[0];
  if (z) out[1] = made[2];
  return b->api->status(b, error);
}

const eng_in_place embedding_places[] = {must_take(0, 2)};
const eng_in_place grad_places[] = {must_take(1, 5)};

}  // namespace

Family vocabulary_ops() {
  static const eng_op all[] = {
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_GROUP_EMBEDDING,
       .min_in = 2,
       .max_in = 2,
       .infer = infer<embedding_part>,
       .grad = grad<group_embedding_backward>,
       .expand = group_embedding_expand},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_EMBEDDING_PART,
       .min_in = 2,
       .max_in = 2,
       .infer = infer<embedding_part>},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_EMBEDDING_PART_GRAD,
       .min_in = 2,
       .max_in = 3,
       .infer = infer<embedding_part_grad>,
       .in_place = embedding_places,
       .n_in_place = 1,
       .sums = 1U << 0},
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_FUSED_GRAD,
       .id = ENG_OP_GROUP_CROSS_ENTROPY,
       .min_in = 3,
       .max_in = 4,
       .infer = infer<group_cross_entropy>,
       .grad = grad<group_cross_entropy_backward>,
       .expand = group_cross_entropy_expand},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_VOCABULARY_SCORES,
       .min_in = 3,
       .max_in = 3,
       .infer = infer<vocabulary_scores>,
       .flops = flops<logits_work>},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_VOCABULARY_LOSS,
       .min_in = 2,
       .max_in = 3,
       .infer = infer<vocabulary_loss>},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_VOCABULARY_GRAD,
       .min_in = 5,
       .max_in = 7,
       .infer = infer<vocabulary_grad>,
       .flops = flops<grad_work>,
       .in_place = grad_places,
       .n_in_place = 1,
       .sums = 1U << 1},
  };
  return all;
}

}  // namespace ops
