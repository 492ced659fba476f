// SPDX-License-Identifier: Apache-2.0
// The layer ops of engine/ops.h that multiply or mix: shapes, FLOPs, gradients. Norms and others have their own files.

#include "core/trace/gradient.hpp"
#include "core/trace/shapes.hpp"
#include "core/trace/stepping.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

std::string linear(Shapes in, const Attrs&, Out& out) {
  if (in[0].ndim < 1 || in[1].ndim != 2 || last(in[0]) != in[1].dims[1]) return "x (..., K) needs w (N, K)";
  if (in.size() > 2 && in[2].dtype && (in[2].ndim != 1 || in[2].dims[0] != in[1].dims[0])) return "bias must be (N)";
  out.push_back(with_last(in[0], in[1].dims[0]));
  return "";
}

double linear_flops(Shapes in, Shapes out, const Attrs&) {
  return 2.0 * count(out[0]) * last(in[0]);
}

void linear_grad(Gradient& g) {
  Id dy = g.d_out(0);
  // The weight first: x may be gone before its gradient comes.
  if (g.wants(1)) g.give(1, g.emit(ENG_OP_MATMUL, {dy, g.in(0), g.take(1)}, {{{"ta", 1}, {"tb", 0}}})[0]);
  if (g.wants(0)) g.give(0, g.emit(ENG_OP_MATMUL, {dy, g.in(1), g.take(0)}, {{{"ta", 0}, {"tb", 0}}})[0]);
  if (g.wants(2)) g.give(2, g.emit(ENG_OP_SUM_ROWS, {dy, g.take(2)}, {})[0]);
}

std::string embedding(Shapes in, const Attrs&, Out& out) {
  if (in[0].dtype != ENG_I32 || in[0].ndim != 2 || in[1].ndim != 2)
    return "tokens (B, T) i32 and table (V, H) are needed";
  out.push_back(make_desc(in[1].dtype, {in[0].dims[0], in[0].dims[1], in[1].dims[1]}));
  return "";
}

void embedding_grad_rule(Gradient& g) {
  if (g.wants(1))
    g.give(1, g.emit(ENG_OP_EMBEDDING_GRAD, {g.in(0), g.d_out(0), g.take(1)}, {{{"rows", g.desc(1).dims[0]}}})[0]);
}

std::string rope(Shapes in, const Attrs& attrs, Out& out) {
  int64_t heads = attrs.i("heads");
  if (in[0].ndim != 3 || heads < 1 || last(in[0]) % heads) return "x must be (B, T, heads*D)";
  int64_t d = last(in[0]) / heads;
  if (d % 2) return "the head size must be even";
  if (in[1].ndim != 2 || in[1].dims[0] != in[0].dims[1] || in[1].dims[1] != d) return "table must be (T, D)";
  out.push_back(in[0]);
  return "";
}

void rope_grad(Gradient& g) {
  Attrs attrs = g.attrs();
  for (auto& a : attrs.list)
    if (a.key == "inverse") a.i = 1 - a.i;
  if (g.wants(0)) g.give(0, g.emit(ENG_OP_ROPE, {g.d_out(0), g.in(1)}, attrs)[0]);
}

void rope_step(Stepping& s) {
  s.give(0, s.emit(ENG_OP_ROPE_STEP, {s.in(0), s.in(1), s.counters()}, s.attrs())[0]);
}

std::string attention(Shapes in, const Attrs& attrs, Out& out) {
  int64_t heads = attrs.i("heads"), kv = attrs.i("kv_heads");
  if (in[0].ndim != 3 || heads < 1 || kv < 1 || heads % kv || last(in[0]) % heads)
    return "q must be (B, T, heads*D), heads a multiple of kv_heads";
  int64_t d = last(in[0]) / heads;
  if (!same(in[1], in[2]) || in[1].ndim != 3 || last(in[1]) != kv * d || in[1].dims[0] != in[0].dims[0] ||
      in[1].dims[1] != in[0].dims[1])
    return "k and v must be (B, T, kv_heads*D)";
  out.push_back(in[0]);
  out.push_back(make_desc(wide(in[0].dtype), {in[0].dims[0], heads, in[0].dims[1]}));
  return "";
}

