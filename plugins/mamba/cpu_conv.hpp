// SPDX-License-Identifier: Apache-2.0
// causal_conv1d, its gradient and its step on the device `cpu`.
#pragma once

#include "cpu_shared.hpp"

namespace mamba {
namespace {

struct ConvBase {
  Call c;
  unsigned threads;
  int64_t sequences;
  Sizes s;
  Blocks blocks;
  ConvBase(const Call& call, size_t x, size_t w)
      : c(call),
        threads(c.parallel),
        sequences(c.in[x].dims[0]),
        s{.tokens = c.in[x].dims[1],
          .channels = c.in[w].dims[0],
          .states = 0,
          .stride = c.in[x].dims[2],
          .chunk = 0,
          .taps = c.in[w].dims[2]},
        blocks(s.channels) {}
  Sizes of_document(int64_t tokens) const {
    Sizes part = s;
    return part.tokens = tokens, part;
  }
  // Floats of scratch memory for `spread`: taps (4, E); if they have 16 bits, w (E, 1, K) and bias (E) as f32.
  static int64_t spread_part(const Call& c, size_t w) {
    const int64_t taps = most_taps + (c.in[w].dtype == ENG_F32 ? 0 : c.in[w].dims[2] + 1);
    return taps * c.in[w].dims[0];
  }
  // Writes input w to taps (4, E): each tap of neighbouring channels is contiguous. If K < 4, the first rows are zero.
  // Returns the bias as f32, or null if there is none.
  template <class T>
  const float* spread(const TypedLoops<T>& loops, const Args& a, size_t w, size_t bias, float* taps) const {
    float* room = taps + most_taps * s.channels;
    const float* from = wide(loops, a.in<T>(w), s.taps * s.channels, room);
    std::memset(taps, 0, floats(most_taps * s.channels));
    for (int64_t e = 0; e < s.channels; ++e)
      for (int64_t k = 0; k < s.taps; ++k) taps[(most_taps - s.taps + k) * s.channels + e] = from[e * s.taps + k];
    return wide(loops, a.in<T>(bias), s.channels, room + s.taps * s.channels);
  }
};

template <const Loops* (*loops)(), bool step>
struct Conv : ConvBase {
  static constexpr const char* op = step ? MAMBA_OP_CONV_STEP : MAMBA_OP_CONV;
  explicit Conv(const Call& c) : ConvBase(c, 0, 1) {}
  static constexpr size_t segments = step ? SIZE_MAX : 3;
  static void check(const Call& c) {
    expect_one_type(c, {0, 1, 2}, {0, 1}, "x", "x and w, bias, last or y");
    if (step) expect_one_type(c, {0, 3}, {}, "x", "x and bias");
    cpu::need_numbers(c, segments, c.in[0], "segments");
  }
  static uint64_t workspace(const Call& c) { return floats(spread_part(c, 1)); }
  void run(const Args& a) const {
    cpu::by_type(c.in[0].dtype, [&]<class T>(T) {
      const TypedLoops<T>& typed = loops()->template of<T>();
      float* taps = a.scratch<float>();
      const float* bias = spread(typed, a, 1, step ? 3 : 2, taps);
      each_block(threads, sequences, blocks, [&](unsigned, int64_t b, int64_t block) {
        const int32_t* documents = cpu::segments_of(a, segments, b, s.tokens);
        cpu::each_document(documents, s.tokens, [&](int64_t first, int64_t tokens) {
          const int64_t row = b * s.tokens + first;
          typed.conv(of_document(tokens), a.in<T>(0) + row * s.stride, taps, bias, a.out<T>(0) + row * s.channels,
                     step ? a.out<T>(1) + b * (s.taps - 1) * s.channels : nullptr, blocks.first(block),
                     blocks.last(block));
        });
      });
    });
  }
};

template <const Loops* (*loops)()>
struct ConvGrad : ConvBase {
  static constexpr const char* op = MAMBA_OP_CONV_GRAD;
  static constexpr int64_t rows = most_taps + 1;  // the weights, the bias
  explicit ConvGrad(const Call& c) : ConvBase(c, 1, 2) {}
  static void check(const Call& c) {
    expect_one_type(c, {0, 1, 2, 3, 4}, {0}, "dy", "dy and x, w, bias, dx_acc or dx");
    cpu::need_sums(c, c.in[2].dtype, {}, {1, 2});
    cpu::need_numbers(c, 5, c.in[1], "segments");
  }
  static uint64_t workspace(const Call& c) {
    return floats(spread_part(c, 2) + c.in[1].dims[0] * rows * c.in[2].dims[0]);
  }
  void run(const Args& a) const {
    float *taps = a.scratch<float>(), *parts = taps + spread_part(c, 2);  // (4, E), (B, 4 + 1, E)
    const auto part = [&](int64_t b) { return parts + b * rows * s.channels; };
    const bool add = c.has(4);
    cpu::by_type(c.in[0].dtype, [&]<class T>(T) {
      const TypedLoops<T>& typed = loops()->template of<T>();
      const float* bias = spread(typed, a, 2, 3, taps);
      each_block(threads, sequences, blocks, [&](unsigned, int64_t b, int64_t block) {
        cpu::each_document(cpu::segments_of(a, 5, b, s.tokens), s.tokens, [&](int64_t first, int64_t tokens) {
          const int64_t row = b * s.tokens + first;
          typed.conv_grad(of_document(tokens), a.in<T>(0) + row * s.channels, a.in<T>(1) + row * s.stride, taps, bias,
                          a.out<T>(0) + row * s.stride, add, first > 0, part(b), part(b) + most_taps * s.channels,
                          blocks.first(block), blocks.last(block));
        });
      });
    });
    // The columns of dx after those of x are zero.
    if (!add && s.stride > s.channels)
      each_row(threads, sequences * s.tokens,
               [&](int64_t row) { clear(c, a, 0, row * s.stride + s.channels, s.stride - s.channels); });
    // dw (E, 1, K) and dbias (E): the sum over the sequences, in order.
    const Reals dw(c, a, a.n_in + 1), dbias(c, a, a.n_in + 2);
    for (int64_t e = 0; e < s.channels; ++e) {
      for (int64_t k = 0; k <= s.taps; ++k) {  // row 4, the last one, is the bias
        float sum = 0;
        for (int64_t b = 0; b < sequences; ++b) sum += part(b)[(most_taps - s.taps + k) * s.channels + e];
        if (k < s.taps)
          dw.set(e * s.taps + k, double(sum));
        else if (dbias)
          dbias.set(e, double(sum));
      }
    }
  }
};

}  // namespace
}  // namespace mamba
