// SPDX-License-Identifier: Apache-2.0
// The inner loops of the memory-bound kernels, once per instruction set. The code around them (checks,
// threads, addresses) is compiled once, for the plainest processor, and reaches them through this table.
//
// T is the type of a tensor's elements in memory: float, bf16 or f16. Whatever is computed is computed in f32, and
// rounded to T when it is stored. Statistics, tables of angles and partial sums are f32 in memory as well.
#pragma once

#include "../../../common/simd/names.hpp"

namespace cpu {

// X, the type of what is normed, is T or float.
template <class T, class X>
struct norm_forward {
  const X *x, *residual;  // residual and s: both or none
  const T* w;
  T* y;
  X* s;
  float* rstd;
  int64_t h;
  float eps;
};

template <class T, class X>
struct norm_backward {
  const T *dy, *w;
  const X *s, *ds;
  const float* rstd;
  X* dx;
  int64_t h;
};

template <class T>
struct layer_norm_forward {
  const T *x, *w, *bias, *residual;  // w and bias may be null; residual and s: both or none
  T *y, *s;
  float* stats;  // mean and rstd of each row
  int64_t h;
  float eps;
};

template <class T>
struct layer_norm_backward {
  const T *dy, *s, *w, *ds;
  const float* stats;
  T* dx;
  int64_t h;
};

struct dropout_mask {
  int64_t n;          // elements of a sequence
  uint32_t sequence;  // number of the first one in the batch
  uint32_t step, stream, threshold;
  uint64_t seed;
  float scale;
};

template <class T>
struct rope_call {
  const T* x;
  const float* table;
  T* y;
  int64_t heads, d, t;  // d: half a head
  bool inverse;
  const int32_t* positions;  // the row of the table for each row of x; null: its number modulo t
};

// The sum of some rows of x, in order, and acc (or null).
template <class T, class Sum>
struct row_sums {
  const T* x;
  const int32_t* order;  // numbers of the rows; null: 0, 1, ...
  int64_t rows, stride;  // how many; from one row of x to the next
  const Sum* acc;
  Sum* y;
  bool acc_first;  // acc + row + row ..., otherwise acc + (row + row ...)
};

// The `heads` query heads that share one key head, d wide, over `keys` rows of the caches.
template <class T>
struct attend_call {
  const T *q, *k, *v;
  T* o;
  float *sums, *scores;            // sums (heads, d), may be o; scores (heads, keys)
  int64_t heads, d, keys, stride;  // stride: from one row of a cache to the next
  float scale, cap;                // cap: 0 for none
};

// y (m, n) = x (m, k) w (n, k)^T + bias, for few rows m
template <class T>
struct gemv_call {
  const T *x, *w, *bias;
  T* y;
  int64_t m, n, k;
};

// Rounding to a format of 8 bits: those of eng_fp8_round (engine/ops_fp8.h).
struct fp8_format {
  uint32_t fraction, least;  // bits; biased exponent of the smallest normal number
  float most;
  bool infinite;  // it has infinities
};

struct adamw_numbers {
  float clip, lr, c1, c2, rest1, beta2, rest2, eps, wd;  // rest: 1 - beta
};
struct sgd_numbers {
  float clip, lr, momentum, wd;
  bool first, nesterov;
};
// The updated values are f32, or bf16 and rounded stochastically; `first` is then the first element in its parameter.
template <class G, class S>
struct update_memory {
  const G* grad;
  const S *p_in, *in[2];  // in and out: the states; null if there are fewer
  S *p, *out[2];
  int64_t first;
  rounding_key key;
};

// Ranges begin .. end are rows for norms and rope, columns of y for gemv, fold_chunks and sums of rows, chunks for
// sum_squares, groups of 64 elements for dropout.
template <class T>
struct typed_loops {
  void (*add)(const T* a, const T* b, T* y, int64_t n);
  void (*add_wide)(const T* a, const float* b, float* y, int64_t n);
  void (*gated[4])(const T* gate, const T* up, T* y, int64_t n);  // by ENG_ACT_* - 1
  void (*gated_grad[4])(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t n);
  void (*activation[4])(const T* x, T* y, int64_t n);
  void (*activation_grad[4])(const T* dy, const T* x, T* dx, int64_t n);
  void (*scale)(float factor, const T* x, T* y, int64_t n);
  void (*dropout)(const dropout_mask&, const T* x, T* y, int64_t begin, int64_t end);
  void (*layer_norm)(const layer_norm_forward<T>&, int64_t begin, int64_t end);
  void (*layer_norm_grad)(const layer_norm_backward<T>&, int64_t begin, int64_t end, float* dw, float* dbias);
  void (*rms_norm)(const norm_forward<T, T>&, int64_t begin, int64_t end);
  void (*rms_norm_wide)(const norm_forward<T, float>&, int64_t begin, int64_t end);
  void (*rms_norm_grad)(const norm_backward<T, T>&, int64_t begin, int64_t end, float* dw);
  void (*rms_norm_grad_wide)(const norm_backward<T, float>&, int64_t begin, int64_t end, float* dw);
  void (*fold_chunks)(const float* chunks, int64_t count, int64_t stride, const T* acc, T* y, int64_t begin,
                      int64_t end);
  void (*sum_rows)(const row_sums<T, T>&, int64_t begin, int64_t end);
  void (*sum_rows_wide)(const row_sums<T, float>&, int64_t begin, int64_t end);
  void (*rope)(const rope_call<T>&, int64_t begin, int64_t end);
  void (*attend)(const attend_call<T>&);
  void (*gemv)(const gemv_call<T>&, int64_t begin, int64_t end);
  void (*sum_squares)(const T* x, float* out, int64_t begin, int64_t end);
  // Ranges are elements. The bits of the largest finite |x|; y = x times `up`, rounded to the format, times `down`.
  uint32_t (*largest_finite)(const T* x, int64_t begin, int64_t end);
  void (*to_fp8)(const fp8_format&, float up, float down, const T* x, cpu::bf16* y, int64_t begin, int64_t end);
  // Ranges are elements. weight: the new p as T; where T is float there is none.
  void (*adamw)(const adamw_numbers&, const update_memory<float, float>&, T* weight, int64_t begin, int64_t end);
  void (*sgd)(const sgd_numbers&, const update_memory<float, float>&, T* weight, int64_t begin, int64_t end);
};

// Updates of what is kept in bf16, from gradients G. Ranges are elements and begin at multiples of 32.
template <class G>
struct rounded_loops {
  void (*adamw)(const adamw_numbers&, const update_memory<G, bf16>&, int64_t begin, int64_t end);
  void (*sgd)(const sgd_numbers&, const update_memory<G, bf16>&, int64_t begin, int64_t end);
};

struct simd_table {
  typed_loops<float> f32;
  typed_loops<cpu::bf16> bf16;
  typed_loops<cpu::f16> f16;
  rounded_loops<float> rounded_f32;
  rounded_loops<cpu::bf16> rounded_bf16;

  // Inlined always: this header is also read by files for newer instruction sets, whose copies must not be shared.
  template <class T>
  __attribute__((always_inline)) const typed_loops<T>& of() const {
    if constexpr (__is_same(T, float))
      return f32;
    else if constexpr (__is_same(T, cpu::bf16))
      return bf16;
    else
      return f16;
  }
  template <class G>
  __attribute__((always_inline)) const rounded_loops<G>& rounded() const {
    if constexpr (__is_same(G, float))
      return rounded_f32;
    else
      return rounded_bf16;
  }
};

extern const simd_table simd_portable;
extern const simd_table simd_avx2;    // x86-64 only
extern const simd_table simd_avx512;  // x86-64 only

}  // namespace cpu