// Causal: half of the T x T square, two products of D each.
double attention_flops(Shapes in, Shapes, const Attrs&) {
  return 2.0 * count(in[0]) * (in[0].dims[1] + 1);
}

void attention_grad_rule(Gradient& g) {
  auto d = g.emit(ENG_OP_ATTENTION_GRAD, {g.d_out(0), g.in(0), g.in(1), g.in(2), g.out(0), g.out(1)}, g.attrs());
  for (uint32_t k = 0; k < 3; ++k)
    if (g.wants(k)) g.give(k, d[k]);
}

// The keys and values of all positions so far are kept, those of the next ones join them.
void attention_step(Stepping& s) {
  eng_desc cache = s.desc(1);
  cache.dims[1] = s.length();
  Id k = s.state(cache), v = s.state(cache);
  s.give(0, s.emit(ENG_OP_ATTENTION_STEP, {s.in(0), s.in(1), s.in(2), k, v, s.counters()}, s.attrs())[0]);
}

std::string gated(Shapes in, const Attrs& attrs, Out& out) {
  if (!same(in[0], in[1])) return "gate and up must have one shape";
  if (attrs.i("act") < ENG_ACT_SILU || attrs.i("act") > ENG_ACT_RELU) return "unknown activation";
  out.push_back(in[0]);
  return "";
}

void gated_grad_rule(Gradient& g) {
  auto d = g.emit(ENG_OP_GATED_GRAD, {g.d_out(0), g.in(0), g.in(1)}, g.attrs());
  if (g.wants(0)) g.give(0, d[0]);
  if (g.wants(1)) g.give(1, d[1]);
}

std::vector<uint32_t> gated_rebuild(const Node& node) {
  return node.in;
}

std::string add(Shapes in, const Attrs&, Out& out) {
  if (!same(in[0], in[1])) return "both inputs must have one shape";
  out.push_back(in[0]);
  return "";
}

void add_grad(Gradient& g) {
  if (g.wants(0)) g.give(0, g.d_out(0));
  if (g.wants(1)) g.give(1, g.d_out(0));
}

std::string cross_entropy(Shapes in, const Attrs&, Out& out) {
  if (in[0].ndim != 3 || in[1].ndim != 2 || last(in[0]) != in[1].dims[1]) return "x (B, T, H) needs w (V, H)";
  if (in[2].dtype != ENG_I32 || in[2].ndim != 2 || in[2].dims[0] != in[0].dims[0] || in[2].dims[1] != in[0].dims[1])
    return "labels must be (B, T) i32";
  out.push_back(make_desc(wide(in[0].dtype), {1}));
  return "";
}

double cross_entropy_flops(Shapes in, Shapes, const Attrs&) {
  return 2.0 * count(in[0]) * in[1].dims[0];
}

void cross_entropy_grad_rule(Gradient& g) {
  auto d = g.emit(ENG_OP_CROSS_ENTROPY_GRAD, {g.in(0), g.in(1), g.in(2), g.scalars(), g.take(1)}, g.attrs());
  g.replaces(0, d[0]);
  if (g.wants(0)) g.give(0, d[1]);
  if (g.wants(1)) g.give(1, d[2]);
}

void cross_entropy_step(Stepping& s) {
  s.give(0, s.emit(ENG_OP_LINEAR, {s.in(0), s.in(1)}, {})[0]);
}

std::string matmul(Shapes in, const Attrs& attrs, Out& out) {
  bool ta = attrs.i("ta"), tb = attrs.i("tb");
  int64_t ra = rows(in[0]), ca = last(in[0]), rb = rows(in[1]), cb = last(in[1]);
  int64_t m = ta ? ca : ra, k = ta ? ra : ca, kb = tb ? cb : rb, n = tb ? rb : cb;
  if (k != kb) return fmt::format("inner sizes differ: {} and {}", k, kb);
  // A gradient of rows keeps their leading dimensions: (B, T, N) x (N, K) -> (B, T, K).
  out.push_back(ta ? make_desc(in[0].dtype, {m, n}) : with_last(in[0], n));
  if (in.size() > 2 && in[2].dtype && count(in[2]) != count(out[0])) return "acc must have the shape of the product";
  return "";
}

