// SPDX-License-Identifier: Apache-2.0
// Positions, rope, dropout and init: what one thread does (sequence.cu).
#pragma once

#include "../../common/cuda/random.cuh"
#include "engine/ops.h"

namespace cuda {
namespace sequence {

// W elements at i, a multiple of W. Said in vectors: of store(to + i, x), for several i, nvcc 13.0 makes single stores.
template <int W, Nan nan = Nan::same, class T>
__device__ __forceinline__ void store_at(T* to, int64_t i, const float (&x)[W]) {
  store<W, nan>(reinterpret_cast<T*>(reinterpret_cast<Pack<T, W>*>(to) + static_cast<uint64_t>(i) / W), x);
}

// Rows of x, (B, T): where one stands in its sample or its document.
template <bool packed>
struct Place {
  const int64_t* counters;   // may be null
  const int32_t* positions;  // of each row, of packed samples
  int64_t length;
  __device__ int64_t of(int64_t row) const {
    return (packed ? positions[row] : row % length) + (counters ? counters[ENG_C_POSITION] : 0);
  }
};

template <class T, bool packed>
struct PositionsOf {
  const T *x, *table;
  T* y;
  Place<packed> place;
  int64_t columns, offset;
  static constexpr int width = widest<T>;
  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const int64_t at = row * columns + column;
    float u[W], v[W];
    load(x + at, u), load(table + (place.of(row) + offset) * columns + column, v);
    for (int k = 0; k < W; ++k) u[k] += v[k];
    store(y + at, u);
  }
};
template <class T, class S>
struct PositionsGradOf {  // by rows of the table
  const T* dy;
  const S* acc;
  S* out;
  int64_t batch, length, columns, offset;
  static constexpr int width = widest<T, S>;
  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const int64_t t = row - offset;
    float sum[W] = {};
    if (t >= 0 && t < length)
      for (int64_t b = 0; b < batch; ++b) {
        float u[W];
        load(dy + (b * length + t) * columns + column, u);
        for (int k = 0; k < W; ++k) sum[k] += u[k];
      }
    put_sum(acc, row * columns + column, sum, out);
  }
};

template <class T, bool packed>
struct Rotation {
  const T* x;
  T* y;
  const float* table;
  Place<packed> place;
  uint32_t pairs, half;  // of a row; of a head
  float sign;
};
// A row of x for each x of the grid. A thread turns W pairs of one head.
template <int W, class T, bool packed>
__global__ void rope(Rotation<T, packed> r) {
  const int64_t row = blockIdx.x;
  const uint32_t first = (blockIdx.y * blockDim.x + threadIdx.x) * W;
  if (first >= r.pairs) return;
  const uint32_t j = first % r.half;
  const int64_t at = row * 2 * r.pairs + 2 * static_cast<int64_t>(first) - j;
  const float* const angles = r.table + r.place.of(row) * 2 * r.half + j;
  float x1[W], x2[W], cosine[W], sine[W];
  load<W, Nan::any>(r.x + at, x1), load<W, Nan::any>(r.x + at + r.half, x2), load(angles, cosine),
      load(angles + r.half, sine);
  for (int k = 0; k < W; ++k) {
    const float s = r.sign * sine[k], turned = x1[k] * cosine[k] - x2[k] * s;
    x2[k] = x2[k] * cosine[k] + x1[k] * s, x1[k] = turned;
  }
  store_at<W, Nan::any>(r.y, at, x1), store_at<W, Nan::any>(r.y, at + r.half, x2);
}

struct Drops {
  const int64_t* counters;
  int64_t batch, each, threads;  // sequences; elements of one; threads for one
  uint64_t seed;
  uint32_t stream, threshold;
  float factor;
};
// A thread takes W blocks of Philox: block c of a sequence is for the elements c / 16 * 64 + c % 16 + 0, 16, 32 and 48.
// W is 1 where a sequence is no multiple of 64.
template <int W, class T>
__global__ void dropout(const T* x, T* y, Drops d) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, b = i / d.threads;
  if (b >= d.batch) return;
  const int64_t world = d.counters[ENG_C_WORLD] < 1 ? 1 : d.counters[ENG_C_WORLD],
                first = d.batch * (d.counters[ENG_C_MICRO] * world + d.counters[ENG_C_RANK]);
  const int64_t c = (i - b * d.threads) * W, j = c / 16 * 64 + c % 16, at = b * d.each + j;
  const uint64_t low = static_cast<uint64_t>(first + b) << 32,
                 high = (static_cast<uint64_t>(d.counters[ENG_C_STEP]) & 0xffffffff) | uint64_t{d.stream} << 32;
  float u[4][W] = {};
  ENG_UNROLL
  for (int s = 0; s < 4; ++s)
    if (W > 1 || j + s * 16 < d.each) load(x + at + s * 16, u[s]);
  ENG_UNROLL
  for (int k = 0; k < W; ++k) {
    const Words words = philox(static_cast<uint32_t>(c + k) | low, high, d.seed);
    ENG_UNROLL
    for (int s = 0; s < 4; ++s) u[s][k] = words.at[s] < d.threshold ? 0.0f : u[s][k] * d.factor;
  }
  ENG_UNROLL
  for (int s = 0; s < 4; ++s)
    if (W > 1 || j + s * 16 < d.each) store_at(y, at + s * 16, u[s]);
}

enum class Fill { constant, normal, uniform };

__device__ __forceinline__ double unit(uint32_t word) {
  return (static_cast<double>(word) + 0.5) * 0x1p-32;
}
// To a neighbour with an odd last bit, if f32 does not have the value: rounding that to 16 bits is rounding once.
__device__ __forceinline__ float to_odd(double x) {
  const auto f = static_cast<float>(x);
  const double back = f;
  if (back == x || x != x) return f;
  uint32_t bits = bits_of<uint32_t>(f);
  if (fabs(back) > fabs(x)) --bits;
  return bits_of<float>(bits | 1);
}
__device__ __forceinline__ void put(double x, float& out) {
  out = static_cast<float>(x);
}
template <class T>
__device__ __forceinline__ void put(double x, T& out) {
  from_f32(to_odd(x), out);
}
struct Filling {
  Fill kind;
  double a = 0, b = 0;  // value; mean and std; low and high
  uint64_t seed = 0, stream = 0, first = 0;
  __device__ double value(uint64_t e) const {
    if (kind == Fill::constant) return a;
    if (kind == Fill::uniform) return a + (b - a) * unit(philox(e / 4, stream, seed).at[e % 4]);
    const Words w = philox(e / 2, stream, seed);
    const double radius = sqrt(-2.0 * log(unit(w.at[0]))), angle = 2.0 * 3.14159265358979323846 * unit(w.at[1]);
    return a + b * (radius * (e % 2 ? sin(angle) : cos(angle)));
  }
};
template <class T>
struct FillOf {
  T* out;
  Filling by;
  template <int W>
  __device__ void at(int64_t i) const {
    for (int k = 0; k < W; ++k) put(by.value(by.first + static_cast<uint64_t>(i + k)), out[i + k]);
  }
};

}  // namespace sequence
}  // namespace cuda
