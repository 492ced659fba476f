// SPDX-License-Identifier: Apache-2.0
// The inner loops of the memory-bound kernels, once per instruction set. The code around them (checks,
// threads, addresses) is compiled once, for the plainest processor, and reaches them through this table.
#pragma once

#include <stdint.h>

namespace cpu {

struct norm_forward {
  const float *x, *w, *residual;  // residual and s: both or none
  float *y, *rstd, *s;
  int64_t h;
  float eps;
};

struct norm_backward {
  const float *dy, *s, *w, *rstd, *ds;
  float* dx;
  int64_t h;
};

struct layer_norm_forward {
  const float *x, *w, *bias, *residual;  // w and bias may be null; residual and s: both or none
  float *y, *stats, *s;                  // stats: mean and rstd of each row
  int64_t h;
  float eps;
};

struct layer_norm_backward {
  const float *dy, *s, *w, *stats, *ds;
  float* dx;
  int64_t h;
};

struct dropout_call {
  const float* x;
  float* y;
  int64_t n;          // elements of a sequence
  uint32_t sequence;  // number of the first one in the batch
  uint32_t step, stream, threshold;
  uint64_t seed;
  float scale;
};

struct rope_call {
  const float *x, *table;
  float* y;
  int64_t heads, d, t;  // d: half a head
  bool inverse;
};

// The `heads` query heads that share one key head, d wide, over `keys` rows of the caches.
struct attend_call {
  const float *q, *k, *v;
  float *o, *scores;               // scores (heads, keys)
  int64_t heads, d, keys, stride;  // stride: from one row of a cache to the next
  float scale;
};

// y (m, n) = x (m, k) w (n, k)^T + bias, for few rows m
struct gemv_call {
  const float *x, *w, *bias;
  float* y;
  int64_t m, n, k;
};

struct adamw_call {
  const float *grad, *p_in, *m_in, *v_in;
  float *p, *m, *v;
  float clip, lr, c1, c2, rest1, beta2, rest2, eps, wd;  // rest: 1 - beta
};

struct sgd_call {
  const float *grad, *p_in, *b_in;
  float *p, *b;  // b null: plain steps without a buffer
  float clip, lr, momentum, wd;
  bool first, nesterov;
};

using gated_loop = void (*)(const float* gate, const float* up, float* y, int64_t n);
using gated_grad_loop = void (*)(const float* dy, const float* gate, const float* up, float* dgate, float* dup,
                                 int64_t n);
using activation_loop = void (*)(const float* x, float* y, int64_t n);
using activation_grad_loop = void (*)(const float* dy, const float* x, float* dx, int64_t n);

// Ranges begin .. end are rows for norms and rope, columns of y for gemv, chunks for sum_squares, groups of 64
// elements for dropout, elements otherwise.
struct simd_table {
  void (*add)(const float* a, const float* b, float* y, int64_t n);
  gated_loop gated[4];  // by ENG_ACT_* - 1
  gated_grad_loop gated_grad[4];
  activation_loop activation[4];
  activation_grad_loop activation_grad[4];
  void (*scale)(float factor, const float* x, float* y, int64_t n);
  void (*dropout)(const dropout_call&, int64_t begin, int64_t end);
  void (*layer_norm)(const layer_norm_forward&, int64_t begin, int64_t end);
  void (*layer_norm_grad)(const layer_norm_backward&, int64_t begin, int64_t end, float* dw, float* dbias);
  void (*rms_norm)(const norm_forward&, int64_t begin, int64_t end);
  void (*rms_norm_grad)(const norm_backward&, int64_t begin, int64_t end, float* dw);
  void (*fold_chunks)(const float* chunks, int64_t count, int64_t stride, const float* acc, float* y, int64_t begin,
                      int64_t end);
  void (*rope)(const rope_call&, int64_t begin, int64_t end);
  void (*attend)(const attend_call&);
  void (*gemv)(const gemv_call&, int64_t begin, int64_t end);
  void (*sum_squares)(const float* x, float* out, int64_t begin, int64_t end);
  void (*adamw)(const adamw_call&, int64_t begin, int64_t end);
  void (*sgd)(const sgd_call&, int64_t begin, int64_t end);
};

extern const simd_table simd_portable;
extern const simd_table simd_avx2;    // x86-64 only
extern const simd_table simd_avx512;  // x86-64 only

}  // namespace cpu
