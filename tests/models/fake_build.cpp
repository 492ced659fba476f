// SPDX-License-Identifier: Apache-2.0
#include "fake_build.hpp"

#include <cmath>
#include <stdexcept>

#include "engine/ops.h"

namespace models {
namespace {

size_t last(const Value& v) {
  return static_cast<size_t>(v.desc.dims[v.desc.ndim - 1]);
}
size_t rows(const Value& v) {
  return v.data.size() / last(v);
}

void need(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(what);
}

Value shaped(const Value& like, size_t width) {
  Value out;
  out.desc = like.desc;
  out.desc.dims[out.desc.ndim - 1] = static_cast<int64_t>(width);
  out.data.assign(rows(like) * width, 0.0);
  return out;
}

Value linear(const Value& x, const Value& w, const Value* bias) {
  need(w.desc.ndim == 2 && last(x) == last(w), "linear: x (..., K) and w (N, K) differ in K");
  const size_t n = rows(w), k = last(w);
  need(!bias || bias->data.size() == n, "linear: bias is not (N)");
  Value y = shaped(x, n);
  for (size_t r = 0; r < rows(x); ++r)
    for (size_t j = 0; j < n; ++j) {
      double sum = bias ? bias->data[j] : 0.0;
      for (size_t i = 0; i < k; ++i) sum += x.data[r * k + i] * w.data[j * k + i];
      y.data[r * n + j] = sum;
    }
  return y;
}

Value embedding(const Value& tokens, const Value& table) {
  Value y;
  y.desc = {ENG_F32, 3, {tokens.desc.dims[0], tokens.desc.dims[1], table.desc.dims[1]}};
  for (double token : tokens.data) {
    need(token >= 0 && token < static_cast<double>(rows(table)), "embedding: token out of range");
    const double* row = table.data.data() + static_cast<size_t>(token) * last(table);
    y.data.insert(y.data.end(), row, row + last(table));
  }
  return y;
}

std::vector<Value> rms_norm(const Value& x, const Value& w, const Value* residual, double eps) {
  need(w.data.size() == last(x), "rms_norm: w is not (H)");
  Value s = x, y = x, rstd = shaped(x, 1);
  const size_t h = last(x);
  for (size_t r = 0; r < rows(x); ++r) {
    double sum = 0.0;
    for (size_t i = r * h; i < (r + 1) * h; ++i) {
      if (residual) s.data[i] += residual->data.at(i);
      sum += s.data[i] * s.data[i];
    }
    rstd.data[r] = 1.0 / std::sqrt(sum / static_cast<double>(h) + eps);
    for (size_t i = 0; i < h; ++i) y.data[r * h + i] = s.data[r * h + i] * rstd.data[r] * w.data[i];
  }
  if (residual) return {y, rstd, s};
  return {y, rstd};
}

Value rope(const Value& x, const Value& table, size_t heads) {
  const size_t t_count = rows(table), d = last(table), half = d / 2;
  need(last(x) == heads * d && static_cast<int64_t>(t_count) == x.desc.dims[1], "rope: table does not fit x");
  Value y = x;
  for (size_t r = 0; r < rows(x); ++r) {
    const double* cs = table.data.data() + (r % t_count) * d;
    for (size_t h = 0; h < heads; ++h) {
      const size_t at = r * heads * d + h * d;
      for (size_t j = 0; j < half; ++j) {
        const double x1 = x.data[at + j], x2 = x.data[at + half + j];
        y.data[at + j] = x1 * cs[j] - x2 * cs[half + j];
        y.data[at + half + j] = x2 * cs[j] + x1 * cs[half + j];
      }
    }
  }
  return y;
}

Value attention(const Value& q, const Value& k, const Value& v, size_t heads, size_t kv_heads, double scale) {
  const size_t batches = static_cast<size_t>(q.desc.dims[0]), length = static_cast<size_t>(q.desc.dims[1]);
  const size_t d = last(q) / heads, wide = last(q), narrow = kv_heads * d;
  need(last(k) == narrow && last(v) == narrow && heads % kv_heads == 0, "attention: heads do not fit");
  Value o = shaped(q, wide);
  std::vector<double> p(length);
  for (size_t b = 0; b < batches; ++b)
    for (size_t h = 0; h < heads; ++h)
      for (size_t t = 0; t < length; ++t) {
        const size_t shared = h / (heads / kv_heads) * d;
        double total = 0.0;
        for (size_t u = 0; u <= t; ++u) {
          double dot = 0.0;
          for (size_t i = 0; i < d; ++i)
            dot += q.data[(b * length + t) * wide + h * d + i] * k.data[(b * length + u) * narrow + shared + i];
          p[u] = std::exp(scale * dot);
          total += p[u];
        }
        for (size_t u = 0; u <= t; ++u)
          for (size_t i = 0; i < d; ++i)
            o.data[(b * length + t) * wide + h * d + i] +=
                p[u] / total * v.data[(b * length + u) * narrow + shared + i];
      }
  return o;
}

double activation(double x, int64_t act) {
  switch (act) {
    case ENG_ACT_SILU:
      return x / (1.0 + std::exp(-x));
    case ENG_ACT_GELU:
      return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    case ENG_ACT_GELU_TANH:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case ENG_ACT_RELU:
      return x > 0.0 ? x : 0.0;
  }
  throw std::runtime_error("gated: unknown activation");
}

Value cross_entropy(const Value& x, const Value& w, const Value& labels) {
  const Value logits = linear(x, w, nullptr);
  need(labels.data.size() == rows(x), "cross_entropy: labels do not fit x");
  double loss = 0.0;
  for (size_t r = 0; r < rows(logits); ++r) {
    if (labels.data[r] == -100.0) continue;
    const double* row = logits.data.data() + r * last(logits);
    double total = 0.0;
    for (size_t j = 0; j < last(logits); ++j) total += std::exp(row[j]);
    loss += std::log(total) - row[static_cast<size_t>(labels.data[r])];
  }
  Value out;
  out.desc = {ENG_F32, 1, {1}};
  out.data = {loss};
  return out;
}

}  // namespace

std::vector<Value> FakeBuild::run(const Emitted& op) const {
  auto in = [&](size_t i) -> const Value& { return values_.at(op.in.at(i)); };
  auto maybe = [&](size_t i) { return op.in.at(i) ? &values_.at(op.in[i]) : nullptr; };
  auto whole = [&](const char* key) { return static_cast<size_t>(op.attrs.at(key).i); };
  if (op.op == ENG_OP_LINEAR) return {linear(in(0), in(1), fault_ == "dropped bias" ? nullptr : maybe(2))};
  if (op.op == ENG_OP_EMBEDDING) return {embedding(in(0), in(1))};
  if (op.op == ENG_OP_RMS_NORM)
    return rms_norm(in(0), in(1), maybe(2), fault_ == "no eps" ? 0.0 : op.attrs.at("eps").f);
  if (op.op == ENG_OP_ROPE) {
    need(op.attrs.at("inverse").i == 0, "rope: a model rotates forward");
    return {fault_ == "no rotation" ? in(0) : rope(in(0), in(1), whole("heads"))};
  }
  if (op.op == ENG_OP_ATTENTION) {
    const double scale = op.attrs.at("scale").f * (fault_ == "scale off by 1 %" ? 1.01 : 1.0);
    const Value o = attention(in(0), in(1), in(2), whole("heads"), whole("kv_heads"), scale);
    return {o, Value{}};  // no model reads lse
  }
  if (op.op == ENG_OP_GATED) {
    Value y = in(1);
    need(in(0).data.size() == y.data.size(), "gated: gate and up differ");
    const int64_t act = fault_ == "another activation" ? ENG_ACT_SILU : op.attrs.at("act").i;
    for (size_t i = 0; i < y.data.size(); ++i) y.data[i] *= activation(in(0).data[i], act);
    return {y};
  }
  if (op.op == ENG_OP_ADD) {
    Value y = in(0);
    need(in(1).data.size() == y.data.size(), "add: shapes differ");
    for (size_t i = 0; i < y.data.size(); ++i) y.data[i] += in(1).data[i];
    return {y};
  }
  if (op.op == ENG_OP_CROSS_ENTROPY) return {cross_entropy(in(0), in(1), in(2))};
  throw std::runtime_error("no op " + op.op);
}

eng_status FakeBuild::fail(eng_status code, const std::string& why, eng_error* error) {
  if (state == ENG_OK) state = code, text = why;
  if (error) error->set(error, state, text.data(), text.size());
  return state;
}

eng_id FakeBuild::add(Value value) {
  const eng_id id = static_cast<eng_id>(values_.size() + 1001);  // apart from parameter ids
  values_[id] = std::move(value);
  return id;
}

// The C functions.
struct FakeCalls {
  static FakeBuild& self(eng_build* b) { return *static_cast<FakeBuild*>(b); }

