// SPDX-License-Identifier: Apache-2.0
// Ops of the step and initialisation ops (engine/ops.h), and the lookup of all ops.
#include <algorithm>
#include <map>

#include "core/trace/shapes.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

template <int... Index>
std::string repeat(Shapes in, const Attrs&, Out& out) {  // output k has the shape of input Index[k]
  (out.push_back(in[Index]), ...);
  return "";
}

std::string begin(Shapes in, const Attrs&, Out& out) {
  out.push_back(make_desc(ENG_F32, {ENG_S_COUNT}));
  out.push_back(in[1]);
  return "";
}

std::string get_row(Shapes in, const Attrs&, Out& out) {
  eng_desc row = in[0];
  for (uint32_t k = 1; k < row.ndim; ++k) row.dims[k - 1] = row.dims[k];
  row.ndim -= 1;
  out.push_back(row);
  return "";
}

std::string loss_seed(Shapes, const Attrs& attrs, Out& out) {
  const int64_t dtype = attrs.i("dtype");
  if (dtype != ENG_F32 && dtype != ENG_F64) return "its dtype must be f32 or f64";
  out.push_back(make_desc(static_cast<int32_t>(dtype), {1}));
  return "";
}

std::string sum_squares(Shapes in, const Attrs&, Out& out) {
  if (count(in[0]) % 4096) return "the length must be a multiple of 4096";
  out.push_back(make_desc(ENG_F32, {count(in[0]) / 4096}));
  return "";
}

// The 16-bit weight that an update may write beside p, its first input.
std::string add_weight(Shapes in, const Attrs& attrs, Out& out) {
  const int64_t dtype = attrs.i("weight");
  if (!dtype) return "";
  if (in[0].dtype != ENG_F32 || (dtype != ENG_BF16 && dtype != ENG_F16))
    return "the weight that it writes must be bf16 or f16, and p f32";
  out.push_back(in[0]);
  out.back().dtype = static_cast<int32_t>(dtype);
  return "";
}

// What is kept in bf16 is rounded by numbers that depend on the update: input `at` are the counters.
std::string counted(Shapes in, size_t at) {
  const bool given = in.size() > at && in[at].dtype == ENG_I64;
  return in[0].dtype == ENG_BF16 && !given ? "p in bf16 needs the counters" : "";
}

std::string adamw(Shapes in, const Attrs& attrs, Out& out) {
  if (const std::string wrong = counted(in, 5); !wrong.empty()) return wrong;
  out = {in[0], in[2], in[3]};
  return add_weight(in, attrs, out);
}

std::string sgd(Shapes in, const Attrs& attrs, Out& out) {
  if (const std::string wrong = counted(in, 4); !wrong.empty()) return wrong;
  out.push_back(in[0]);
  if (in[2].dtype) out.push_back(in[2]);
  return add_weight(in, attrs, out);
}

std::string rope_at(Shapes in, const Attrs& attrs, Out& out) {
  int64_t heads = attrs.i("heads");
  if (in[0].ndim != 3 || heads < 1 || in[1].ndim != 2 || in[0].dims[2] != heads * in[1].dims[1] ||
      in[0].dims[1] > in[1].dims[0])
    return "x (B, n, heads*D) needs a table (T, D) with T >= n";
  return out.push_back(in[0]), "";
}

std::string attention_at(Shapes in, const Attrs& attrs, Out& out) {
  int64_t heads = attrs.i("heads"), kv = attrs.i("kv_heads");
  if (in[0].ndim != 3 || heads < 1 || kv < 1 || heads % kv || in[0].dims[2] % heads)
    return "q must be (B, n, heads*D), heads a multiple of kv_heads";
  eng_desc key = make_desc(in[0].dtype, {in[0].dims[0], in[0].dims[1], in[0].dims[2] / heads * kv}), cache = key;
  cache.dims[1] = in[3].ndim == 3 ? std::max(in[3].dims[1], key.dims[1]) : 0;
  if (!same(in[1], key) || !same(in[2], key) || !same(in[3], cache) || !same(in[4], cache))
    return "k and v must be (B, n, kv_heads*D), their caches (B, S, kv_heads*D) with S >= n";
  out = {in[0], in[3], in[4]};
  return "";
}

std::string init(Shapes, const Attrs& attrs, Out& out) {
  out.push_back(make_desc(ENG_F32, {attrs.i("count")}));
  return "";
}

}  // namespace

std::span<const Op> step_ops() {
  static const Op ops[] = {
      {ENG_OP_BEGIN, 2, 2, begin, nullptr, {{1, 1, true}}},
      {ENG_OP_LOSS_SEED, 1, 1, loss_seed},
      {ENG_OP_GET_ROW, 2, 2, get_row},
      {ENG_OP_PUT_ROW, 3, 3, repeat<1, 2>, nullptr, {{0, 1, true}, {1, 2, true}}},
      {ENG_OP_COPY, 1, 1, repeat<0>},
      {ENG_OP_SUM_SQUARES, 1, 1, sum_squares},
      {ENG_OP_FINISH, 4, 4, repeat<2, 3>, nullptr, {{0, 2, true}, {1, 3, true}}},
      {ENG_OP_LOSS_SCALE, 2, 2, repeat<1>, nullptr, {{0, 1, true}}},
      {ENG_OP_SCALER, 2, 2, repeat<0>, nullptr, {{0, 0, true}}},
      {ENG_OP_ADAMW, 5, 6, adamw, nullptr, {{0, 0, true}, {1, 2, true}, {2, 3, true}}},
      {.id = ENG_OP_SGD,
       .min_in = 4,
       .max_in = 5,
       .infer = sgd,
       .in_place = {{0, 0, true}, {1, 2, true}},
       .optional = 1U << 2},
      {ENG_OP_ROPE_STEP, 3, 3, rope_at, nullptr, {{0, 0, false}}},
      {ENG_OP_ATTENTION_STEP, 6, 6, attention_at, nullptr, {{1, 3, true}, {2, 4, true}}},
      {ENG_OP_INIT_CONSTANT, 0, 0, init},
      {ENG_OP_INIT_NORMAL, 0, 0, init},
      {ENG_OP_INIT_UNIFORM, 0, 0, init},
  };
  return ops;
}

int64_t Attrs::i(const std::string& key, int64_t fallback) const {
  for (const auto& a : list)
    if (a.key == key) return a.i;
  return fallback;
}

double Attrs::f(const std::string& key, double fallback) const {
  for (const auto& a : list)
    if (a.key == key) return a.f;
  return fallback;
}

const Op* find_op(const std::string& id) {
  static const std::map<std::string, const Op*> all = [] {
    std::map<std::string, const Op*> m;
    for (auto list : {layer_ops(), gradient_ops(), norm_ops(), elementwise_ops(), step_ops(), rank_ops()})
      for (const Op& op : list) m[op.id] = &op;
    return m;
  }();
  auto it = all.find(id);
  return it == all.end() ? find_plugin_op(id) : it->second;
}

const Op& op(const std::string& id) {
  return *find_op(id);
}

}  // namespace eng
