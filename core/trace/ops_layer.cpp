// SPDX-License-Identifier: Apache-2.0
// Layer ops of engine/ops.h: shapes, FLOPs, gradients. Norms and elementwise ops have their own files.

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

eng_desc relu_mask(eng_desc y) {
  y.dtype = ENG_U8;
  return with_last(y, eng_relu_mask_bytes(last(y)));
}

std::string linear_relu(Shapes in, const Attrs& attrs, Out& out) {
  std::string wrong = linear(in, attrs, out);
  if (wrong.empty()) out.push_back(relu_mask(out[0]));
  return wrong;
}

std::string matmul_relu_grad(Shapes in, const Attrs& attrs, Out& out) {
  if (in[0].ndim < 1 || in[1].ndim != 2 || last(in[0]) != in[1].dims[0]) return "dy (..., N) needs w (N, K)";
  out.push_back(with_last(in[0], in[1].dims[1]));
  if (!same(in[2], relu_mask(out[0]))) return "the mask must be (..., 16 ceil(K/128)) u8";
  if (attrs.i("sums")) out.push_back(make_desc(in[0].dtype, {in[1].dims[1]}));
  return "";
}

const Node* made_by(const char* op, const Graph& graph, Id value) {
  for (const Node& node : graph.nodes)
    if (value && node.out[0] == value) return node.op->id == std::string(op) ? &node : nullptr;
  return nullptr;
}

// The gradients of x w^T + bias from that of the sum. dbias: that of the bias, if it is there already.
void linear_grads(Gradient& g, Id dy, Id dbias) {
  // The weight's gradient first: it may be the last to read x, whose memory is then free for the gradient of x.
  if (g.wants(1)) g.give(1, g.emit(ENG_OP_MATMUL, {dy, g.in(0), g.take(1)}, {{{"ta", 1}, {"tb", 0}}})[0]);
  if (g.wants(0)) {
    // Behind a relu the product masks its result, and gives the bias' gradient too. If others read x as well, the rule
    // of linear_relu masks the sum: masking twice changes nothing.
    const Node* relu = g.so_far(g.in(0)) ? nullptr : made_by(ENG_OP_LINEAR_RELU, g.graph(), g.in(0));
    const Id bias = relu && relu->in.size() > 2 ? relu->in[2] : 0;
    const int64_t sums = g.wanted(bias) && !g.so_far(bias);
    g.give(0, relu ? g.emit(ENG_OP_MATMUL_RELU_GRAD, {dy, g.in(1), relu->out[1]}, {{{"sums", sums}}})[0]
                   : g.emit(ENG_OP_MATMUL, {dy, g.in(1), g.take(0)}, {{{"ta", 0}, {"tb", 0}}})[0]);
  }
  if (g.wants(2)) g.give(2, dbias ? dbias : g.emit(ENG_OP_SUM_ROWS, {dy, g.take(2)}, {})[0]);
}

void linear_grad(Gradient& g) {
  linear_grads(g, g.d_out(0), 0);
}

void linear_relu_grad(Gradient& g) {
  const Node* masked = made_by(ENG_OP_MATMUL_RELU_GRAD, g.graph(), g.d_out(0));
  if (masked && masked->in[2] == g.out(1))
    return linear_grads(g, masked->out[0], masked->out.size() > 1 ? masked->out[1] : 0);
  linear_grads(g, g.emit(ENG_OP_ACTIVATION_GRAD, {g.d_out(0), g.out(0)}, {{{"act", ENG_ACT_RELU}}})[0], 0);
}

std::string embedding(Shapes in, const Attrs&, Out& out) {
  if (in[0].dtype != ENG_I32 || in[0].ndim != 2 || in[1].ndim != 2) return "tokens must be (B, T) i32, table (V, H)";
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
  if (in[1].ndim != 2 || in[1].dims[0] < in[0].dims[1] || in[1].dims[1] != d) return "table must be (T or more, D)";
  if (!numbers_tokens(in, 2, in[0])) return "positions must be (B, T) i32";
  out.push_back(in[0]);
  return "";
}

