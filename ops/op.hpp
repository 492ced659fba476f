// SPDX-License-Identifier: Apache-2.0
// Makes the functions of an eng_op (engine/op.h) from rules in C++:
//
//   std::string shapes(const Call& c, Descs& out);   // "" or what is wrong      .infer = infer<shapes>
//   void backward(Gradient& g);                      // throws Refused            .grad = grad<backward>
//   void next(Stepping& s);                          // throws Refused            .step = step<next>
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/op.h"
#include "engine/ops.h"

namespace ops {

using Descs = std::vector<eng_desc>;
using Ids = std::vector<eng_id>;
using Attrs = std::vector<eng_attr>;

// ---- types and shapes ----

inline eng_desc make_desc(int64_t dtype, std::initializer_list<int64_t> dims) {
  eng_desc d{};
  d.dtype = static_cast<int32_t>(dtype);
  for (int64_t n : dims) d.dims[d.ndim++] = n;
  return d;
}
// The number of elements, at most INT64_MAX.
inline int64_t count(const eng_desc& d) {
  if (std::find(d.dims, d.dims + d.ndim, 0) != d.dims + d.ndim) return 0;
  int64_t n = 1;
  for (uint32_t k = 0; k < d.ndim; ++k)
    if (__builtin_mul_overflow(n, d.dims[k], &n)) return INT64_MAX;
  return n;
}
inline int64_t last(const eng_desc& d) {
  return d.ndim ? d.dims[d.ndim - 1] : 1;
}
// The number of rows: the dimensions before the last one, folded.
inline int64_t rows(const eng_desc& d) {
  return last(d) ? count(d) / last(d) : 0;
}
inline eng_desc with_last(eng_desc d, int64_t n) {
  return d.dims[d.ndim - 1] = n, d;
}
inline bool same(const eng_desc& a, const eng_desc& b) {
  return a.dtype == b.dtype && a.ndim == b.ndim && std::equal(a.dims, a.dims + a.ndim, b.dims);
}
inline bool is_float(int64_t dtype) {
  return dtype == ENG_F32 || dtype == ENG_F64 || dtype == ENG_BF16 || dtype == ENG_F16;
}
// The type of sums, statistics and losses: f32, or f64 where compute is f64.
inline int32_t wide(int32_t dtype) {
  return dtype == ENG_F64 ? ENG_F64 : ENG_F32;
}

inline int64_t integer(const eng_attr* attrs, uint32_t n, const char* key, int64_t fallback = 0) {
  for (uint32_t k = 0; k < n; ++k)
    if (std::strcmp(attrs[k].key, key) == 0) return attrs[k].i;
  return fallback;
}
inline double real(const eng_attr* attrs, uint32_t n, const char* key) {
  for (uint32_t k = 0; k < n; ++k)
    if (std::strcmp(attrs[k].key, key) == 0) return attrs[k].f;
  return 0;
}

// One use of an op.
struct Call {
  const eng_call& c;
  const eng_desc& in(uint32_t k) const { return c.in[k]; }
  const eng_desc& out(uint32_t k) const { return c.out[k]; }
  bool has(uint32_t k) const { return k < c.n_in && c.in[k].dtype != 0; }
  int64_t i(const char* key, int64_t fallback = 0) const { return integer(c.attrs, c.n_attrs, key, fallback); }
  double f(const char* key) const { return real(c.attrs, c.n_attrs, key); }
};

// Input k, segments or positions of the tokens of x (B, T, ...), is absent or right.
inline bool numbers_tokens(const Call& c, uint32_t k, const eng_desc& x) {
  return !c.has(k) || same(c.in(k), make_desc(ENG_I32, {x.dims[0], x.dims[1]}));
}
// Output k has the shape of input Index[k].
template <uint32_t... Index>
std::string as_inputs(const Call& c, Descs& out) {
  (out.push_back(c.in(Index)), ...);
  return "";
}

// ---- rules ----

// The exception of a rule; `text` is the whole message.
struct Refused {
  eng_status status;
  std::string text;
};

inline eng_status report(eng_error* error, eng_status status, const std::string& text) {
  if (error && error->set) error->set(error, status, text.data(), text.size());
  return status;
}

// The common base of gradient and stepping rules. After an error of the host, all ids are 0 and the host keeps its
// text.
template <class Host>
class Rule {
 public:
  explicit Rule(Host* host) : host_(host), api_(*host->api) {
    uint32_t n = 0;
    const eng_attr* first = api_.attrs(host, &n);
    attrs_.assign(first, first + n);
  }
  eng_id in(uint32_t k) const { return api_.in(host_, k); }
  uint32_t inputs() const { return api_.inputs(host_); }
  eng_desc desc(eng_id value) const {
    eng_desc out{};
    api_.shape(host_, value, &out, nullptr);
    return out;
  }
  const Attrs& attrs() const { return attrs_; }
  int64_t i(const char* key) const { return integer(attrs_.data(), static_cast<uint32_t>(attrs_.size()), key); }
  double f(const char* key) const { return real(attrs_.data(), static_cast<uint32_t>(attrs_.size()), key); }
  // Emits an op and returns its first n outputs, or the first.
  Ids emit(uint32_t n, const char* op, const Ids& in, const Attrs& attrs) {
    Ids out(n, 0);
    api_.emit(host_, op, in.data(), static_cast<uint32_t>(in.size()), out.data(), n, attrs.data(),
              static_cast<uint32_t>(attrs.size()), nullptr);
    return out;
  }
  eng_id emit(const char* op, const Ids& in, const Attrs& attrs = {}) { return emit(1, op, in, attrs)[0]; }
  void give(uint32_t k, eng_id value) { api_.give(host_, k, value); }
  eng_status status(eng_error* error) const { return api_.status(host_, error); }

