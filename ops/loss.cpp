// SPDX-License-Identifier: Apache-2.0
// eng.cross_entropy/1, whose gradient computes the loss too; the same of capped logits; eng.label_logprob/1; the
// gradient of other terms of the loss.
#include <cmath>
#include <cstdio>

#include "engine/ops_softcap.h"
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

std::string text_of(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", x);
  return text;
}

std::string wrong_loss_weights(const Call& c, uint32_t k) {
  eng_desc like = c.in(2);
  like.dtype = wide(c.in(0).dtype);
  return c.has(k) && !same(c.in(k), like) ? "loss weights must be (B, T) f32" : "";
}

// The rows of w that stand for ids; the others only pad it.
int64_t vocabulary(const Call& c) {
  return c.i("vocabulary", c.in(1).dims[0]);
}

std::string wrong_head(const Call& c) {
  const eng_desc &x = c.in(0), &w = c.in(1), &labels = c.in(2);
  if (x.ndim != 3 || w.ndim != 2 || last(x) != w.dims[1]) return "x (B, T, H) needs w (V, H)";
  if (vocabulary(c) < 1 || vocabulary(c) > w.dims[0]) return "vocabulary must be 1 to the number of rows of w";
  if (!same(labels, make_desc(ENG_I32, {x.dims[0], x.dims[1]}))) return "labels must be (B, T) i32";
  return "";
}

std::string wrong_cross_entropy(const Call& c) {
  if (std::string wrong = wrong_head(c); !wrong.empty()) return wrong;
  return c.f("z_loss") >= 0 ? "" : "z_loss must be at least 0";
}

std::string cross_entropy(const Call& c, Descs& out) {
  if (std::string wrong = wrong_cross_entropy(c); !wrong.empty()) return wrong;
  out.assign(c.f("z_loss") > 0 ? 2 : 1, make_desc(wide(c.in(0).dtype), {1}));
  return wrong_loss_weights(c, 3);
}

double cross_entropy_work(const Call& c) {
  return 2.0 * static_cast<double>(count(c.in(0))) * static_cast<double>(vocabulary(c));
}

// The attributes of a gradient that it shares with its op.
Attrs attrs_of_head(const Gradient& g, bool dw) {
  Attrs attrs;
  if (!dw) attrs.push_back({"no_dw", 1, 0});
  if (const int64_t v = g.i("vocabulary")) attrs.push_back({"vocabulary", v, 0});
  return attrs;
}

void loss_backward(Gradient& g, const std::string& op, const char* gradient, Attrs attrs) {
  const bool dw = g.wants(1);
  const double weight = g.weight(0), z = g.weight(1), meant = g.f("z_loss");
  if (meant != z)
    throw Refused{ENG_INVALID, op + ": its second output must be a term of the loss of weight z_loss = " +
                                   text_of(meant) + ", not " + text_of(z)};
  for (const auto& attr : attrs_of_head(g, dw)) attrs.push_back(attr);
  if (weight != 1) attrs.push_back({"weight", 0, weight});
  if (z != 0) attrs.push_back({"z_loss", 0, z});
  Ids in = {g.in(0), g.in(1), g.in(2), g.scalars(), dw ? g.take(1) : 0};
  if (g.in(3)) in.push_back(g.in(3));
  const Ids d = g.emit(2 + dw + (z != 0), gradient, in, attrs);
  g.replaces(0, d[0]);
  if (z != 0) g.replaces(1, d.back());
  if (g.wants(0)) g.give(0, d[1]);
  if (dw) g.give(1, d[2]);
}

void cross_entropy_backward(Gradient& g) {
  loss_backward(g, ENG_OP_CROSS_ENTROPY, ENG_OP_CROSS_ENTROPY_GRAD, {});
}

void capped_backward(Gradient& g) {
  loss_backward(g, ENG_OP_CAPPED_CROSS_ENTROPY, ENG_OP_CAPPED_CROSS_ENTROPY_GRAD, {{"softcap", 0, g.f("softcap")}});
}

std::string wrong_softcap(const Call& c) {
  return c.f("softcap") > 0 && std::isfinite(c.f("softcap")) ? "" : "softcap must be above 0, and finite";
}

std::string capped_cross_entropy(const Call& c, Descs& out) {
  if (std::string wrong = wrong_softcap(c); !wrong.empty()) return wrong;
  return cross_entropy(c, out);
}

std::string softcap(const Call& c, Descs& out) {
  out.push_back(c.in(0));
  if (c.in(0).dtype != ENG_F32 && c.in(0).dtype != ENG_F64) return "x must be f32 or f64";
  return wrong_softcap(c);
}

std::string cross_entropy_grad(const Call& c, Descs& out) {
  if (std::string wrong = wrong_cross_entropy(c); !wrong.empty()) return wrong;
  const eng_desc loss = make_desc(wide(c.in(0).dtype), {1});
  out = {loss, c.in(0)};
  if (!c.i("no_dw")) out.push_back(c.in(1));
  if (c.f("z_loss") > 0) out.push_back(loss);
  return wrong_loss_weights(c, 5);
}

