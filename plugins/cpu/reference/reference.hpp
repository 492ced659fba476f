// SPDX-License-Identifier: Apache-2.0
// The reference kernels: one loop per sum, one thread, every sum in f64 whatever the type of the tensors, so that the
// result is the exact one rounded once. An op has the type of its first floating-point input: f32, f64, bf16 or f16.
// Tensors that ops.h fixes as f32 (rstd, lse, loss, tables, scalars) may be f64 as well when the op computes in f64.
// Sums over rows of 16-bit tensors, which are gradients of parameters, may be f32.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "../../common/documents.hpp"
#include "../../common/kernel.hpp"
#include "../../common/reals.hpp"

namespace reference {

using common::Args;
using common::Call;
using common::columns;
using common::elements;
using common::Error;
using common::is_half;
using common::rows;

// Appends the kernels of one file to the plugin's list.
using List = std::vector<const eng_kernel*>;
void add_matrix(List&);
void add_embedding(List&);
void add_fp8(List&);
void add_norm(List&);
void add_rope(List&);
void add_attention(List&);
void add_sequence(List&);
void add_layer_norm(List&);
void add_gated(List&);
void add_activation(List&);
void add_cast(List&);
void add_dropout(List&);
void add_cross_entropy(List&);
void add_step(List&);
void add_optimizer(List&);
void add_init(List&);
void add_layout(List&);
void add_packed(List&);
void add_vocabulary(List&);

inline void expect(bool ok, const char* rule) {
  if (!ok) throw Error{ENG_INVALID, rule};
}

inline bool is_real(const eng_desc& d) {
  return d.dtype == ENG_F32 || d.dtype == ENG_F64;
}
inline bool is_real(const Call& c, size_t k) {
  return c.has(k) && is_real(c.in[k]);
}

// True if a value may be f32 where parameters of type `dtype` have 16 bits; otherwise it has their type.
inline bool is_stream(const eng_desc& d, int32_t dtype) {
  return d.dtype == dtype || (d.dtype == ENG_F32 && (dtype == ENG_BF16 || dtype == ENG_F16));
}

inline void expect_counters(const eng_desc& d) {
  expect(d.dtype == ENG_I64 && elements(d) == ENG_C_COUNT, "counters must be i64 (8)");
}

template <class T>
double dot(const T* x, const T* y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double(x[i]) * double(y[i]);
  return sum;
}

// Checks the number of tensors, and that every floating-point one among `in` (absent ones aside) and `out` has the type
// of the first.
inline void expect_types(const Call& c, size_t most_in, std::initializer_list<size_t> in, size_t n_out,
                         std::initializer_list<size_t> out) {
  if (c.in.size() > most_in || c.out.size() != n_out)
    throw Error{ENG_INVALID, "takes up to " + std::to_string(most_in) + " inputs and gives " + std::to_string(n_out)};
  const size_t first = *in.begin();
  for (size_t k : in)
    if (c.has(k) && ((!is_real(c.in[k]) && !is_half(c.in[k])) || c.in[k].dtype != c.in[first].dtype))
      throw Error{ENG_UNSUPPORTED, "computes in f32, f64, bf16 or f16; all inputs must have one type"};
  for (size_t k : out)
    if (c.out[k].dtype != c.in[first].dtype) throw Error{ENG_UNSUPPORTED, "outputs must have the type of the inputs"};
}

// Checks that sums over rows, `out`, and what they are added to, `in`, have the type `dtype`, or all f32 if that is a
// 16-bit one.
inline void expect_sums(const Call& c, int32_t dtype, std::initializer_list<size_t> in,
                        std::initializer_list<size_t> out) {
  int32_t sums = 0;
  const auto expect_one = [&](const eng_desc& d) {
    const bool wider = d.dtype == ENG_F32 && (dtype == ENG_BF16 || dtype == ENG_F16);
    if ((d.dtype != dtype && !wider) || (sums && d.dtype != sums))
      throw Error{ENG_UNSUPPORTED, "sums must have the type of the inputs; of 16-bit inputs they may be f32"};
    sums = d.dtype;
  };
  for (size_t k : in)
    if (c.has(k)) expect_one(c.in[k]);
  for (size_t k : out)
    if (c.has_out(k)) expect_one(c.out[k]);
}

inline void expect_inputs(const Call& c, std::initializer_list<size_t> required) {
  for (size_t k : required)
    if (!c.has(k)) throw Error{ENG_INVALID, "input " + std::to_string(k) + " is missing"};
}

// Calls body(T{}) with T = double for f64, float otherwise.
template <class Body>
void by_real(int32_t dtype, Body&& body) {
  if (dtype == ENG_F64)
    body(double{});
  else
    body(float{});
}

// Like by_real, with the 16-bit types too. T(x) rounds x once.
template <class Body>
void by_type(int32_t dtype, Body&& body) {
  if (dtype == ENG_BF16)
    body(common::Bf16{});
  else if (dtype == ENG_F16)
    body(common::F16{});
  else
    by_real(dtype, body);
}

// The type in which an op whose every operation is defined computes: f32 for 16-bit types, otherwise its own.
template <class T>
using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;

// An input, or an output, whose type is independent of the op's own. An absent input is false.
struct Reals : common::Reals {
  Reals(const Call& c, const Args& a, size_t k) : common::Reals(c, a, k < c.in.size() ? k : SIZE_MAX) {}
};
struct RealsOut : common::Reals {
  RealsOut(const Call& c, const Args& a, size_t k) : common::Reals(c, a, c.in.size() + k) {}
};

}  // namespace reference