void rope_grad(Gradient& g) {
  Attrs attrs = g.attrs();
  for (auto& a : attrs.list)
    if (a.key == "inverse") a.i = 1 - a.i;
  std::vector<Id> in = {g.d_out(0), g.in(1)};
  if (g.in(2)) in.push_back(g.in(2));
  if (g.wants(0)) g.give(0, g.emit(ENG_OP_ROPE, std::move(in), attrs)[0]);
}

void rope_step(Stepping& s) {
  one_document(s, 2);
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
  if (!numbers_tokens(in, 3, in[0])) return "segments must be (B, T) i32";
  out.push_back(in[0]);
  out.push_back(make_desc(wide(in[0].dtype), {in[0].dims[0], heads, in[0].dims[1]}));
  return "";
}

// Causal: half of the T x T square, two products of D each. Documents make it less, but shapes don't tell.
double attention_flops(Shapes in, Shapes, const Attrs&) {
  return 2.0 * count(in[0]) * (in[0].dims[1] + 1);
}

void attention_grad_rule(Gradient& g) {
  std::vector<Id> in = {g.d_out(0), g.in(0), g.in(1), g.in(2), g.out(0), g.out(1)};
  if (g.in(3)) in.push_back(g.in(3));
  auto d = g.emit(ENG_OP_ATTENTION_GRAD, std::move(in), g.attrs());
  for (uint32_t k = 0; k < 3; ++k)
    if (g.wants(k)) g.give(k, d[k]);
}

// Two states cache the keys and values of all positions so far; the op adds those of the next positions.
void attention_step(Stepping& s) {
  one_document(s, 3);
  eng_desc cache = s.desc(1);
  cache.dims[1] = s.length();
  Id k = s.state(cache), v = s.state(cache);
  s.give(0, s.emit(ENG_OP_ATTENTION_STEP, {s.in(0), s.in(1), s.in(2), k, v, s.counters()}, s.attrs())[0]);
}

