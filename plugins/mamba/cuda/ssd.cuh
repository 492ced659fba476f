// SPDX-License-Identifier: Apache-2.0
// Common parts of the scan of Mamba-2, its gradient and its step: by chunks of 64 tokens, as ../loops_ssd.hpp
// describes. Within a chunk each document is a piece of its own, so nothing of one is ever multiplied with anything of
// another. First the states before each chunk, by a block that goes from chunk to chunk with a tile of them in its
// registers; then all chunks side by side. Products are those of tiles.hpp: in 16 bits their factors are rounded to the
// type of the activations, sums are f32.
#pragma once

#include <algorithm>

#include "../../common/cuda/tiles.hpp"
#include "../ssd.hpp"
#include "shared.cuh"

namespace mamba {
namespace on_cuda {

static_assert(chunk == tile);

// stride: elements of a token of xbc; channels: H P.
struct SsdSizes : Sequences {
  int64_t heads, width, states, groups, chunks, dt_stride;
  float low, high;
  int64_t slice;  // sequences whose states are in memory at once
  __host__ __device__ int64_t state() const { return states * width; }
  __host__ __device__ int64_t tiles(int64_t n) const { return (n + tile - 1) / tile; }
  // Floats of the states of all chunks of a slice.
  int64_t kept() const { return slice * chunks * heads * state(); }
  __device__ int64_t kept_at(int64_t b, int64_t c, int64_t head) const {
    return ((b * chunks + c) * heads + head) * state();
  }
};

// A run of tokens of one document within a chunk.
struct Piece {
  int64_t at;        // index of its first token among those of all sequences
  int begin, end;    // its tokens, of the chunk
  bool first, last;  // nothing of this chunk stands before or behind it
  __device__ int count() const { return end - begin; }
};
// Documents of a chunk. By all lanes of a warp.
struct Pieces {
  int64_t at;
  int count;
  uint64_t begins;  // bit k: a document begins at token k
  __device__ __forceinline__ Pieces(const SsdSizes& s, int64_t b, int64_t c) {
    const int64_t first = c * chunk, end = first + chunk < s.tokens ? first + chunk : s.tokens;
    at = b * s.tokens + first, count = static_cast<int>(end - first);
    begins = s.begun(b, first, end < first + 32 ? end : first + 32);
    if (count > 32) begins |= static_cast<uint64_t>(s.begun(b, first + 32, end)) << 32;
  }
  // The piece that begins at token `begin`.
  __device__ __forceinline__ Piece piece(int begin) const {
    int end = begin + 1;
    while (end < count && !(begins >> end & 1)) ++end;
    return {at + begin, begin, end, begin == 0 && !(begins & 1), end == count};
  }
  __device__ __forceinline__ Piece last_piece() const {
    int begin = count - 1;
    while (begin > 0 && !(begins >> begin & 1)) --begin;
    return piece(begin);
  }
};

template <class T>
struct SsdOf {
  const T *xbc, *dt;
  const float *a_log, *d, *dt_bias;
  float* kept;  // (B, chunks, H, N, P): the states before each chunk
  bool begun;   // the first chunk has states before it
  SsdSizes s;
  // x of a head from channel `from` on; B or C (`of_c`) of a group, from state `from` on.
  __device__ __forceinline__ Part<T> x(const Piece& piece, int64_t head, int64_t from) const {
    return {xbc + piece.at * s.stride + head * s.width + from, s.stride, piece.count(), s.width - from};
  }
  __device__ __forceinline__ Part<T> bc(const Piece& piece, int64_t group, int of_c, int64_t from) const {
    return {xbc + piece.at * s.stride + s.channels + (of_c * s.groups + group) * s.states + from, s.stride,
            piece.count(), s.states - from};
  }
  // y or dy likewise, and states from n and p on.
  __device__ __forceinline__ Part<T> y(const T* all, const Piece& piece, int64_t head, int64_t from) const {
    return {all + piece.at * s.channels + head * s.width + from, s.channels, piece.count(), s.width - from};
  }
  __device__ __forceinline__ Part<float> states(const float* at, int64_t n, int64_t p) const {
    return {at + n * s.width + p, s.width, s.states - n, s.width - p};
  }
};

// Numbers that follow from the time steps of a piece, for each of its tokens; behind them the step is 0. high + low:
// the sum of s A up to the token, by log2 e; from_start: its power of two.
struct Steps {
  float step[tile], slope[tile], high[tile], low[tile], from_start[tile], to_end[tile];
  __device__ __forceinline__ float decay(int t, int r) const {
    return r <= t ? exp2_approx((high[t] - high[r]) + (low[t] - low[r])) : 0.0f;
  }
};

// By the first warp, two tokens for a lane; then all threads have them.
template <class T>
__device__ __forceinline__ void find_steps(const SsdOf<T>& p, const Piece& piece, int64_t head, Steps& out) {
  if (threadIdx.x < warp) {
    const int t = static_cast<int>(threadIdx.x) * 2;
    const double rate = -1.4426950408889634 * static_cast<double>(expf(p.a_log[head]));
    double sums[2], sum = 0;
    for (int k = 0; k < 2; ++k) {
      float step = 0, slope = 0;
      if (t + k < piece.count()) {
        const int64_t at = (piece.at + t + k) * p.s.dt_stride + p.s.dt_stride - p.s.heads + head;
        const float raw = value(p.dt[at]) + p.dt_bias[head], plain = softplus(raw);
        step = plain < p.s.low ? p.s.low : plain > p.s.high ? p.s.high : plain;  // NaN stays
        slope = plain < p.s.low || plain > p.s.high ? 0.0f : sigmoid(raw);
      }
      out.step[t + k] = step, out.slope[t + k] = slope;
      sum += static_cast<double>(step) * rate, sums[k] = sum;
    }
    const double all = sum_up_to(sum), end = __shfl_sync(0xffffffffu, all, 31), before = all - sum;
    for (int k = 0; k < 2; ++k) {
      const double c = before + sums[k];
      const auto high = static_cast<float>(c);
      out.high[t + k] = high, out.low[t + k] = static_cast<float>(c - static_cast<double>(high));
      out.from_start[t + k] = exp2_approx(high), out.to_end[t + k] = exp2_approx(static_cast<float>(end - c));
    }
  }
  __syncthreads();
}

template <class T>
struct Room : Factors<T> {
  Steps steps;
};

// sums += a b, once the block is done with the factors before; a and b: as Factors::fill.
template <bool a_by_terms, bool b_by_terms, class T, class A, class B>
__device__ __forceinline__ void product(Factors<T>& room, Sums<T>& sums, const A& a, const B& b) {
  __syncthreads();
  room.fill(a, b);
  __syncthreads();
  room.template add_to<a_by_terms, b_by_terms>(sums, a);
}

// Forwards: the states before each chunk; `running` (B, H, N, P), which may be null, has those before the first one,
// and then those behind the last one. Back: the gradient of the states behind each chunk, in their place. A block for a
// tile of the states of a head; blockIdx.y: sequences.
template <class T, bool back>
__global__ void __launch_bounds__(tile_block, 2) ssd_walk(SsdOf<T> p, const T* dy, float* running) {
  Room<T>& room = shared<Room<T>>();
  const SsdSizes& s = p.s;
  const int64_t of_head = s.tiles(s.states) * s.tiles(s.width), head = blockIdx.x / of_head,
                n0 = blockIdx.x % of_head / s.tiles(s.width) * tile, p0 = blockIdx.x % s.tiles(s.width) * tile,
                group = head / (s.heads / s.groups);
  for (int64_t b = blockIdx.y; b < s.batch; b += gridDim.y) {
    Sums<T> h;
    const auto each_state = [&](float* states, auto&& f) {
      const Part<float> part = p.states(states, n0, p0);
      states += n0 * s.width + p0;
      h.each([&](int i, int j, float& sum) {
        if (part.has(i, j)) f(states[part.index(i, j)], sum);
      });
    };
    const auto write = [](float& to, float sum) { to = sum; };
    float* const own = running ? running + (b * s.heads + head) * s.state() : nullptr;
    if (own) each_state(own, [](float& from, float& sum) { sum = from; });
    for (int64_t k = 0; k < s.chunks; ++k) {
      const int64_t c = back ? s.chunks - 1 - k : k;
      each_state(p.kept + s.kept_at(b, c, head), write);
      if (k + 1 == s.chunks && !own) break;
      const Pieces pieces(s, b, c);
      const Piece piece = back ? pieces.piece(0) : pieces.last_piece();
      if (!(piece.first && piece.last)) h = {};
      if (back && !piece.first) continue;
      find_steps(p, piece, head, room.steps);
      const Steps& steps = room.steps;
      h.each([&](int, int, float& sum) { sum *= steps.from_start[tile - 1]; });
      const Part<T> values = back ? p.y(dy, piece, head, p0) : p.x(piece, head, p0);
      product<false, false>(room, h, p.bc(piece, group, back, n0), [&](int t, int j) {
        return values(t, j) * (back ? steps.from_start[t] : steps.step[t] * steps.to_end[t]);
      });
    }
    if (own) each_state(own, write);
  }
}
template <bool back, class T>
void launch_walk(const SsdOf<T>& p, const T* dy, float* running, cudaStream_t stream) {
  launch<ssd_walk<T, back>>(grid_of(p.s.heads * p.s.tiles(p.s.states) * p.s.tiles(p.s.width), 1, p.s.batch), tile_block,
                            sizeof(Room<T>), stream, p, dy, running);
}

// ---- the host --------------------------------------------------------------------------------------------------

inline SsdSizes ssd_sizes(const Call& c, size_t first) {
  const eng_desc &xbc = c.in[first], &dt = c.in[first + 1];
  SsdSizes s{};
  s.batch = xbc.dims[0], s.tokens = xbc.dims[1], s.stride = xbc.dims[2], s.dt_stride = dt.dims[2];
  s.heads = elements(c.in[first + 2]), s.groups = c.integer("groups"), s.states = c.integer("states");
  s.channels = s.stride - 2 * s.groups * s.states;
  need(s.stride < int64_t{1} << 25, "xbc has too many columns");  // a tile of its rows has less than 2^31 elements
  s.width = s.channels / s.heads, s.chunks = chunks(s.tokens);
  s.low = static_cast<float>(c.real("low")), s.high = static_cast<float>(c.real("high"));
  // The memory is that of 8192 tokens, or of one sequence.
  s.slice = std::max<int64_t>(1, std::min(s.batch, 8192 / std::max<int64_t>(1, s.tokens)));
  return s;
}
inline void need_ssd(const Call& c, size_t first, size_t segments) {
  const SsdSizes s = ssd_sizes(c, first);
  need_float(c.in[first], "xbc"), need_types(c, c.in[first].dtype, {first + 1}, {}, "dt");
  need_types(c, ENG_F32, {first + 2, first + 3, first + 4}, {}, "a_log, d or dt_bias");
  need_types(c, c.in[first].dtype, {}, {0}, "y or dxbc"), need_segments(c, segments, s.batch * s.tokens);
}
// Calls f(first sequence, arguments of a slice) for the slices of sequences.
template <class T, class F>
void each_slice(const Args& a, size_t first, const SsdSizes& s, const int32_t* segments, F&& f) {
  for (int64_t b = 0; b < s.batch; b += s.slice) {
    SsdOf<T> p{};
    p.xbc = a.in<T>(first) + b * s.tokens * s.stride, p.dt = a.in<T>(first + 1) + b * s.tokens * s.dt_stride;
    p.a_log = a.in<float>(first + 2), p.d = a.in<float>(first + 3), p.dt_bias = a.in<float>(first + 4);
    p.kept = a.scratch<float>(), p.s = s;
    p.s.batch = b + s.slice < s.batch ? s.slice : s.batch - b;
    p.s.segments = segments ? segments + b * s.tokens : nullptr;
    f(b, p);
  }
}

}  // namespace on_cuda
}  // namespace mamba
