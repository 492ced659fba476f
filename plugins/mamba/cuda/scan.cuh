// SPDX-License-Identifier: Apache-2.0
// What selective_scan, its gradient and its step share. Tokens follow one another in a thread, whose registers hold the
// states of its channel; if they are many, a power of two of neighbouring lanes shares them.
//
// Where that gives too few blocks to fill the GPU, sequences are cut into spans of whole chunks, which go side by side:
// first each span alone, for what it adds to the states after it; then what the spans hand on, one after another; then
// each span again, from the right states. `spans` is 1 where sequences are not cut.
#pragma once

#include "shared.cuh"

namespace mamba {
namespace on_cuda {

constexpr int scan_block = 128, scan_tile = 16;  // threads; tokens whose B and C are in shared memory at once
constexpr int most_states = 64;
constexpr int64_t enough_blocks = 2,
                  filling_blocks = 4;  // for each processor: sequences are not cut; what cutting aims at

struct ScanSizes {
  int64_t batch, tokens, channels, stride, chunks, span, spans;  // span: chunks of one
  int states, lanes;                                             // lanes that share a channel
  __host__ __device__ int64_t groups() const { return (channels * lanes + scan_block - 1) / scan_block; }
  __host__ __device__ int64_t first(int64_t q) const { return q * span * chunk; }  // token of span q
  __host__ __device__ int64_t end(int64_t q) const { return q + 1 < spans ? first(q + 1) : tokens; }
};

template <class T>
struct ScanOf {
  const T *u, *delta, *bc, *gate;
  const float *a_log, *d, *dt_bias;
  ScanSizes s;
  const int32_t* segments;  // (B, T), of packed samples
  __device__ int64_t at(int64_t b, int64_t t, int64_t e) const { return (b * s.tokens + t) * s.channels + e; }
  __device__ int64_t gate_at(int64_t b, int64_t t, int64_t e) const {
    return (b * s.tokens + t) * s.stride + (s.stride - s.channels) + e;
  }
  // Whether a document of a packed sample begins at token t, and not at token 0: states begin anew.
  __device__ bool begins(int64_t b, int64_t t) const {
    return t > 0 && t < s.tokens && segments[b * s.tokens + t] != segments[b * s.tokens + t - 1];
  }
  __device__ float step_of(int64_t b, int64_t t, int64_t e, float bias) const {
    return softplus(value(delta[at(b, t, e)]) + bias);
  }
};

// B and C of `count` tokens from `first` on, by all threads of the block. `width`: that of a row of `tile`, which holds
// B in its first half and C in the second; it divides scan_block. Tokens from `end` on, and states that a channel does
// not have, are 0.
template <class T>
__device__ __forceinline__ void load_bc(const ScanOf<T>& p, int64_t b, int64_t first, int64_t end, int count, int width,
                                        float* tile) {
  const int thread = static_cast<int>(threadIdx.x), column = thread % width, n = column % (width / 2);
  const int64_t row = 2 * p.s.states, left = n < p.s.states ? end - first : 0;
  const T* from = p.bc + (b * p.s.tokens + first + thread / width) * row + (column < width / 2 ? n : p.s.states + n);
  for (int k = thread / width; k < count; k += scan_block / width, from += scan_block / width * row)
    tile[k * width + column] = k < left ? value(*from) : 0.0f;
}

// Bit k: a document begins at token first + k, below `end`. The same to all threads of the block. At most 32 tokens.
template <class T>
__device__ __forceinline__ unsigned documents_from(const ScanOf<T>& p, int64_t b, int64_t first, int64_t end,
                                                   int count) {
  const int k = static_cast<int>(threadIdx.x) % 32;
  return __ballot_sync(0xffffffffu, k < count && first + k < end && p.begins(b, first + k));
}

// The sum over the lanes of a channel, to all of them.
__device__ __forceinline__ float sum_of_lanes(float x, int lanes) {
  for (int by = lanes / 2; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
  return x;
}

// What a thread is: a lane of a channel, with states first .. first + S - 1. `many`: a channel may have several lanes.
template <int S, bool many>
struct Place {
  int64_t e;
  int lane, first;
  bool there;
  __device__ explicit Place(const ScanSizes& s, int64_t group) {
    const int64_t at = group * scan_block + threadIdx.x;
    e = many ? at / s.lanes : at, lane = many ? static_cast<int>(at % s.lanes) : 0, first = lane * S;
    there = e < s.channels;
    if (!there) e = s.channels - 1;  // it may read that one's tokens
  }
  // Whether state n is one of the channel; where it lies in (..., N, E).
  __device__ bool has(const ScanSizes& s, int n) const { return first + n < s.states; }
  __device__ int64_t state(const ScanSizes& s, int n) const { return (first + n) * s.channels + e; }
};
// -exp(a_log) / ln 2: exp(s A) = exp2(s rate).
__device__ __forceinline__ float rate_of(float a_log) {
  return -1.44269504f * expf(a_log);
}
template <int S, bool many>
__device__ __forceinline__ void load_rates(const float* a_log, const ScanSizes& s, const Place<S, many>& me,
                                           float (&rate)[S]) {
  ENG_UNROLL
  for (int n = 0; n < S; ++n) rate[n] = me.has(s, n) ? rate_of(a_log[me.e * s.states + me.first + n]) : 0.0f;
}

// The inputs of a scan begin with u, delta, a_log, bc, d, dt_bias, gate; `u` is the index of the first. S: the most
// states of a lane.
inline ScanSizes scan_sizes(const Call& c, size_t u, int most, bool cut) {
  need(c.in[u].ndim == 3, "u must be (B, T, E)");
  ScanSizes s{};
  s.batch = c.in[u].dims[0], s.tokens = c.in[u].dims[1], s.channels = c.in[u].dims[2];
  s.stride = columns(c.in[u + 6]), s.chunks = chunks(s.tokens);
  const int64_t states = columns(c.in[u + 2]);
  if (states < 1 || states > most_states) throw cuda::Error{ENG_UNSUPPORTED, "computes 1 to 64 states of a channel"};
  s.states = static_cast<int>(states), s.lanes = 1;
  while (s.lanes * most < states) s.lanes *= 2;
  const int64_t blocks = s.batch * s.groups(), processors = c.parallel;
  s.span = s.chunks;
  if (cut && blocks > 0 && blocks < enough_blocks * processors) {
    const int64_t wanted = (filling_blocks * processors + blocks - 1) / blocks;
    s.span = (s.chunks + wanted - 1) / wanted;
  }
  if (s.span < 1) s.span = 1;
  s.spans = (s.chunks + s.span - 1) / s.span;
  return s;
}
inline void need_scan(const Call& c, size_t u, const ScanSizes& s) {
  const int64_t n = s.batch * s.tokens;
  need_size(c.in[u + 1], n * s.channels, "delta"), need_size(c.in[u + 2], s.channels * s.states, "a_log");
  need_size(c.in[u + 3], n * 2 * s.states, "bc"), need_size(c.in[u + 4], s.channels, "d");
  need_size(c.in[u + 5], s.channels, "dt_bias");
  need(rows(c.in[u + 6]) == n && s.stride >= s.channels, "gate must be (B, T, E or more)");
}
template <class T>
ScanOf<T> scan_of(const Args& a, size_t u, const ScanSizes& s, const int32_t* segments) {
  return {a.in<T>(u),
          a.in<T>(u + 1),
          a.in<T>(u + 3),
          a.in<T>(u + 6),
          a.in<float>(u + 2),
          a.in<float>(u + 4),
          a.in<float>(u + 5),
          s,
          segments};
}
// In place of the sum of the steps of a span in which a document begins: nothing passes through it.
constexpr float cut_span = -1;

}  // namespace on_cuda
}  // namespace mamba