  static eng_status status(eng_build* b, eng_error* e) {
    return self(b).state == ENG_OK ? ENG_OK : self(b).fail(self(b).state, "", e);
  }
  static eng_status shape(eng_build* b, eng_id id, eng_desc* out, eng_error* e) {
    const auto found = self(b).values_.find(id);
    const bool unknown = found == self(b).values_.end();
    if (unknown && !self(b).compute) return *out = {ENG_F32, 0, {}}, ENG_OK;  // weights that are only numbers
    if (unknown) return self(b).fail(ENG_INVALID, "shape of an unknown value", e);
    *out = found->second.desc;
    return ENG_OK;
  }
  static eng_status param(eng_build* b, const eng_param* p, eng_id* out, eng_error*) {
    Param made{p->name, p->init_op, {}, {p->dims, p->dims + p->ndim}, p->flags};
    for (uint32_t i = 0; i < p->n_init; ++i) made.init[p->init[i].key] = p->init[i].f;
    self(b).params.push_back(made);
    *out = static_cast<eng_id>(self(b).params.size());
    return ENG_OK;
  }
  static eng_status block(eng_build* b, const char* name, uint32_t tmpl, const eng_id* ids, uint32_t n, eng_error*) {
    self(b).blocks.push_back({name, tmpl, {ids, ids + n}});
    return ENG_OK;
  }
  static eng_status batch(eng_build* b, const char* name, eng_id* out, eng_error* e) {
    const auto found = self(b).batch.find(name);
    if (found == self(b).batch.end()) return self(b).fail(ENG_NOT_FOUND, "unknown part of the batch", e);
    *out = self(b).add(found->second);
    return ENG_OK;
  }
  static eng_status offers(eng_build* b, const char* name, int32_t* out, eng_error*) {
    *out = self(b).batch.count(name) ? 1 : 0;
    return ENG_OK;
  }
  static eng_status constant(eng_build* b, const eng_desc* desc, const void* data, eng_id* out, eng_error*) {
    size_t n = 1;
    for (uint32_t i = 0; i < desc->ndim; ++i) n *= static_cast<size_t>(desc->dims[i]);
    const float* from = static_cast<const float*>(data);
    *out = self(b).add({*desc, {from, from + n}});
    self(b).constants.push_back(*out);
    return ENG_OK;
  }
  static eng_status emit(eng_build* b, const char* op, const eng_id* in, uint32_t n_in, eng_id* out, uint32_t n_out,
                         const eng_attr* attrs, uint32_t n_attrs, eng_error* e) {
    FakeBuild& f = self(b);
    if (f.state != ENG_OK) return f.fail(f.state, "", e);
    Emitted made{op, {in, in + n_in}, {out, out + n_out}, {}};
    for (uint32_t i = 0; i < n_attrs; ++i) made.attrs[attrs[i].key] = attrs[i];
    try {
      if (f.compute) {
        std::vector<Value> results = f.run(made);
        need(results.size() == n_out, "wrong number of outputs");
        for (uint32_t i = 0; i < n_out; ++i) out[i] = made.out[i] = f.add(std::move(results[i]));
      }
    } catch (const std::exception& x) {
      return f.fail(ENG_INVALID, std::string(op) + ": " + x.what(), e);
    }
    f.emitted.push_back(made);
    return ENG_OK;
  }
  static eng_status loss(eng_build* b, eng_id hidden, eng_id weight, eng_id* out, eng_error* e) {
    eng_id labels = 0;
    batch(b, "labels", &labels, e);
    *out = eng_language_loss(b, hidden, weight, labels, eng_offered(b, "loss_weights"), 0.0);
    return status(b, e);
  }
};

static const eng_build_api calls = [] {
  eng_build_api out{};
  out.struct_size = sizeof(out);
  out.status = FakeCalls::status, out.shape = FakeCalls::shape;
  out.param = FakeCalls::param, out.block = FakeCalls::block;
  out.batch = FakeCalls::batch, out.offers = FakeCalls::offers;
  out.constant = FakeCalls::constant, out.emit = FakeCalls::emit;
  out.loss = FakeCalls::loss;
  return out;
}();

FakeBuild::FakeBuild(std::string fault) : eng_build{&calls}, fault_(std::move(fault)) {}

}  // namespace models
