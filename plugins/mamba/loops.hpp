// SPDX-License-Identifier: Apache-2.0
// The inner loops of the fast kernels, compiled once per instruction set. A loop computes as many channels side by side
// as a register is wide. A channel's results do not depend on which channels share its register.
//
// T is the type of the activations and their gradients in memory: float, bf16 or f16. Everything else is f32, and so is
// whatever is computed, until it is rounded to T when it is stored.
//
// Shapes in comments: T tokens, E channels, N states of a channel, K taps of the convolution.
#pragma once

#include "../common/simd/names.hpp"

namespace mamba {

constexpr int64_t widest = 16;  // floats of the widest register
constexpr int64_t most_taps = 4;

struct Sizes {
  int64_t tokens, channels, states;
  int64_t stride;  // floats from one row to the next of the matrix of which x, or the gate, takes `channels` columns
  int64_t chunk;   // tokens of a chunk: the states before its first token are kept for the backward
  int64_t taps;    // of the convolution
};

// The inputs of one sequence: u, delta (T, E), a_log (E, N), bc (T, 2N) = [B | C], d, dt_bias (E). The gate is the last
// E columns of a matrix (T, stride). segments (T), or null if the sequence is one document.
template <class T>
struct ScanIn {
  const T *u, *delta, *gate;
  const float *a_log, *bc, *d, *dt_bias;
  const int32_t* segments;
};
template <class T>
struct ScanGradIn {
  ScanIn<T> forward;
  const T* dy;          // (T, E)
  const float* states;  // (chunks, N, E): the states before each chunk
};
template <class T>
struct ScanGradOut {
  T *du, *ddelta, *dgate;         // (T, E), (T, E), the last E columns of (T, stride)
  float* dbc;                     // (T, 2N), summed over the channels of this call only
  float *da_log, *dd, *ddt_bias;  // (N, E), (E), (E), summed over this sequence only
};

// Sizes of the scan of Mamba-2, of the tokens of one document. In comments H heads, P channels of a head, N states.
struct SsdSizes {
  int64_t tokens, heads, width, states, groups;
  int64_t row, dt_row;  // elements from one row to the next of xbc, and of the matrix of which dt is the last H columns
  float low, high;      // limits of the time step
};
constexpr int64_t ssd_chunk = 64;  // tokens that are computed by products

// The inputs of a document, from its first token on: xbc (T, row) = [x | B | C], dt (T, dt_row). a_log, d, dt_bias (H).
template <class T>
struct SsdIn {
  const T *xbc, *dt;
  const float *a_log, *d, *dt_bias;
};
template <class T>
struct SsdGradOut {
  T *dxbc, *ddt;                  // as xbc, of which the columns of x are written, and as dt
  float* dbc;                     // (T, 2N) = [B | C], summed over the heads of this call only
  float *da_log, *dd, *ddt_bias;  // (H), to which the sums over this document are added
};
// Sizes of the gated norm of rows of `columns`.
struct NormSizes {
  int64_t columns, groups;
  float eps;
};

template <class T>
struct TypedLoops {
  void (*widen)(const T* x, float* y, int64_t n);

  // Each of the others computes the channels first .. last - 1 of one sequence; conv and conv_grad, of one document.
  //
  // taps (4, E): the weights of the convolution; if K < 4, zeros come first. before (K - 1, E): the x of the K - 1
  // tokens before the first one, replaced by the last K - 1 x of this call; nullptr: these are zero.
  void (*conv)(const Sizes&, const T* x, const float* taps, const float* bias, T* y, T* before, int64_t first,
               int64_t last);
  // dtaps (4, E) and dbias (E) are sums over this sequence only. `add`: dx holds a gradient already, which is added to.
  // `more`: dtaps and dbias hold the sums over the earlier documents of the sequence, and go on from there.
  void (*conv_grad)(const Sizes&, const T* dy, const T* x, const float* taps, const float* bias, T* dx, bool add,
                    bool more, float* dtaps, float* dbias, int64_t first, int64_t last);
  // running (N, E): the states before the first token, replaced by those after the last one. nullptr: the states start
  // at zero, and the states before each chunk are written to `states`.
  void (*scan)(const Sizes&, const ScanIn<T>&, T* y, float* states, float* running, int64_t first, int64_t last,
               float* scratch);
  void (*scan_grad)(const Sizes&, const ScanGradIn<T>&, const ScanGradOut<T>&, int64_t first, int64_t last,
                    float* scratch);