std::string gated(Shapes in, const Attrs& attrs, Out& out) {
  if (!same(in[0], in[1])) return "gate and up must have the same shape";
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

// A 16-bit value may be added to an f32 one. The sum then is f32.
std::string add(Shapes in, const Attrs&, Out& out) {
  const bool first = in[0].dtype == in[1].dtype || in[0].dtype == wide(in[1].dtype);
  eng_desc sum = in[first ? 0 : 1], other = in[first ? 1 : 0];
  if (sum.dtype == wide(other.dtype)) other.dtype = sum.dtype;
  if (!same(sum, other)) return "both inputs must have the same shape";
  out.push_back(sum);
  return "";
}

void add_grad(Gradient& g) {
  for (uint32_t k : {0u, 1u}) {
    if (!g.wants(k)) continue;
    const int64_t dtype = g.desc(k).dtype;
    const bool cast = dtype != g.graph().value(g.d_out(0)).desc.dtype;
    g.give(k, cast ? g.emit(ENG_OP_CAST, {g.d_out(0)}, {{{"dtype", dtype, 0}}})[0] : g.d_out(0));
  }
}

std::string wrong_loss_weights(const eng_desc& labels, const eng_desc& weights, int32_t dtype) {
  eng_desc like = labels;
  like.dtype = wide(dtype);
  return weights.dtype && !same(weights, like) ? "loss weights must be (B, T) f32" : "";
}

std::string cross_entropy(Shapes in, const Attrs& attrs, Out& out) {
  if (in[0].ndim != 3 || in[1].ndim != 2 || last(in[0]) != in[1].dims[1]) return "x (B, T, H) needs w (V, H)";
  if (in[2].dtype != ENG_I32 || in[2].ndim != 2 || in[2].dims[0] != in[0].dims[0] || in[2].dims[1] != in[0].dims[1])
    return "labels must be (B, T) i32";
  if (!(attrs.f("z_loss") >= 0)) return "z_loss must be at least 0";
  out.push_back(make_desc(wide(in[0].dtype), {1}));
  if (attrs.f("z_loss") > 0) out.push_back(out[0]);
  return in.size() > 3 ? wrong_loss_weights(in[2], in[3], in[0].dtype) : "";
}

double cross_entropy_flops(Shapes in, Shapes, const Attrs&) {
  return 2.0 * count(in[0]) * in[1].dims[0];
}

void cross_entropy_grad_rule(Gradient& g) {
  const bool dw = g.wants(1);
  const double weight = g.weight(0), z = g.weight(1), meant = g.attrs().f("z_loss");
  if (meant != z)
    throw Error(Exit::environment,
                fmt::format("{}: its second output must be a term of the loss of weight z_loss = {}, not {}",
                            ENG_OP_CROSS_ENTROPY, meant, z));
  Attrs attrs;
  if (!dw) attrs.list.push_back({"no_dw", 1, 0});
  if (weight != 1) attrs.list.push_back({"weight", 0, weight});
  if (z != 0) attrs.list.push_back({"z_loss", 0, z});
  std::vector<Id> in{g.in(0), g.in(1), g.in(2), g.scalars(), dw ? g.take(1) : 0};
  if (g.in(3)) in.push_back(g.in(3));
  auto d = g.emit(ENG_OP_CROSS_ENTROPY_GRAD, std::move(in), attrs);
  g.replaces(0, d[0]);
  if (z != 0) g.replaces(1, d.back());
  if (g.wants(0)) g.give(0, d[1]);
  if (dw) g.give(1, d[2]);
}

// Logits, which the host reads, are as wide as losses.
void cross_entropy_step(Stepping& s) {
  Id logits = s.emit(ENG_OP_LINEAR, {s.in(0), s.in(1)}, {})[0];
  const int32_t dtype = s.desc(0).dtype;
  if (dtype != wide(dtype)) logits = s.emit(ENG_OP_CAST, {logits}, {{{"dtype", wide(dtype), 0}}})[0];
  s.give(0, logits);
}

std::string matmul(Shapes in, const Attrs& attrs, Out& out) {
  bool ta = attrs.i("ta"), tb = attrs.i("tb");
  int64_t ra = rows(in[0]), ca = last(in[0]), rb = rows(in[1]), cb = last(in[1]);
  int64_t m = ta ? ca : ra, k = ta ? ra : ca, kb = tb ? cb : rb, n = tb ? rb : cb;
  if (k != kb) return fmt::format("inner sizes differ: {} and {}", k, kb);
  // Without ta, the leading dimensions are kept: (B, T, N) x (N, K) -> (B, T, K).
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
  if (in[0].dtype != ENG_I32 || in[1].ndim != 3) return "tokens must be (B, T) i32, dy (B, T, H)";
  out.push_back(make_desc(in[1].dtype, {attrs.i("rows"), last(in[1])}));
  return "";
}

std::string attention_grad(Shapes in, const Attrs&, Out& out) {
  if (!numbers_tokens(in, 6, in[1])) return "segments must be (B, T) i32";
  for (int k = 1; k < 4; ++k) out.push_back(in[k]);
  return "";
}

// Computes the scores again, then four products of the same size.
double attention_grad_flops(Shapes in, Shapes, const Attrs&) {
  return 5.0 * count(in[1]) * (in[1].dims[1] + 1);
}

std::string gated_grad(Shapes in, const Attrs&, Out& out) {
  if (!same(in[0], in[1]) || !same(in[1], in[2])) return "dy, gate and up must have the same shape";
  out.push_back(in[1]);
  out.push_back(in[2]);
  return "";
}

std::string cross_entropy_grad(Shapes in, const Attrs& attrs, Out& out) {
  std::string wrong = cross_entropy(in.first(3), attrs, out);
  if (!wrong.empty()) return wrong;
  out.resize(1);
  out.push_back(in[0]);
  if (!attrs.i("no_dw")) out.push_back(in[1]);
  if (attrs.f("z_loss") > 0) out.push_back(out[0]);
  return in.size() > 5 ? wrong_loss_weights(in[2], in[5], in[0].dtype) : "";
}

// The logits, dx and dw.
double cross_entropy_grad_flops(Shapes in, Shapes, const Attrs& attrs) {
  return (attrs.i("no_dw") ? 4.0 : 6.0) * count(in[0]) * in[1].dims[0];
}

}  // namespace

