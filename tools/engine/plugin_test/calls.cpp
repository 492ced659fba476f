// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/plugin_test/draw.hpp"

#include <map>

#include "engine/ops_attention.h"
#include "engine/ops_softcap.h"
#include "engine/packed.h"

namespace eng::plugin_test {
namespace {

// The results of another op on some of the inputs.
std::vector<Array> result(Draw& d, const char* id, const std::vector<Array>& in, const std::vector<Attr>& attrs) {
  return d.forward(make_call(op(id), in, {attrs}), in);
}

using Maker = void (*)(Draw&);

void norm(Draw& d, bool layer) {
  d.rows();
  const int64_t h = d.width();
  d.floats({d.b, d.t, h});
  layer ? d.maybe({h}) : d.floats({h});
  if (layer) d.in[1].desc.dtype ? d.maybe({h}) : d.absent();
  d.maybe({d.b, d.t, h});
  d.real("eps", 1e-5);
}

void norm_grad(Draw& d, bool layer) {
  d.rows();
  const int64_t h = d.width() + 1;
  d.floats({d.b, d.t, h}), d.floats({d.b, d.t, h});
  const bool w = !layer || d.flip(), bias = layer && w && d.flip();
  w ? d.floats({h}) : d.absent();
  std::vector<Array> forward = {d.in[1], d.in[2]};
  if (layer) forward.emplace_back();
  d.in.push_back(result(d, layer ? ENG_OP_LAYER_NORM : ENG_OP_RMS_NORM, forward, {{"eps", 0, 1e-5}})[1]);
  d.maybe({d.b, d.t, h});
  w ? d.maybe({h}) : d.absent();
  if (layer) bias ? d.maybe({h}) : d.absent(), d.whole("bias", bias);
}

void attention_inputs(Draw& d, int64_t length) {
  const int64_t kv = d.pick(1, 3), heads = kv * d.pick(1, 3), size = d.pick(1, 9) * (d.flip() ? 2 : 8);
  d.floats({d.b, length, heads * size}), d.floats({d.b, length, kv * size}), d.floats({d.b, length, kv * size});
  d.whole("heads", heads), d.whole("kv_heads", kv), d.real("scale", 1 / std::sqrt(static_cast<double>(size)));
}

void attention(Draw& d, bool window) {
  d.rows(), attention_inputs(d, d.t);
  if (window) d.whole("window", d.flip() ? 0 : d.pick(2, d.t + 1)), d.real("softcap", d.pick(0, 2));
  if (d.form) d.segments();
}

void attention_grad(Draw& d, const char* forward) {
  attention(d, forward != std::string(ENG_OP_ATTENTION));
  std::vector<Array> given = d.in, made = result(d, forward, given, d.attrs);
  d.in = {normal(d.random, given[0].desc), given[0], given[1], given[2], made[0], made[1]};
  if (d.form) d.in.push_back(given[3]);
}

void attention_step(Draw& d, bool window) {
  d.rows();
  const int64_t n = d.pick(1, d.t);
  attention_inputs(d, n);
  if (window) d.whole("window", d.flip() ? 0 : d.pick(2, d.t + 1)), d.real("softcap", d.pick(0, 2));
  eng_desc cache = d.in[1].desc;
  cache.dims[1] = d.t;
  d.in.push_back(normal(d.random, cache)), d.in.push_back(normal(d.random, cache));
  d.counters(d.pick(0, d.t - n));
}

void act(Draw& d) {
  d.whole("act", d.pick(ENG_ACT_SILU, ENG_ACT_RELU));
}

void entropy(Draw& d, bool grad) {
  d.rows();
  const int64_t h = d.width(), v = d.width() + 1;
  d.floats({d.b, d.t, h});
  const int64_t rows = d.head(v, h, d.form & 4);
  d.tokens(v);
  for (int64_t k = 0; k < d.in[2].size(); ++k)
    if (d.pick(0, 4) == 0) d.in[2].put(k, -100);
  if (grad) {
    d.scalars();
    const bool no_dw = d.pick(0, 3) == 0;
    no_dw ? d.absent() : d.maybe({rows, h});
    d.whole("no_dw", no_dw);
  }
  if (d.form & 1) d.real("z_loss", 0.5);
  if (d.form & 1 && grad) d.real("weight", 0.7);
  if (d.form & 2) d.loss_weights();
}

void logprob(Draw& d, bool grad) {
  d.rows();
  const int64_t h = d.width(), v = d.width() + 1;
  d.floats({d.b, d.t, h});
  const int64_t rows = d.head(v, h, d.form & 1);
  d.tokens(v);
  for (int64_t k = 0; k < d.in[2].size(); ++k)
    if (d.pick(0, 4) == 0) d.in[2].put(k, -100);
  if (!grad) return;
  const bool no_dw = d.pick(0, 3) == 0;
  d.f32({d.b, d.t});
  no_dw ? d.absent() : d.maybe({rows, h});
  d.whole("no_dw", no_dw);
}

void product(Draw& d) {
  const int64_t m = d.width(), k = d.width(), n = d.width();
  const bool ta = d.flip(), tb = d.flip();
  d.floats({ta ? k : m, ta ? m : k}), d.floats({tb ? n : k, tb ? k : n});
  d.maybe({m, n});
  d.whole("ta", ta), d.whole("tb", tb);
}

int64_t flat(Draw& d) {
  static const int64_t some[] = {1, 7, 64, 255, 4096, 4100, 8192};
  return some[d.random() % std::size(some)];
}

void squares_positive(Array& a) {
  for (int64_t k = 0; k < a.size(); ++k) a.put(k, a.at(k) * a.at(k));
}

void init(Draw& d) {
  d.whole("count", flat(d));
  d.out_dtype = d.f;
  d.real("value", 0.3), d.real("mean", 0.1), d.real("std", 0.5), d.real("low", -1), d.real("high", 2);
  d.whole("seed", d.pick(0, 1000)), d.whole("stream", d.pick(0, 50)), d.whole("first", d.pick(0, 5) * 4096);
}

const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> all = {
      {ENG_OP_LINEAR,
       [](Draw& d) {
         d.rows();
         const int64_t k = d.width(), n = d.width();
         d.floats({d.b, d.t, k}), d.floats({n, k}), d.maybe({n});
       }},
      {ENG_OP_LINEAR_RELU,
       [](Draw& d) {
         d.rows();
         const int64_t k = d.width(), n = d.width();
         d.wholes({d.b, d.t, k}), d.wholes({n, k}), d.flip() ? d.wholes({n}) : d.absent();
       }},
      {ENG_OP_MATMUL_RELU_GRAD,
       [](Draw& d) {
         d.rows();
         const int64_t n = d.width(), k = d.width(), sums = d.flip();
         d.floats({d.b, d.t, n}), d.floats({n, k});
         d.in.push_back(integers(d.random, make_desc(ENG_U8, {d.b, d.t, eng_relu_mask_bytes(k)}), 0, 255));
         sums ? d.maybe({k}) : d.absent();
         d.whole("sums", sums);
       }},
      {ENG_OP_EMBEDDING,
       [](Draw& d) {
         d.rows();
         const int64_t v = d.width();
         d.tokens(v), d.floats({v, d.width()});
       }},
      {ENG_OP_EMBEDDING_GRAD,
       [](Draw& d) {
         d.rows();
         const int64_t v = d.width(), h = d.width();
         d.tokens(v), d.floats({d.b, d.t, h}), d.maybe({v, h}), d.whole("rows", v);
       }},
      {ENG_OP_RMS_NORM, [](Draw& d) { norm(d, false); }},
      {ENG_OP_LAYER_NORM, [](Draw& d) { norm(d, true); }},
      {ENG_OP_RMS_NORM_GRAD, [](Draw& d) { norm_grad(d, false); }},
      {ENG_OP_LAYER_NORM_GRAD, [](Draw& d) { norm_grad(d, true); }},
      {ENG_OP_ROPE,
       [](Draw& d) {
         d.rows();
         const int64_t heads = d.pick(1, 4), size = 2 * d.pick(1, 17);
         d.floats({d.b, d.t, heads * size}), d.in.push_back(normal(d.random, make_desc(ENG_F32, {d.t, size})));
         d.whole("heads", heads), d.whole("inverse", d.flip());
         if (d.form) d.positions();
       }},
      {ENG_OP_ROPE_STEP,
       [](Draw& d) {
         d.rows();
         const int64_t heads = d.pick(1, 4), size = 2 * d.pick(1, 17), n = d.pick(1, d.t);
         d.floats({d.b, n, heads * size}), d.in.push_back(normal(d.random, make_desc(ENG_F32, {d.t, size})));
         d.counters(d.pick(0, d.t - n)), d.whole("heads", heads), d.whole("inverse", 0);
       }},
      {ENG_OP_ATTENTION, [](Draw& d) { attention(d, false); }},
      {ENG_OP_ATTENTION_WINDOW, [](Draw& d) { attention(d, true); }},
      {ENG_OP_ATTENTION_GRAD, [](Draw& d) { attention_grad(d, ENG_OP_ATTENTION); }},
      {ENG_OP_ATTENTION_WINDOW_GRAD, [](Draw& d) { attention_grad(d, ENG_OP_ATTENTION_WINDOW); }},
      {ENG_OP_ATTENTION_STEP, [](Draw& d) { attention_step(d, false); }},
      {ENG_OP_ATTENTION_WINDOW_STEP, [](Draw& d) { attention_step(d, true); }},
      {ENG_OP_GATED,
       [](Draw& d) {
         d.rows(), d.floats({d.b, d.t, d.width()}), d.like(0), act(d);
       }},
      {ENG_OP_GATED_GRAD,
       [](Draw& d) {
         d.rows(), d.floats({d.b, d.t, d.width()}), d.like(0), d.like(0), act(d);
       }},
      {ENG_OP_ACTIVATION,
       [](Draw& d) {
         d.rows(), d.floats({d.b, d.t, d.width()}), act(d);
       }},
      {ENG_OP_ACTIVATION_GRAD,
       [](Draw& d) {
         d.rows(), d.floats({d.b, d.t, d.width()}), d.like(0), act(d);
       }},
      {ENG_OP_ADD,
       [](Draw& d) {
         d.rows(), d.floats({d.b, d.t, d.width()}), d.like(0);
       }},
      {ENG_OP_SCALE,
       [](Draw& d) {
         d.floats({d.width(), d.width()}), d.real("factor", 1.7);
       }},
      {ENG_OP_CAST,
       [](Draw& d) {
         d.floats({d.width(), d.width()});
         d.whole("dtype", d.f == ENG_F32 ? (d.flip() ? ENG_BF16 : ENG_F16) : ENG_F32);
       }},
      {ENG_OP_PACK,
       [](Draw& d) {
         d.in.push_back(normal(d.random, make_desc(ENG_F32, {d.pick(1, 3) * ENG_PACKED_CHUNK})));
         d.whole("packed", d.pick(ENG_PACKED_INT8, ENG_PACKED_NF4_DOUBLE));
       }},
      {ENG_OP_UNPACK,
       [](Draw& d) {
         const std::vector<Attr> packed = {{"packed", d.pick(ENG_PACKED_INT8, ENG_PACKED_NF4_DOUBLE), 0}};
         const Array x = normal(d.random, make_desc(ENG_F32, {d.pick(1, 3) * ENG_PACKED_CHUNK}));
         d.in = result(d, ENG_OP_PACK, {x}, packed);
         d.attrs = packed, d.whole("dtype", d.f == ENG_F64 ? ENG_F32 : d.f);
       }},
      {ENG_OP_RESHAPE,
       [](Draw& d) {
         d.rows();
         const int64_t heads = d.pick(1, 4), size = d.width();
         d.floats({d.b, d.t, heads * size}), d.whole("keep", 2), d.whole("ndim", 2);
         d.whole("dim0", heads), d.whole("dim1", d.flip() ? size : -1);
       }},
      {ENG_OP_TRANSPOSE,
       [](Draw& d) {
         d.floats({d.pick(1, 3), d.width(), d.pick(1, 3), d.width()});
         d.whole("a", d.pick(0, 3)), d.whole("b", d.pick(0, 3));
       }},
      {ENG_OP_SPLIT,
       [](Draw& d) {
         const int64_t first = d.width(), second = d.width(), axis = d.pick(0, 1), other = d.width();
         axis ? d.floats({other, first + second}) : d.floats({first + second, other});
         d.whole("axis", axis), d.whole("parts", 2), d.whole("size0", first), d.whole("size1", second);
       }},
      {ENG_OP_CONCAT,
       [](Draw& d) {
         const int64_t rows = d.width(), second = d.width();
         d.floats({rows, d.width()}), d.maybe({rows, second}), d.floats({rows, d.width()});
         d.whole("axis", 1), d.whole("size1", second);
       }},
      {ENG_OP_POSITIONS,
       [](Draw& d) {
         d.rows();
         const int64_t h = d.width(), offset = d.pick(0, 3);
         d.floats({d.b, d.t, h}), d.floats({d.t + offset + d.pick(0, 3), h}), d.whole("offset", offset);
         if (d.form) d.absent(), d.positions();
       }},
      {ENG_OP_POSITIONS_GRAD,
       [](Draw& d) {
         d.rows();
         const int64_t h = d.width(), offset = d.pick(0, 3), rows = d.t + offset + d.pick(0, 3);
         d.floats({d.b, d.t, h}), d.maybe({rows, h}), d.whole("offset", offset), d.whole("rows", rows);
         if (d.form) d.positions();
       }},
      {ENG_OP_DROPOUT,
       [](Draw& d) {
         d.rows();
         d.floats({d.b, d.t, d.width()}), d.counters();
         d.real("p", 0.3), d.whole("seed", d.pick(0, 99)), d.whole("stream", d.pick(1, 99));
       }},
      {ENG_OP_CROSS_ENTROPY, [](Draw& d) { entropy(d, false); }},
      {ENG_OP_CROSS_ENTROPY_GRAD, [](Draw& d) { entropy(d, true); }},
      {ENG_OP_CAPPED_CROSS_ENTROPY, [](Draw& d) { entropy(d, false), d.real("softcap", 2); }},
      {ENG_OP_CAPPED_CROSS_ENTROPY_GRAD, [](Draw& d) { entropy(d, true), d.real("softcap", 2); }},
      {ENG_OP_SOFTCAP,
       [](Draw& d) {
         d.rows(), d.f32({d.b, d.t, d.width()}), d.real("softcap", 2);
       }},
      {ENG_OP_LABEL_LOGPROB, [](Draw& d) { logprob(d, false); }},
      {ENG_OP_LABEL_LOGPROB_GRAD, [](Draw& d) { logprob(d, true); }},
      {ENG_OP_MATMUL, product},
      {ENG_OP_SUM_ROWS,
       [](Draw& d) {
         d.rows();
         const int64_t n = d.width();
         d.floats({d.b, d.t, n}), d.maybe({n});
       }},
      {ENG_OP_BEGIN, [](Draw& d) { d.in.push_back(normal(d.random, make_desc(ENG_F32, {8}))), d.counters(); }},
      {ENG_OP_LOSS_SEED, [](Draw& d) { d.scalars(), d.real("weight", 0.3), d.whole("dtype", wide(d.f)); }},
      {ENG_OP_GET_ROW,
       [](Draw& d) {
         d.floats({3, d.width(), d.width()}), d.counters();
       }},
      {ENG_OP_PUT_ROW, [](Draw& d) { d.floats({1}), d.floats({3}), d.counters(); }},
      {ENG_OP_COPY,
       [](Draw& d) {
         d.floats({d.width(), d.width()});
       }},
      {ENG_OP_SUM_SQUARES, [](Draw& d) { d.floats({4096 * d.pick(1, 3)}); }},
      {ENG_OP_FINISH,
       [](Draw& d) {
         d.in.push_back(normal(d.random, make_desc(ENG_F32, {d.width()})));
         squares_positive(d.in[0]);
         d.in.push_back(normal(d.random, make_desc(ENG_F32, {4, d.pick(1, 8)})));
         d.scalars(), d.counters(), d.real("max_norm", d.flip() ? 1 : 0);
       }},
      {ENG_OP_ADAMW,
       [](Draw& d) {
         const int64_t n = flat(d);
         for (int k = 0; k < 4; ++k) d.floats({n}, k < 2 ? 1 : 0.1);
         squares_positive(d.in[3]);
         if (d.pick(0, 3) == 0)
           d.scalars()[ENG_S_OK] = 0;
         else
           d.scalars();
         if (d.f == ENG_BF16) d.counters(), d.whole("seed", 5), d.whole("stream", 3), d.whole("first", 64);
         d.real("beta1", 0.9), d.real("beta2", 0.95), d.real("eps", 1e-8), d.real("weight_decay", d.flip() ? 0.1 : 0);
         if (d.f == ENG_F32 && d.flip()) d.whole("weight", d.flip() ? ENG_BF16 : ENG_F16);
       }},
      {ENG_OP_SGD,
       [](Draw& d) {
         const int64_t n = flat(d);
         d.floats({n}), d.floats({n}), d.maybe({n});
         if (d.pick(0, 3) == 0)
           d.scalars()[ENG_S_OK] = 0;
         else
           d.scalars();
         if (d.f == ENG_BF16) d.counters(), d.whole("seed", 5), d.whole("stream", 3), d.whole("first", 64);
         const bool momentum = d.in[2].desc.dtype != 0;
         d.real("momentum", momentum ? 0.9 : 0), d.real("weight_decay", d.flip() ? 0.1 : 0);
         d.whole("nesterov", momentum && d.flip());
         if (d.f == ENG_F32 && d.flip()) d.whole("weight", d.flip() ? ENG_BF16 : ENG_F16);
       }},
      {ENG_OP_FOLD,
       [](Draw& d) {
         const int64_t rows = d.pick(1, 9);
         d.floats({rows * flat(d)}), d.whole("rows", rows);
       }},
      {ENG_OP_INIT_CONSTANT, init},
      {ENG_OP_INIT_NORMAL, init},
      {ENG_OP_INIT_UNIFORM, init},
  };
  return all;
}

// The state of a loss scale and what its ops know.
void scaler(Draw& d) {
  d.in.emplace_back(make_desc(ENG_F32, {ENG_SCALER_COUNT}));
  float* s = d.in.back().as<float>();
  s[0] = d.flip() ? 0 : 1024, s[1] = static_cast<float>(d.pick(0, 5)), s[2] = static_cast<float>(d.pick(1, 2));
  d.scalars()[ENG_S_OK] = d.flip();
  d.real("initial", 65536), d.real("minimum", 1), d.whole("hysteresis", 2), d.whole("window", d.pick(0, 5));
  d.whole("consecutive", d.flip());
}

}  // namespace

std::optional<Case> standard_case(const std::string& id, int32_t dtype, uint32_t form, Random& random,
                                  const Forward& forward) {
  const auto found = makers().find(id);
  const bool scales = id == ENG_OP_LOSS_SCALE || id == ENG_OP_SCALER;
  Maker maker = scales ? scaler : found != makers().end() ? found->second : vocabulary_maker(id);
  if (!maker) maker = fp8_maker(id);
  if (!maker) return std::nullopt;
  Draw draw{random, dtype, forward, {}, {}, form};
  maker(draw);
  Case out{make_call(op(id), draw.in, {draw.attrs}), draw.in};
  if (draw.out_dtype) out.call.out[0].dtype = draw.out_dtype;
  return out;
}

}  // namespace eng::plugin_test