  // The heads first .. last - 1, all of one group, of one document. running (H, N, P): the states before the first
  // token, replaced by those after the last one; nullptr: the states start at zero.
  void (*ssd)(const SsdSizes&, const SsdIn<T>&, T* y, float* running, int64_t first, int64_t last, float* scratch);
  void (*ssd_grad)(const SsdSizes&, const SsdIn<T>&, const T* dy, const SsdGradOut<T>&, int64_t first, int64_t last,
                   float* scratch);
  // One row. In the gradient, dw (columns) is added to; dx may be dy.
  void (*gated_norm)(const NormSizes&, const T* x, const T* z, const T* w, T* y, float* scratch);
  void (*gated_norm_grad)(const NormSizes&, const T* dy, const T* x, const T* z, const T* w, T* dx, T* dz, float* dw,
                          float* scratch);
  // One row of n columns of a norm whose groups are divided (norm_part.hpp). `factor`: twice the gradient of the sum of
  // squares; dx_acc and dz_acc may be nullptr, or the outputs. The gradient of the norm returns the sum of
  // dy w x silu(z) scale, adds to dw, and dx may be dy.
  float (*gated_squares)(int64_t n, const T* x, const T* z);
  void (*gated_squares_grad)(int64_t n, const T* x, const T* z, float factor, const T* dx_acc, const T* dz_acc, T* dx,
                             T* dz);
  void (*gated_norm_part)(int64_t n, const T* x, const T* z, const T* w, T* y, float scale);
  float (*gated_norm_part_grad)(int64_t n, const T* dy, const T* x, const T* z, const T* w, T* dx, T* dz, float* dw,
                                float scale);
};

struct Loops {
  const char* name;
  TypedLoops<float> f32;
  TypedLoops<cpu::bf16> bf16;
  TypedLoops<cpu::f16> f16;

  // Inlined always: this header is also read by files for newer instruction sets, whose copies must not be shared.
  template <class T>
  __attribute__((always_inline)) const TypedLoops<T>& of() const {
    if constexpr (__is_same(T, float))
      return f32;
    else if constexpr (__is_same(T, cpu::bf16))
      return bf16;
    else
      return f16;
  }
};

// Floats of scratch memory for one thread; loops_scan.hpp lays it out.
inline int64_t scan_scratch(const Sizes& s) {
  return 2 * s.states * widest;
}
inline int64_t scan_grad_scratch(const Sizes& s, int64_t channels) {
  const int64_t vectors = (channels + widest - 1) / widest * widest;
  const int64_t totals = (3 * s.states + 2) * vectors;
  const int64_t of_chunk = (2 * s.chunk + 1) * s.states + 4 * s.chunk + 2 * s.states * s.chunk;
  return totals + widest * of_chunk;
}

// loops_ssd.hpp lays these out. Rows of matrices are whole registers of the widest kind.
__attribute__((always_inline)) inline int64_t whole(int64_t n) {
  return (n + widest - 1) / widest * widest;
}
inline int64_t ssd_scratch(const SsdSizes& s, int64_t heads) {
  const int64_t n = whole(s.states), p = whole(s.width);
  return ssd_chunk * (3 * n + 2 * ssd_chunk + 3 * p + 16) + heads * n * p;
}
inline int64_t ssd_grad_scratch(const SsdSizes& s, int64_t heads) {
  const int64_t n = whole(s.states), p = whole(s.width), chunks = (s.tokens + ssd_chunk - 1) / ssd_chunk;
  return ssd_chunk * (7 * n + 4 * ssd_chunk + 7 * p + 16) + (chunks + 1) * heads * n * p;
}

extern const Loops loops_portable, loops_avx2, loops_avx512;
// The best loops for this processor, or those of that name; nullptr if it cannot run them.
const Loops* best_loops();
const Loops* find_loops(const char* name);

}  // namespace mamba