 protected:
  Host* host_;
  const std::remove_pointer_t<decltype(Host::api)>& api_;

 private:
  Attrs attrs_;
};

class Gradient : public Rule<eng_gradient> {
 public:
  using Rule::Rule;
  eng_id out(uint32_t k) const { return api_.out(host_, k); }
  eng_id d_out(uint32_t k) const { return api_.d_out(host_, k); }
  eng_id own_d_out(uint32_t k) const { return api_.own_d_out(host_, k); }
  bool wants(uint32_t k) const { return api_.wants(host_, k) != 0; }
  eng_id take(uint32_t k) { return api_.take(host_, k); }
  bool wanted(eng_id value) const { return api_.wanted(host_, value) != 0; }
  eng_id so_far(eng_id value) const { return api_.so_far(host_, value); }
  // The node of this op whose first output is `value`; without outputs if there is none.
  eng_node made_by(const char* op, eng_id value) const {
    eng_node node{};
    const bool found = api_.maker(host_, value, &node) && node.out[0] == value && std::strcmp(node.op, op) == 0;
    return found ? node : eng_node{};
  }
  eng_id scalars() const { return api_.scalars(host_); }
  double weight(uint32_t k) const { return api_.weight(host_, k); }
  void replaces(uint32_t k, eng_id value) { api_.replaces(host_, k, value); }
};

class Stepping : public Rule<eng_stepping> {
 public:
  using Rule::Rule;
  bool has(uint32_t k) const { return api_.has(host_, k) != 0; }
  int64_t length() const { return api_.length(host_); }
  eng_id state(const eng_desc& desc) { return api_.state(host_, &desc); }
  eng_id counters() { return api_.counters(host_); }
  // True if input k has no positions: parameters, and values computed from them alone.
  bool fixed(uint32_t k) const {
    eng_desc traced{};
    api_.traced(host_, k, &traced, nullptr);
    return same(traced, desc(in(k)));
  }
};

// Refuses a node with input k, which numbers the documents of a sample or the tokens in them.
inline void one_document(const Stepping& s, const char* op, uint32_t k) {
  if (s.has(k))
    throw Refused{ENG_UNSUPPORTED, std::string(op) + ": input " + std::to_string(k) +
                                       " divides samples into documents, but a running sequence is one document; "
                                       "generate with a model that is traced without this input"};
}

// ---- the functions of an eng_op ----

template <std::string (*Shapes)(const Call&, Descs&)>
eng_status infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) try {
  Descs made;
  const std::string wrong = Shapes(Call{*call}, made);
  if (!wrong.empty()) return report(error, ENG_INVALID, wrong);
  if (made.size() > cap) return report(error, ENG_INVALID, "the host has no room for the outputs");
  std::copy(made.begin(), made.end(), out);
  *n_out = static_cast<uint32_t>(made.size());
  return ENG_OK;
} catch (const std::exception& e) {
  return report(error, ENG_INTERNAL, e.what());
}

template <double (*Work)(const Call&)>
double flops(const eng_call* call) {
  return Work(Call{*call});
}

template <class Side, class Host, void (*Emit)(Side&)>
eng_status emit_by(Host* host, eng_error* error) try {
  Side side(host);
  Emit(side);
  return side.status(error);
} catch (const Refused& refused) {
  return report(error, refused.status, refused.text);
} catch (const std::exception& e) {
  return report(error, ENG_INTERNAL, e.what());
}
template <void (*Backward)(Gradient&)>
eng_status grad(eng_gradient* host, eng_error* error) {
  return emit_by<Gradient, eng_gradient, Backward>(host, error);
}
template <void (*Next)(Stepping&)>
eng_status step(eng_stepping* host, eng_error* error) {
  return emit_by<Stepping, eng_stepping, Next>(host, error);
}

// Members of eng_op.in_place: output `out` may take the memory of input `in`, or always does.
constexpr eng_in_place may_take(uint32_t out, uint32_t in) {
  return {out, in, 0, 0};
}
constexpr eng_in_place must_take(uint32_t out, uint32_t in) {
  return {out, in, 1, 0};
}

}  // namespace ops
