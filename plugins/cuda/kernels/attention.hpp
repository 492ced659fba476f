// SPDX-License-Identifier: Apache-2.0
// Causal attention, also within a window and with capped scores: the sizes of a call, and which kernel serves it.
#pragma once

#include "../../common/cuda/glue.hpp"
#include "engine/ops_attention.h"

namespace cuda {
namespace attention {

struct Heads {
  int64_t batch, length, heads, kv_heads, size, keys;  // keys: rows of k and v for each sequence
  float scale;
  int64_t window;     // keys that a query sees at most; 0: all before it
  float cap, within;  // scores are cap * tanh(within * q k^T), within = scale / cap; cap 0: scale * q k^T
  bool bounded() const { return window != 0 || cap != 0; }
  // Scores of a row that plain threads keep at a time.
  __host__ __device__ int64_t seen() const { return window ? window : keys; }
  __device__ float score(float product) const { return cap != 0 ? cap * tanhf(within * product) : scale * product; }
  // The derivative of a score by the product.
  __device__ float slope(float score) const { return cap != 0 ? scale * (1.0f - score / cap * (score / cap)) : scale; }
  __device__ int64_t query(int64_t b, int64_t t, int64_t h) const { return ((b * length + t) * heads + h) * size; }
  __device__ int64_t key(int64_t b, int64_t t, int64_t h) const { return ((b * keys + t) * kv_heads + h) * size; }
  __device__ int64_t row(int64_t b, int64_t t, int64_t h) const { return (b * heads + h) * length + t; }
};

// ---- in tiles --------------------------------------------------------------------------------------------------

// Tiles for heads of at most `width` elements of `bytes`: a block of 4 warps, each with so many times 16 rows of its
// own, passes over tiles of the other side. Chosen for the registers of a thread (at most 255, nothing spilled) and 99
// KiB of shared memory, which every GPU from sm_80 on has; a warp with 32 rows reads shared memory half as often. 16
// bits are multiplied on tensor cores, f32 by plain multiply-adds.
struct Tiling {
  int bytes, width;
  int forward, keys_forward;  // rows of queries, in units of 16; keys in a tile
  int query, keys_query;      // the same, for dq
  int key, queries_key;       // rows of keys, in units of 16; queries in a tile: for dk and dv
  int parts;                  // blocks that share the columns of one tile of dk and dv
};
inline constexpr Tiling tilings[] = {
    {2, 32, 2, 64, 2, 64, 2, 32, 1},   //
    {2, 64, 2, 64, 2, 32, 2, 32, 1},   //
    {2, 96, 2, 64, 2, 32, 1, 64, 1},   //
    {2, 128, 2, 32, 2, 32, 1, 32, 1},  //
    {2, 256, 1, 32, 1, 16, 1, 16, 2},  //
    {4, 64, 2, 32, 2, 32, 2, 24, 1},   //
    {4, 128, 2, 16, 1, 16, 1, 16, 1},
};
// The gradient of capped scores keeps their slopes, too, and has registers for fewer rows of the other side.
constexpr Tiling with_slopes(Tiling t) {
  t.keys_query = t.queries_key = 16;
  return t;
}
template <int units>
inline constexpr int tile_rows = 4 * 16 * units;

// The tiling of a call, or null: other sizes and scales go to plain threads, and so do capped scores of f32.
inline const Tiling* tiling_of(const Heads& s, int32_t dtype) {
  const int bytes = dtype == ENG_F32 ? 4 : 2;
  if (s.size * bytes % 16 != 0) return nullptr;  // rows are copied 16 bytes at a time
  if (!(s.scale > 0)) return nullptr;            // the largest score is found before it is scaled
  if (bytes == 4 && s.cap != 0) return nullptr;
  if (s.length > 1 << 30 || s.heads * s.size > 1 << 30) return nullptr;  // they are 32-bit numbers
  for (const Tiling& t : tilings)
    if (t.bytes == bytes && s.size <= t.width)
      return (s.length / 64 + 1) * s.heads * s.batch * t.parts < 0x7fffffff ? &t : nullptr;
  return nullptr;
}

// The bounds of what each row sees: starts (B, T), the first key of a query, and ends (B, T), the row behind the last
// query of a key. Documents of packed samples, whose segments (B, T) may be null, attend to themselves alone; a window
// bounds them, too. `ends` may be null.
void find_bounds_of(const Heads& s, const int32_t* segments, int32_t* starts, int32_t* ends, cudaStream_t stream);

// The addresses of a call. Starts and ends are null if nothing but the diagonal bounds what a row sees.
template <class T>
struct Forward {
  const T *q, *k, *v;
  T* o;
  float* lse;
  const int32_t* starts;
};
template <class T>
struct Grad {
  const T *dout, *q, *k, *v, *o;
  const float* lse;
  float* deltas;  // of (B, heads, T), scratch
  T *dq, *dk, *dv;
  const int32_t *starts, *ends;
};
// For T = bf16, f16 and float. grad_query_tiled writes deltas and dq, or the deltas alone; the others read the deltas.
template <class T>
void forward_tiled(const Heads& s, const Tiling& t, const Forward<T>& p, cudaStream_t stream);
template <class T>
void grad_query_tiled(const Heads& s, const Tiling& t, const Grad<T>& p, bool deltas_alone, cudaStream_t stream);
template <class T>
void grad_key_tiled(const Heads& s, const Tiling& t, const Grad<T>& p, cudaStream_t stream);

// The whole gradient but the deltas, for bf16 and f16, where has_wgmma (list.hpp) says so.
template <class T>
void grad_wgmma(const Heads& s, const Grad<T>& p, cudaStream_t stream);

// f.template operator()<t, bounded, capped>() with the tiling, which is one for elements of T, as a constant. Capped
// scores have bounds, and 16 bits.
template <class T, int I = 0, class F>
void by_tiling(const Tiling& t, bool bounded, bool capped, const F& f) {
  if constexpr (I < static_cast<int>(sizeof tilings / sizeof *tilings)) {
    if (&t != &tilings[I]) return by_tiling<T, I + 1>(t, bounded, capped, f);
    if constexpr (tilings[I].bytes == sizeof(T)) {
      if constexpr (sizeof(T) == 2)
        if (capped) return f.template operator()<with_slopes(tilings[I]), true, true>();
      bounded ? f.template operator()<tilings[I], true, false>() : f.template operator()<tilings[I], false, false>();
    }
  }
}

}  // namespace attention
}  // namespace cuda
