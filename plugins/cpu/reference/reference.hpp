// SPDX-License-Identifier: Apache-2.0
// The reference kernels: one loop per sum, one thread, every sum in f64 whatever the type of the tensors, so that the
// result is the exact one rounded once. An op computes in f32 or in f64, the type of its first floating-point input.
// Tensors that ops.h fixes as f32 (rstd, lse, loss, tables, scalars) may be f64 as well when the op computes in f64.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "../../common/kernel.hpp"

namespace reference {

using cpu::Args;
using cpu::Call;
using cpu::columns;
using cpu::elements;
using cpu::Error;
using cpu::rows;

// Appends the kernels of one file to the plugin's list.
using List = std::vector<const eng_kernel*>;
void add_matrix(List&);
void add_embedding(List&);
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

inline void expect(bool ok, const char* rule) {
  if (!ok) throw Error{ENG_INVALID, rule};
}

inline bool is_real(const eng_desc& d) {
  return d.dtype == ENG_F32 || d.dtype == ENG_F64;
}
inline bool is_real(const Call& c, size_t k) {
  return c.has(k) && is_real(c.in[k]);
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
    if (c.has(k) && (!is_real(c.in[k]) || c.in[k].dtype != c.in[first].dtype))
      throw Error{ENG_UNSUPPORTED, "computes in f32 or in f64; all inputs must have one type"};
  for (size_t k : out)
    if (c.out[k].dtype != c.in[first].dtype) throw Error{ENG_UNSUPPORTED, "outputs must have the type of the inputs"};
}

inline void expect_inputs(const Call& c, std::initializer_list<size_t> required) {
  for (size_t k : required)
    if (!c.has(k)) throw Error{ENG_INVALID, "input " + std::to_string(k) + " is missing"};
}

// Calls body(T{}) with T = double for f64, float otherwise.
template <class Body>
void by_type(int32_t dtype, Body&& body) {
  if (dtype == ENG_F64)
    body(double{});
  else
    body(float{});
}

// A tensor that is f32 or f64 independently of the op's own type.
struct Reals {
  const void* data;
  bool wide;
  Reals(const Call& c, const Args& a, size_t k) : data(a.in<void>(k)), wide(c.in[k].dtype == ENG_F64) {}
  double operator[](int64_t i) const {
    return wide ? static_cast<const double*>(data)[i] : double(static_cast<const float*>(data)[i]);
  }
};
struct RealsOut {
  void* data;
  bool wide;
  RealsOut(const Call& c, const Args& a, size_t k) : data(a.out<void>(k)), wide(c.out[k].dtype == ENG_F64) {}
  void set(int64_t i, double value) const {
    if (wide)
      static_cast<double*>(data)[i] = value;
    else
      static_cast<float*>(data)[i] = float(value);
  }
};

}  // namespace reference
