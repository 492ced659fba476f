// SPDX-License-Identifier: Apache-2.0
// selective_scan, its gradient and its step on the device `cpu`.
#pragma once

#include "cpu_shared.hpp"

namespace mamba {
namespace {

// The inputs of a scan start with u, delta, a_log, bc, d, dt_bias, gate; `first` is the index of u.
Sizes scan_sizes(const Call& c, size_t first) {
  return {.tokens = c.in[first].dims[1],
          .channels = c.in[first].dims[2],
          .states = columns(c.in[first + 2]),
          .stride = columns(c.in[first + 6]),
          .chunk = chunk,
          .taps = 0};
}

struct ScanBase {
  Call c;
  size_t first;
  unsigned threads;
  int64_t sequences;
  Sizes s;
  Blocks blocks;
  ScanBase(const Call& call, size_t u)
      : c(call), first(u), threads(c.parallel), sequences(c.in[u].dims[0]), s(scan_sizes(c, u)), blocks(s.channels) {}
  // Floats of scratch memory for `bc_wide`.
  static int64_t bc_part(const Call& c, size_t u) {
    return c.in[u + 3].dtype == ENG_F32 ? 0 : common::elements(c.in[u + 3]);
  }
  // bc (B, T, 2N) as f32.
  template <class T>
  const float* bc_wide(const TypedLoops<T>& loops, const Args& a, float* room) const {
    const T* bc = a.in<T>(first + 3);
    const int64_t n = 2 * s.states, rows = sequences * s.tokens;
    if constexpr (std::is_same_v<T, float>) return bc;
    each_row(rows * n < 16384 ? 1 : threads, rows, [&](int64_t row) { loops.widen(bc + row * n, room + row * n, n); });
    return room;
  }
  // The addresses of sequence b.
  template <class T>
  ScanIn<T> inputs(const Args& a, const float* bc, int64_t b, const int32_t* segments) const {
    return {.u = a.in<T>(first) + b * s.tokens * s.channels,
            .delta = a.in<T>(first + 1) + b * s.tokens * s.channels,
            .gate = a.in<T>(first + 6) + b * s.tokens * s.stride,
            .a_log = a.in<float>(first + 2),
            .bc = bc + b * s.tokens * 2 * s.states,
            .d = a.in<float>(first + 4),
            .dt_bias = a.in<float>(first + 5),
            .segments = segments};
  }
};

template <const Loops* (*loops)(), bool step>
struct Scan : ScanBase {
  static constexpr const char* op = step ? MAMBA_OP_SCAN_STEP : MAMBA_OP_SCAN;
  static constexpr size_t segments = step ? SIZE_MAX : 9;
  explicit Scan(const Call& c) : ScanBase(c, 0) {}
  static void check(const Call& c) {
    expect_one_type(c, {0, 1, 3, 6}, {0}, "u", "u and delta, bc, gate or y");
    expect_f32(c, {2, 4, 5, step ? 7u : 5u}, {1}, "one of a_log, d, dt_bias and the states");
    cpu::need_numbers(c, segments, c.in[0], "segments");
  }
  static uint64_t workspace(const Call& c) {
    return floats(bc_part(c, 0) + c.parallel * scan_scratch(scan_sizes(c, 0)));
  }
  void run(const Args& a) const {
    float* scratch = a.scratch<float>() + bc_part(c, 0);
    cpu::by_type(c.in[0].dtype, [&]<class T>(T) {
      const TypedLoops<T>& typed = loops()->template of<T>();
      const float* bc = bc_wide(typed, a, a.scratch<float>());
      each_block(threads, sequences, blocks, [&](unsigned thread, int64_t b, int64_t block) {
        float* states = a.out<float>(1) + b * (step ? 1 : chunks(s.tokens)) * s.states * s.channels;
        const int32_t* documents = cpu::segments_of(a, segments, b, s.tokens);
        typed.scan(s, inputs<T>(a, bc, b, documents), a.out<T>(0) + b * s.tokens * s.channels, step ? nullptr : states,
                   step ? states : nullptr, blocks.first(block), blocks.last(block),
                   scratch + thread * scan_scratch(s));
      });
    });
  }
};

template <const Loops* (*loops)()>
struct ScanGrad : ScanBase {
  static constexpr const char* op = MAMBA_OP_SCAN_GRAD;
  explicit ScanGrad(const Call& c) : ScanBase(c, 1) {}
  static void check(const Call& c) {
    expect_one_type(c, {1, 0, 2, 4, 7}, {0, 1, 3, 6}, "u", "u and dy, delta, bc, gate or one of their gradients");
    expect_f32(c, {3, 5, 6, 8}, {2, 4, 5}, "one of a_log, d, dt_bias, their gradients and the states");
    cpu::need_numbers(c, 9, c.in[1], "segments");
  }
  // Scratch: for each sequence (N + 2, E), the gradients of a_log, d and dt_bias; for each sequence and block (T, 2N),
  // the gradient of bc.
  static int64_t sequence_part(const Sizes& s) { return (s.states + 2) * s.channels; }
  static int64_t block_part(const Sizes& s) { return s.tokens * 2 * s.states; }
  static uint64_t workspace(const Call& c) {
    const Sizes s = scan_sizes(c, 1);
    const Blocks blocks(s.channels);
    return floats(bc_part(c, 1) + c.in[1].dims[0] * (sequence_part(s) + blocks.count * block_part(s)) +
                  c.parallel * scan_grad_scratch(s, blocks.size));
  }
  void run(const Args& a) const {
    float *parts = a.scratch<float>() + bc_part(c, 1), *dbc = parts + sequences * sequence_part(s),
          *scratch = dbc + sequences * blocks.count * block_part(s);
    cpu::by_type(c.in[1].dtype, [&]<class T>(T) {
      const TypedLoops<T>& typed = loops()->template of<T>();
      const float* bc = bc_wide(typed, a, a.scratch<float>());
      each_block(threads, sequences, blocks, [&](unsigned thread, int64_t b, int64_t block) {
        const ScanGradIn<T> in = {.forward = inputs<T>(a, bc, b, cpu::segments_of(a, 9, b, s.tokens)),
                                  .dy = a.in<T>(0) + b * s.tokens * s.channels,
                                  .states = a.in<float>(8) + b * chunks(s.tokens) * s.states * s.channels};
        float* part = parts + b * sequence_part(s);
        const ScanGradOut<T> out = {.du = a.out<T>(0) + b * s.tokens * s.channels,
                                    .ddelta = a.out<T>(1) + b * s.tokens * s.channels,
                                    .dgate = a.out<T>(6) + b * s.tokens * s.stride,
                                    .dbc = dbc + (b * blocks.count + block) * block_part(s),
                                    .da_log = part,
                                    .dd = part + s.states * s.channels,
                                    .ddt_bias = part + (s.states + 1) * s.channels};
        typed.scan_grad(s, in, out, blocks.first(block), blocks.last(block),
                        scratch + thread * scan_grad_scratch(s, blocks.size));
      });
    });
    // dbc of each token: the sum over the blocks, in order. The columns of dgate before the gate are zero.
    const Reals to(c, a, a.n_in + 3);
    each_row(threads, sequences * s.tokens, [&](int64_t row) {
      const int64_t n = 2 * s.states;
      float* sum = dbc + row / s.tokens * blocks.count * block_part(s) + row % s.tokens * n;
      for (int64_t block = 1; block < blocks.count; ++block)
        for (int64_t i = 0; i < n; ++i) sum[i] += sum[block * block_part(s) + i];
      for (int64_t i = 0; i < n; ++i) to.set(row * n + i, double(sum[i]));
      if (s.stride > s.channels) clear(c, a, 6, row * s.stride, s.stride - s.channels);
    });
    // da_log (E, N), dd and ddt_bias (E): the sum over the sequences, in order.
    each_row(threads, s.channels, [&](int64_t e) {
      for (int64_t n = 0; n < s.states + 2; ++n) {
        float sum = 0;
        for (int64_t b = 0; b < sequences; ++b) sum += parts[b * sequence_part(s) + n * s.channels + e];
        float* to = n < s.states ? a.out<float>(2) + e * s.states + n : a.out<float>(n == s.states ? 4 : 5) + e;
        *to = sum;
      }
    });
  }
};

}  // namespace
}  // namespace mamba