std::span<const Op> layer_ops() {
  static const Op ops[] = {
      {.id = ENG_OP_LINEAR,
       .min_in = 2,
       .max_in = 3,
       .infer = linear,
       .flops = linear_flops,
       .grad = linear_grad,
       .step = by_position},
      {.id = ENG_OP_LINEAR_RELU,
       .min_in = 2,
       .max_in = 3,
       .infer = linear_relu,
       .flops = linear_flops,
       .grad = linear_relu_grad,
       .step = by_position,
       .counts_as = 2},
      {.id = ENG_OP_EMBEDDING,
       .min_in = 2,
       .max_in = 2,
       .infer = embedding,
       .grad = embedding_grad_rule,
       .step = by_position},
      {.id = ENG_OP_ROPE,
       .min_in = 2,
       .max_in = 3,
       .infer = rope,
       .in_place = {{.out = 0, .in = 0, .must = false}},
       .grad = rope_grad,
       .step = rope_step},
      {.id = ENG_OP_ATTENTION,
       .min_in = 3,
       .max_in = 4,
       .infer = attention,
       .flops = attention_flops,
       .grad = attention_grad_rule,
       .step = attention_step},
      {.id = ENG_OP_GATED,
       .min_in = 2,
       .max_in = 2,
       .infer = gated,
       .grad = gated_grad_rule,
       .step = by_position,
       .rebuild = gated_rebuild},
      {.id = ENG_OP_ADD,
       .min_in = 2,
       .max_in = 2,
       .infer = add,
       .in_place = {{.out = 0, .in = 0, .must = false}, {.out = 0, .in = 1, .must = false}},
       .grad = add_grad,
       .step = by_position},
      {.id = ENG_OP_CROSS_ENTROPY,
       .min_in = 3,
       .max_in = 4,
       .infer = cross_entropy,
       .flops = cross_entropy_flops,
       .grad = cross_entropy_grad_rule,
       .step = cross_entropy_step,
       .fused_grad = true},
  };
  return ops;
}

// For most, the last input is the gradient so far; they add to it in place.
std::span<const Op> gradient_ops() {
  static const Op ops[] = {
      {.id = ENG_OP_MATMUL,
       .min_in = 2,
       .max_in = 3,
       .infer = matmul,
       .flops = matmul_flops,
       .in_place = {{.out = 0, .in = 2, .must = true}},
       .sums = 1U << 0},
      {.id = ENG_OP_MATMUL_RELU_GRAD,
       .min_in = 3,
       .max_in = 4,
       .infer = matmul_relu_grad,
       .flops = linear_flops,
       .in_place = {{.out = 1, .in = 3, .must = true}},
       .sums = 1U << 1},
      {.id = ENG_OP_SUM_ROWS,
       .min_in = 1,
       .max_in = 2,
       .infer = sum_rows,
       .in_place = {{.out = 0, .in = 1, .must = true}},
       .sums = 1U << 0},
      {.id = ENG_OP_EMBEDDING_GRAD,
       .min_in = 2,
       .max_in = 3,
       .infer = embedding_grad,
       .in_place = {{.out = 0, .in = 2, .must = true}},
       .sums = 1U << 0},
      {.id = ENG_OP_ATTENTION_GRAD, .min_in = 6, .max_in = 7, .infer = attention_grad, .flops = attention_grad_flops},
      {.id = ENG_OP_GATED_GRAD,
       .min_in = 3,
       .max_in = 3,
       .infer = gated_grad,
       .in_place = {{.out = 0, .in = 1, .must = false}, {.out = 1, .in = 2, .must = false}}},
      {.id = ENG_OP_CROSS_ENTROPY_GRAD,
       .min_in = 4,
       .max_in = 6,
       .infer = cross_entropy_grad,
       .flops = cross_entropy_grad_flops,
       .in_place = {{.out = 2, .in = 4, .must = true}},
       .sums = 1U << 2},
  };
  return ops;
}

}  // namespace eng
