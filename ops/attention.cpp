// SPDX-License-Identifier: Apache-2.0
// eng.attention/1 and eng.attention_window/1, their gradients, and attention of a running sequence.
#include <cmath>

#include "engine/ops_attention.h"
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

std::string attention(const Call& c, Descs& out) {
  const eng_desc &q = c.in(0), &k = c.in(1);
  const int64_t heads = c.i("heads"), kv = c.i("kv_heads");
  if (q.ndim != 3 || heads < 1 || kv < 1 || heads % kv || last(q) % heads)
    return "q must be (B, T, heads*D), heads a multiple of kv_heads";
  const int64_t d = last(q) / heads;
  if (!same(k, c.in(2)) || k.ndim != 3 || last(k) != kv * d || k.dims[0] != q.dims[0] || k.dims[1] != q.dims[1])
    return "k and v must be (B, T, kv_heads*D)";
  if (!numbers_tokens(c, 3, q)) return "segments must be (B, T) i32";
  out = {q, make_desc(wide(q.dtype), {q.dims[0], heads, q.dims[1]})};
  return "";
}

std::string windowed_attention(const Call& c, Descs& out) {
  if (c.i("window") < 0) return "window must be at least 0";
  if (!(c.f("softcap") >= 0 && std::isfinite(c.f("softcap")))) return "softcap must be at least 0, and finite";
  return attention(c, out);
}

// Twice the mean number of keys that a query of x (B, T, ...) sees. Documents make it less, but shapes don't tell.
double keys_twice(const Call& c, const eng_desc& x) {
  const double t = static_cast<double>(x.dims[1]), window = static_cast<double>(c.i("window"));
  if (window <= 0 || window >= t) return t + 1;  // causal: half of the T x T square
  return (window * (window + 1) + 2 * (t - window) * window) / t;
}

// Two products of D each for a query and a key.
double attention_work(const Call& c) {
  return 2.0 * static_cast<double>(count(c.in(0))) * keys_twice(c, c.in(0));
}

void backward_by(Gradient& g, const char* op) {
  Ids in = {g.d_out(0), g.in(0), g.in(1), g.in(2), g.out(0), g.out(1)};
  if (g.in(3)) in.push_back(g.in(3));
  const Ids d = g.emit(3, op, in, g.attrs());
  for (uint32_t k = 0; k < 3; ++k)
    if (g.wants(k)) g.give(k, d[k]);
}

void attention_backward(Gradient& g) {
  backward_by(g, ENG_OP_ATTENTION_GRAD);
}

void windowed_backward(Gradient& g) {
  backward_by(g, ENG_OP_ATTENTION_WINDOW_GRAD);
}

std::string attention_grad(const Call& c, Descs& out) {
  if (!numbers_tokens(c, 6, c.in(1))) return "segments must be (B, T) i32";
  return as_inputs<1, 2, 3>(c, out);
}

// Computes the scores again, then four products of the same size.
double attention_grad_work(const Call& c) {
  return 5.0 * static_cast<double>(count(c.in(1))) * keys_twice(c, c.in(1));
}

// Two states cache the keys and values of all positions so far; the op adds those of the next positions.
void next_by(Stepping& s, const char* op, const char* step) {
  one_document(s, op, 3);
  eng_desc cache = s.desc(s.in(1));
  cache.dims[1] = s.length();
  const eng_id k = s.state(cache), v = s.state(cache);
  s.give(0, s.emit(step, {s.in(0), s.in(1), s.in(2), k, v, s.counters()}, s.attrs()));
}

void attention_next(Stepping& s) {
  next_by(s, ENG_OP_ATTENTION, ENG_OP_ATTENTION_STEP);
}

void windowed_next(Stepping& s) {
  next_by(s, ENG_OP_ATTENTION_WINDOW, ENG_OP_ATTENTION_WINDOW_STEP);
}

std::string attention_step(const Call& c, Descs& out) {
  const eng_desc &q = c.in(0), &k_cache = c.in(3);
  const int64_t heads = c.i("heads"), kv = c.i("kv_heads");
  if (q.ndim != 3 || heads < 1 || kv < 1 || heads % kv || q.dims[2] % heads)
    return "q must be (B, n, heads*D), heads a multiple of kv_heads";
  const eng_desc key = make_desc(q.dtype, {q.dims[0], q.dims[1], q.dims[2] / heads * kv});
  eng_desc cache = key;
  cache.dims[1] = k_cache.ndim == 3 ? std::max(k_cache.dims[1], key.dims[1]) : 0;
  if (!same(c.in(1), key) || !same(c.in(2), key) || !same(k_cache, cache) || !same(c.in(4), cache))
    return "k and v must be (B, n, kv_heads*D), their caches (B, S, kv_heads*D) with S >= n";
  return as_inputs<0, 3, 4>(c, out);
}

const eng_in_place attention_step_places[] = {must_take(1, 3), must_take(2, 4)};

}  // namespace

Family attention_ops() {
  static const eng_op all[] = {
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_ATTENTION,
       .min_in = 3,
       .max_in = 4,
       .infer = infer<attention>,
       .flops = flops<attention_work>,
       .grad = grad<attention_backward>,
       .step = step<attention_next>},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_ATTENTION_GRAD,
       .min_in = 6,
       .max_in = 7,
       .infer = infer<attention_grad>,
       .flops = flops<attention_grad_work>},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_ATTENTION_STEP,
       .min_in = 6,
       .max_in = 6,
       .infer = infer<attention_step>,
       .in_place = attention_step_places,
       .n_in_place = 2},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_ATTENTION_WINDOW,
       .min_in = 3,
       .max_in = 4,
       .infer = infer<windowed_attention>,
       .flops = flops<attention_work>,
       .grad = grad<windowed_backward>,
       .step = step<windowed_next>},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_ATTENTION_WINDOW_GRAD,
       .min_in = 6,
       .max_in = 7,
       .infer = infer<attention_grad>,
       .flops = flops<attention_grad_work>},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_ATTENTION_WINDOW_STEP,
       .min_in = 6,
       .max_in = 6,
       .infer = infer<attention_step>,
       .in_place = attention_step_places,
       .n_in_place = 2},
  };
  return all;
}

}  // namespace ops