double matmul_flops(Shapes in, Shapes out, const Attrs& attrs) {
  return 2.0 * count(out[0]) * (attrs.i("ta") ? rows(in[0]) : last(in[0]));
}

std::string sum_rows(Shapes in, const Attrs&, Out& out) {
  return out.push_back(make_desc(in[0].dtype, {last(in[0])})), "";
}

std::string embedding_grad(Shapes in, const Attrs& attrs, Out& out) {
  if (in[0].dtype != ENG_I32 || in[1].ndim != 3) return "tokens (B, T) i32 and dy (B, T, H) are needed";
  out.push_back(make_desc(in[1].dtype, {attrs.i("rows"), last(in[1])}));
  return "";
}

std::string attention_grad(Shapes in, const Attrs&, Out& out) {
  for (int k = 1; k < 4; ++k) out.push_back(in[k]);
  return "";
}

// Scores again, then four products of the same size.
double attention_grad_flops(Shapes in, Shapes, const Attrs&) {
  return 5.0 * count(in[1]) * (in[1].dims[1] + 1);
}

std::string gated_grad(Shapes in, const Attrs&, Out& out) {
  if (!same(in[0], in[1]) || !same(in[1], in[2])) return "dy, gate and up must have one shape";
  out.push_back(in[1]);
  out.push_back(in[2]);
  return "";
}

std::string cross_entropy_grad(Shapes in, const Attrs& attrs, Out& out) {
  std::string wrong = cross_entropy(in.first(3), attrs, out);
  if (!wrong.empty()) return wrong;
  out.push_back(in[0]);
  out.push_back(in[1]);
  return "";
}

double cross_entropy_grad_flops(Shapes in, Shapes, const Attrs&) {
  return 6.0 * count(in[0]) * in[1].dims[0];
}

}  // namespace

std::span<const Op> layer_ops() {
  static const Op ops[] = {
      {ENG_OP_LINEAR, 2, 3, linear, linear_flops, {}, linear_grad, by_position},
      {ENG_OP_EMBEDDING, 2, 2, embedding, nullptr, {}, embedding_grad_rule, by_position},
      {ENG_OP_ROPE, 2, 2, rope, nullptr, {{0, 0, false}}, rope_grad, rope_step},
      {ENG_OP_ATTENTION, 3, 3, attention, attention_flops, {}, attention_grad_rule, attention_step},
      {ENG_OP_GATED, 2, 2, gated, nullptr, {}, gated_grad_rule, by_position, false, gated_rebuild},
      {ENG_OP_ADD, 2, 2, add, nullptr, {{0, 0, false}, {0, 1, false}}, add_grad, by_position},
      {ENG_OP_CROSS_ENTROPY,
       3,
       3,
       cross_entropy,
       cross_entropy_flops,
       {},
       cross_entropy_grad_rule,
       cross_entropy_step,
       true},
  };
  return ops;
}

std::span<const Op> gradient_ops() {
  static const Op ops[] = {
      {ENG_OP_MATMUL, 2, 3, matmul, matmul_flops, {{0, 2, true}}},
      {ENG_OP_SUM_ROWS, 1, 2, sum_rows, nullptr, {{0, 1, true}}},
      {ENG_OP_EMBEDDING_GRAD, 2, 3, embedding_grad, nullptr, {{0, 2, true}}},
      {ENG_OP_ATTENTION_GRAD, 6, 6, attention_grad, attention_grad_flops},
      {ENG_OP_GATED_GRAD, 3, 3, gated_grad, nullptr, {{0, 1, false}, {1, 2, false}}},
      {ENG_OP_CROSS_ENTROPY_GRAD, 4, 5, cross_entropy_grad, cross_entropy_grad_flops, {{2, 4, true}}},
  };
  return ops;
}

}  // namespace eng
