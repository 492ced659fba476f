// SPDX-License-Identifier: Apache-2.0
// Causal attention: the sizes of a call, and which kernel serves it.
#pragma once

#include "../../common/cuda/glue.hpp"

namespace cuda {
namespace attention {

struct Heads {
  int64_t batch, length, heads, kv_heads, size, keys;  // keys: rows of k and v for each sequence
  float scale;
  __device__ int64_t query(int64_t b, int64_t t, int64_t h) const { return ((b * length + t) * heads + h) * size; }
  __device__ int64_t key(int64_t b, int64_t t, int64_t h) const { return ((b * keys + t) * kv_heads + h) * size; }
  __device__ int64_t row(int64_t b, int64_t t, int64_t h) const { return (b * heads + h) * length + t; }
};

// ---- on tensor cores -------------------------------------------------------------------------------------------

// Tiles for heads of at most `width` elements: a block of 4 warps, each with so many times 16 rows of its own, passes
// over tiles of the other side. Chosen for the registers of a thread (at most 255, nothing spilled) and 99 KiB of
// shared memory, which every GPU from sm_80 on has; a warp with 32 rows reads shared memory half as often.
struct Tiling {
  int width;
  int forward, keys_forward;  // rows of queries, in units of 16; keys in a tile
  int query, keys_query;      // the same, for dq
  int key, queries_key;       // rows of keys, in units of 16; queries in a tile: for dk and dv
  int parts;                  // blocks that share the columns of one tile of dk and dv
};
inline constexpr Tiling tilings[] = {
    {32, 2, 64, 2, 64, 2, 32, 1},   //
    {64, 2, 64, 2, 32, 2, 32, 1},   //
    {96, 2, 64, 2, 32, 1, 64, 1},   //
    {128, 2, 32, 2, 32, 1, 32, 1},  //
    {256, 1, 32, 1, 16, 1, 16, 2},
};
template <int units>
inline constexpr int tile_rows = 4 * 16 * units;

// The tiling of a call, or null: other types, sizes and scales go to plain threads.
inline const Tiling* tiling_of(const Heads& s, int32_t dtype) {
  if (dtype != ENG_BF16 && dtype != ENG_F16) return nullptr;
  if (s.size % 8 != 0) return nullptr;  // rows are copied 16 bytes at a time
  if (!(s.scale > 0)) return nullptr;   // the largest score is found before it is scaled
  if (s.length > 1 << 30 || s.heads * s.size > 1 << 30) return nullptr;  // they are 32-bit numbers
  for (const Tiling& t : tilings)
    if (s.size <= t.width) return (s.length / 64 + 1) * s.heads * s.batch * t.parts < 0x7fffffff ? &t : nullptr;
  return nullptr;
}

// From the segments (B, T) of packed samples, whose documents attend to themselves alone: starts (B, T), the first row
// of each row's document, and ends (B, T), the row behind its last one. `ends` may be null.
void find_documents_of(const Heads& s, const int32_t* segments, int32_t* starts, int32_t* ends, cudaStream_t stream);

// The addresses of a call. Starts and ends of documents are null if samples are not packed.
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
// For T = bf16 and f16. grad_query_tiled writes deltas and dq; grad_key_tiled reads the deltas.
template <class T>
void forward_tiled(const Heads& s, const Tiling& t, const Forward<T>& p, cudaStream_t stream);
template <class T>
void grad_query_tiled(const Heads& s, const Tiling& t, const Grad<T>& p, cudaStream_t stream);
template <class T>
void grad_key_tiled(const Heads& s, const Tiling& t, const Grad<T>& p, cudaStream_t stream);

// f.template operator()<t, packed>() with the tiling as a constant.
template <int I = 0, class F>
void by_tiling(const Tiling& t, bool packed, const F& f) {
  if constexpr (I < static_cast<int>(sizeof tilings / sizeof *tilings)) {
    if (&t != &tilings[I]) return by_tiling<I + 1>(t, packed, f);
    packed ? f.template operator()<tilings[I], true>() : f.template operator()<tilings[I], false>();
  }
}

}  // namespace attention
}  // namespace cuda