// The logits, dx and dw.
double cross_entropy_grad_work(const Call& c) {
  return (c.i("no_dw") ? 4.0 : 6.0) * static_cast<double>(count(c.in(0))) * static_cast<double>(vocabulary(c));
}

// Logits, which the host reads, are as wide as losses.
eng_id logits_of(Stepping& s) {
  const eng_id logits = s.emit(ENG_OP_LINEAR, {s.in(0), s.in(1)});
  const int32_t dtype = s.desc(s.in(0)).dtype;
  return dtype == wide(dtype) ? logits : s.emit(ENG_OP_CAST, {logits}, {{"dtype", wide(dtype), 0}});
}

void cross_entropy_next(Stepping& s) {
  s.give(0, logits_of(s));
}

void capped_next(Stepping& s) {
  s.give(0, s.emit(ENG_OP_SOFTCAP, {logits_of(s)}, {{"softcap", 0, s.f("softcap")}}));
}

eng_desc logprobs(const Call& c) {
  eng_desc out = c.in(2);
  out.dtype = wide(c.in(0).dtype);
  return out;
}

std::string label_logprob(const Call& c, Descs& out) {
  out.push_back(logprobs(c));
  return wrong_head(c);
}

void label_logprob_backward(Gradient& g) {
  const bool dw = g.wants(1);
  const Ids d = g.emit(1 + dw, ENG_OP_LABEL_LOGPROB_GRAD, {g.in(0), g.in(1), g.in(2), g.d_out(0), dw ? g.take(1) : 0},
                       attrs_of_head(g, dw));
  if (g.wants(0)) g.give(0, d[0]);
  if (dw) g.give(1, d[1]);
}

std::string label_logprob_grad(const Call& c, Descs& out) {
  if (std::string wrong = wrong_head(c); !wrong.empty()) return wrong;
  out = {c.in(0)};
  if (!c.i("no_dw")) out.push_back(c.in(1));
  return same(c.in(3), logprobs(c)) ? "" : "dy must be (B, T) f32";
}

std::string loss_seed(const Call& c, Descs& out) {
  const int64_t dtype = c.i("dtype");
  if (dtype != ENG_F32 && dtype != ENG_F64) return "its dtype must be f32 or f64";
  out.push_back(make_desc(dtype, {1}));
  return "";
}

const eng_in_place cross_entropy_grad_places[] = {must_take(2, 4)};
const eng_in_place label_logprob_grad_places[] = {must_take(1, 4)};
const eng_in_place softcap_places[] = {may_take(0, 0)};
const eng_index cross_entropy_labels[] = {{.ids = 2, .table = 1, .flags = ENG_INDEX_TOKENS | ENG_INDEX_LABELS}};

}  // namespace

Family loss_ops() {
  static const eng_op all[] = {
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_FUSED_GRAD,
       .id = ENG_OP_CROSS_ENTROPY,
       .min_in = 3,
       .max_in = 4,
       .infer = infer<cross_entropy>,
       .flops = flops<cross_entropy_work>,
       .grad = grad<cross_entropy_backward>,
       .step = step<cross_entropy_next>,
       .indexes = cross_entropy_labels,
       .n_indexes = 1},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_CROSS_ENTROPY_GRAD,
       .min_in = 4,
       .max_in = 6,
       .infer = infer<cross_entropy_grad>,
       .flops = flops<cross_entropy_grad_work>,
       .in_place = cross_entropy_grad_places,
       .n_in_place = 1,
       .sums = 1U << 2},
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_FUSED_GRAD,
       .id = ENG_OP_CAPPED_CROSS_ENTROPY,
       .min_in = 3,
       .max_in = 4,
       .infer = infer<capped_cross_entropy>,
       .flops = flops<cross_entropy_work>,
       .grad = grad<capped_backward>,
       .step = step<capped_next>,
       .indexes = cross_entropy_labels,
       .n_indexes = 1},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_CAPPED_CROSS_ENTROPY_GRAD,
       .min_in = 4,
       .max_in = 6,
       .infer = infer<cross_entropy_grad>,
       .flops = flops<cross_entropy_grad_work>,
       .in_place = cross_entropy_grad_places,
       .n_in_place = 1,
       .sums = 1U << 2},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_SOFTCAP,
       .min_in = 1,
       .max_in = 1,
       .infer = infer<softcap>,
       .in_place = softcap_places,
       .n_in_place = 1},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_LABEL_LOGPROB,
       .min_in = 3,
       .max_in = 3,
       .infer = infer<label_logprob>,
       .flops = flops<cross_entropy_work>,
       .grad = grad<label_logprob_backward>,
       .indexes = cross_entropy_labels,
       .n_indexes = 1},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_LABEL_LOGPROB_GRAD,
       .min_in = 4,
       .max_in = 5,
       .infer = infer<label_logprob_grad>,
       .flops = flops<cross_entropy_grad_work>,
       .in_place = label_logprob_grad_places,
       .n_in_place = 1,
       .sums = 1U << 1},
      {.struct_size = sizeof(eng_op), .id = ENG_OP_LOSS_SEED, .min_in = 1, .max_in = 1, .infer = infer<loss_seed>},
  };
  return all;
}

}  // namespace ops
