// SPDX-License-Identifier: Apache-2.0
// Common parts of selective_scan, its gradient and its step. Tokens follow one another in a thread, whose registers
// hold four states of its channel, or of each of two; neighbouring lanes, a power of two, share a channel. What does
// not depend on the states, the threads of a block compute together, once for each token and channel.
//
// If that gives too few blocks to fill the GPU, sequences are cut into spans of whole chunks, which go side by side:
// first each span alone, for what it adds to the states after it; then what the spans hand on, one after another; then
// each span again, from the right states. `spans` is 1 where sequences are not cut.
#pragma once

#include "shared.cuh"

namespace mamba {
namespace on_cuda {

constexpr int scan_block = 128, scan_tile = 16;  // threads; tokens whose B and C are in shared memory at once
constexpr int most_states = 64, lane_states = 4;
// For each processor, if a lane has one channel: sequences are not cut; what cutting aims at.
constexpr int64_t enough_blocks = 2, filling_blocks = 4;

struct ScanSizes : Sequences {
  int64_t chunks, span, spans;  // span: chunks of one
  int states, lanes, at_once;   // lanes that share a channel; channels of a block
  // Index of an element of the gate: the last E columns of a token.
  __device__ int64_t gate_at(int64_t b, int64_t t, int64_t e) const { return wide_at(b, t, stride - channels + e); }
  __host__ __device__ int64_t groups() const { return (channels + at_once - 1) / at_once; }
  // At most so many, each with as many groups, or one less.
  int64_t blocks(int64_t most) const {
    const int64_t each = (groups() + most - 1) / most;
    return each ? (groups() + each - 1) / each : 0;
  }
  __host__ __device__ int64_t first(int64_t q) const { return q * span * chunk; }  // token of span q
  __host__ __device__ int64_t end(int64_t q) const { return q + 1 < spans ? first(q + 1) : tokens; }
};

template <class T>
struct ScanOf {
  const T *u, *delta, *bc, *gate;
  const float *a_log, *d, *dt_bias;
  ScanSizes s;
};

// Waits for what the threads of the block do with `tile`, and loads B and C of `count` tokens from `first` on into it.
// `width`: that of its rows, which hold B in their first half and C in the second; it divides scan_block. Tokens from
// `end` on, and states that a channel does not have, are 0. Returns bit k for each token first + k below `end` at which
// a document begins, if samples are `packed`; at most 32 tokens. also() loads what else is needed.
template <bool packed, int count, int width, class T, class Also>
__device__ __forceinline__ unsigned load_tile(const ScanOf<T>& p, int64_t b, int64_t first, int64_t end, float* tile,
                                              Also also) {
  const int thread = static_cast<int>(threadIdx.x), column = thread % width, n = column % (width / 2);
  const int row = 2 * p.s.states,
            left = n < p.s.states ? static_cast<int>(end - first < count ? end - first : count) : 0;
  const T* from = p.bc + (b * p.s.tokens + first + thread / width) * row + (column < width / 2 ? n : p.s.states + n);
  __syncthreads();
  ENG_UNROLL_BY(16)
  for (int step = 0; step < count; step += scan_block / width, from += scan_block / width * row) {
    const int k = step + thread / width;
    if (count % (scan_block / width) == 0 || k < count) tile[k * width + column] = k < left ? value(*from) : 0.0f;
  }
  also();
  __syncthreads();
  return packed ? p.s.begun(b, first, first + count < end ? first + count : end) : 0;
}

// The sum over the lanes of a channel, to all of them.
template <int lanes>
__device__ __forceinline__ float sum_of_lanes(float x) {
  for (int by = lanes / 2; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
  return x;
}

// -exp(a_log) / ln 2: exp(s A) = exp2(s rate).
__device__ __forceinline__ float rate_of(float a_log) {
  return -1.44269504f * expf(a_log);
}

// Place of a thread: one of the lanes of `own` channels from e on, of each with states first .. first + lane_states
// - 1. Values of all its states: of state n of channel e + c at c * lane_states + n.
template <int lanes, int own = 1>
struct Place {
  static constexpr int count = own * lane_states;
  const ScanSizes& s;
  int64_t e;
  int lane, first;
  __device__ explicit Place(const ScanSizes& sizes, int64_t group) : s(sizes) {
    const int64_t at = group * scan_block + threadIdx.x;
    e = at / lanes * own, lane = static_cast<int>(at % lanes), first = lane * lane_states;
  }
  // True if there is such a channel, and it has such a state.
  __device__ bool has(int i) const { return e + i / lane_states < s.channels && first + i % lane_states < s.states; }
  __device__ int64_t index(int64_t row, int i) const {
    return (row * s.states + first + i % lane_states) * s.channels + e + i / lane_states;
  }
  // Its states in row `row` of (.., N, E); those that are not there are 0.
  __device__ void load(const float* states, int64_t row, float (&to)[count]) const {
    for (int i = 0; i < count; ++i) to[i] = has(i) ? states[index(row, i)] : 0.0f;
  }
  __device__ void store(const float (&from)[count], float* states, int64_t row) const {
    for (int i = 0; i < count; ++i)
      if (has(i)) states[index(row, i)] = from[i];
  }
  __device__ void load_rates(const float* a_log, float (&rate)[count]) const {
    for (int i = 0; i < count; ++i)
      rate[i] = has(i) ? rate_of(a_log[(e + i / lane_states) * s.states + first + i % lane_states]) : 0.0f;
  }
};

// Place of a thread of a block that goes on by `tokens` tokens at a time. `bc`: rows of [B | C] of these tokens.
// `rows`: rows of the block's channels, one for each token and each of what the threads compute together.
template <int lanes, int tokens, int own_channels = 1>
struct Lane : Place<lanes, own_channels> {
  static constexpr int channels = scan_block / lanes * own_channels, half = lane_states * lanes, width = 2 * half;
  static constexpr int apart = scan_block / channels;  // of the tokens that it computes something of
  float *bc, *rows, *own;                              // own: `rows` from its channel on
  int column, token, of_e;                             // of what it computes for the block
  float bias;
  template <class T>
  __device__ Lane(const ScanOf<T>& p, int64_t group, float* to_bc, float* to_rows)
      : Place<lanes, own_channels>(p.s, group), bc(to_bc), rows(to_rows) {
    const int thread = static_cast<int>(threadIdx.x);
    column = thread % channels, token = thread / channels, of_e = static_cast<int>(group) * channels + column;
    bias = of_e < p.s.channels ? p.dt_bias[of_e] : 0.0f;
    own = rows + thread / lanes * own_channels;
  }
  __device__ static constexpr int at(int row, int k) { return (row * tokens + k) * channels; }
  __device__ float& of_column(int row, int k) const { return rows[at(row, token + k) + column]; }
  // Calls then(k) for each token token + k, of those that this thread computes something of.
  template <class Then>
  __device__ __forceinline__ void each(Then then) const {
    for (int k = 0; k < tokens; k += apart)
      if (apart <= tokens || token < tokens) then(k);
  }
};

// Channels of a lane where it may have several.
template <int lanes>
constexpr int own_channels = lanes == 2 ? 1 : 2;
// The inputs of a scan begin with u, delta, a_log, bc, d, dt_bias, gate; `u` is the index of the first. `cut`: whether
// sequences may be cut into spans; `most_blocks`: that groups of channels may have; `several`: channels in a lane.
inline ScanSizes scan_sizes(const Call& c, size_t u, bool cut, int64_t most_blocks = int64_t{1} << 31,
                            bool several = false) {
  need(c.in[u].ndim == 3, "u must be (B, T, E)");
  ScanSizes s{};
  s.batch = c.in[u].dims[0], s.tokens = c.in[u].dims[1], s.channels = c.in[u].dims[2], s.stride = columns(c.in[u + 6]);
  s.chunks = s.span = chunks(s.tokens);
  const int64_t states = columns(c.in[u + 2]);
  if (states < 1 || states > most_states) throw Error{ENG_UNSUPPORTED, "computes 1 to 64 states of a channel"};
  s.states = static_cast<int>(states), s.lanes = states <= 8 ? 2 : states <= 16 ? 4 : most_states / lane_states;
  const int own = several && s.lanes > 2 ? 2 : 1;
  s.at_once = scan_block / s.lanes * own;
  const int64_t blocks = s.batch * s.blocks(most_blocks) * own, processors = c.parallel;
  if (cut && blocks > 0 && blocks < enough_blocks * processors)
    s.span = (s.chunks * blocks + filling_blocks * processors - 1) / (filling_blocks * processors);
  if (s.span < 1) s.span = 1;
  s.spans = (s.chunks + s.span - 1) / s.span;
  return s;
}
// run.operator()<lanes>()
template <class Run>
void by_lanes(const ScanSizes& s, Run run) {
  s.lanes == 2   ? run.template operator()<2>()
  : s.lanes == 4 ? run.template operator()<4>()
                 : run.template operator()<most_states / lane_states>();
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
  ScanOf<T> p{a.in<T>(u),         a.in<T>(u + 1),     a.in<T>(u + 3),     a.in<T>(u + 6),
              a.in<float>(u + 2), a.in<float>(u + 4), a.in<float>(u + 5), s};
  p.s.segments = segments;
  return p;
}

// In place of the sum of the steps of a span in which a document begins: nothing passes through it.
constexpr float cut_span = -1;

// The states at the borders of spans, from what each span alone adds there: one span after another.
struct HandOver {
  static constexpr int width = 1;
  const float *a_log, *steps;  // steps (B, spans, E): of the span that adds to the states at q
  float* states;               // (B, rows, N, E), those at span q > 0 in row q * apart
  int64_t rows, apart;
  bool back;  // from the last span to the second
  ScanSizes s;
  template <int>
  __device__ void at(int64_t i) const {
    const int64_t e = i % s.channels, n = i / s.channels % s.states, b = i / s.channels / s.states;
    const float rate = rate_of(a_log[e * s.states + n]);
    float h = 0;
    for (int64_t k = 1; k < s.spans; ++k) {
      const int64_t q = back ? s.spans - k : k;
      float* const own = states + ((b * rows + q * apart) * s.states + n) * s.channels + e;
      const float by = steps[(b * s.spans + q) * s.channels + e];
      h = by == cut_span ? *own : fmaf(exp2_approx(by * rate), h, *own);
      *own = h;
    }
  }
};

}  // namespace on_cuda
}  // namespace mamba
