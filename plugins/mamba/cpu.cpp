// SPDX-License-Identifier: Apache-2.0
// Kernels for the device `cpu`. A task is one sequence and one block of channels. Blocks depend on the number of
// channels only, and sums over sequences and blocks are made at the end, in order, so the bits do not depend on the
// threads.
//
// Shapes in comments: B sequences, T tokens, E channels, N states of a channel, K taps of the convolution.
#include <algorithm>
#include <cstring>

#include "../common/parallel.hpp"
#include "kernels.hpp"
#include "loops.hpp"
#include "ops.hpp"

namespace mamba {

const Loops* find_loops(const char* name) {
#ifdef MAMBA_X86
  if (std::strcmp(name, "avx512") == 0) return __builtin_cpu_supports("avx512f") ? &loops_avx512 : nullptr;
  if (std::strcmp(name, "avx2") == 0)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &loops_avx2 : nullptr;
#endif
  return std::strcmp(name, "portable") == 0 ? &loops_portable : nullptr;
}

const Loops* best_loops() {
  for (const char* name : {"avx512", "avx2"})
    if (const Loops* found = find_loops(name)) return found;
  return &loops_portable;
}

namespace {

using cpu::Args;
using cpu::Call;
using cpu::columns;

void expect_f32(const Call& c) {
  for (const auto* list : {&c.in, &c.out})
    for (const eng_desc& d : *list)
      if (d.dtype && d.dtype != ENG_F32)
        throw cpu::Error{ENG_UNSUPPORTED, "computes in f32; it was given " + cpu::describe(d)};
}

uint64_t floats(int64_t n) {
  return sizeof(float) * static_cast<uint64_t>(n);
}

// Channels in at most 32 blocks. A block is a multiple of 64 channels, which are 4 cache lines.
struct Blocks {
  int64_t channels, size, count;
  explicit Blocks(int64_t e) : channels(e), size(((e + 31) / 32 + 63) / 64 * 64), count((e + size - 1) / size) {}
  int64_t first(int64_t block) const { return block * size; }
  int64_t last(int64_t block) const { return std::min(channels, (block + 1) * size); }
};

// Calls f(thread, sequence, block) for every pair.
template <class F>
void each_block(unsigned threads, int64_t sequences, const Blocks& blocks, F&& f) {
  cpu::parallel_tasks(threads, sequences * blocks.count,
                      [&](unsigned thread, int64_t task) { f(thread, task / blocks.count, task % blocks.count); });
}
// Calls f(row) for every row.
template <class F>
void each_row(unsigned threads, int64_t rows, F&& f) {
  cpu::parallel_for(threads, [&](unsigned thread, unsigned n) {
    const cpu::Share share = cpu::share_of(rows, thread, n);
    for (int64_t row = share.first; row < share.last; ++row) f(row);
  });
}

// w (E, 1, K) -> taps (4, E): each tap of neighbouring channels is contiguous. If K < 4, the first rows are zero.
void spread_taps(const float* w, const Sizes& s, float* taps) {
  std::memset(taps, 0, floats(most_taps * s.channels));
  for (int64_t e = 0; e < s.channels; ++e)
    for (int64_t k = 0; k < s.taps; ++k) taps[(most_taps - s.taps + k) * s.channels + e] = w[e * s.taps + k];
}

struct ConvBase {
  unsigned threads;
  int64_t sequences;
  Sizes s;
  Blocks blocks;
  ConvBase(const Call& c, size_t x, size_t w)
      : threads(c.parallel),
        sequences(c.in[x].dims[0]),
        s{.tokens = c.in[x].dims[1],
          .channels = c.in[w].dims[0],
          .states = 0,
          .stride = c.in[x].dims[2],
          .chunk = 0,
          .taps = c.in[w].dims[2]},
        blocks(s.channels) {}
};

template <const Loops* (*loops)(), bool step>
struct Conv : ConvBase {
  static constexpr const char* op = step ? MAMBA_OP_CONV_STEP : MAMBA_OP_CONV;
  explicit Conv(const Call& c) : ConvBase(c, 0, 1) {}
  static void check(const Call& c) { expect_f32(c); }
  static uint64_t workspace(const Call& c) { return floats(most_taps * c.in[1].dims[0]); }
  void run(const Args& a) const {
    float* taps = a.scratch<float>();
    spread_taps(a.in<float>(1), s, taps);
    each_block(threads, sequences, blocks, [&](unsigned, int64_t b, int64_t block) {
      loops()->conv(s, a.in<float>(0) + b * s.tokens * s.stride, taps, a.in<float>(step ? 3 : 2),
                    a.out<float>(0) + b * s.tokens * s.channels,
                    step ? a.out<float>(1) + b * (s.taps - 1) * s.channels : nullptr, blocks.first(block),
                    blocks.last(block));
    });
  }
};

template <const Loops* (*loops)()>
struct ConvGrad : ConvBase {
  static constexpr const char* op = MAMBA_OP_CONV_GRAD;
  bool add;
  explicit ConvGrad(const Call& c) : ConvBase(c, 1, 2), add(c.has(4)) {}
  static void check(const Call& c) { expect_f32(c); }
  static uint64_t workspace(const Call& c) {
    const int64_t channels = c.in[2].dims[0];
    return floats(most_taps * channels + c.in[1].dims[0] * (most_taps + 1) * channels);
  }
  void run(const Args& a) const {
    float *taps = a.scratch<float>(), *parts = taps + most_taps * s.channels;  // (B, 4 + 1, E): weights, bias
    const auto part = [&](int64_t b) { return parts + b * (most_taps + 1) * s.channels; };
    spread_taps(a.in<float>(2), s, taps);
    each_block(threads, sequences, blocks, [&](unsigned, int64_t b, int64_t block) {
      loops()->conv_grad(s, a.in<float>(0) + b * s.tokens * s.channels, a.in<float>(1) + b * s.tokens * s.stride, taps,
                         a.in<float>(3), a.out<float>(0) + b * s.tokens * s.stride, add, part(b),
                         part(b) + most_taps * s.channels, blocks.first(block), blocks.last(block));
    });
    // The columns of dx after those of x are zero.
    if (!add && s.stride > s.channels)
      each_row(threads, sequences * s.tokens, [&](int64_t row) {
        std::memset(a.out<float>(0) + row * s.stride + s.channels, 0, floats(s.stride - s.channels));
      });
    // dw (E, 1, K) and dbias (E): the sum over the sequences, in order.
    for (int64_t e = 0; e < s.channels; ++e) {
      for (int64_t k = 0; k <= s.taps; ++k) {  // row 4, the last one, is the bias
        float sum = 0;
        for (int64_t b = 0; b < sequences; ++b) sum += part(b)[(most_taps - s.taps + k) * s.channels + e];
        if (k < s.taps)
          a.out<float>(1)[e * s.taps + k] = sum;
        else if (float* dbias = a.out<float>(2))
          dbias[e] = sum;
      }
    }
  }
};

// The inputs of a scan start with u, delta, a_log, bc, d, dt_bias, gate; `u` is the index of the first of them.
Sizes scan_sizes(const Call& c, size_t u) {
  return {.tokens = c.in[u].dims[1],
          .channels = c.in[u].dims[2],
          .states = columns(c.in[u + 2]),
          .stride = columns(c.in[u + 6]),
          .chunk = chunk,
          .taps = 0};
}
// The addresses of sequence b.
ScanIn scan_in(const Sizes& s, const Args& a, size_t u, int64_t b) {
  return {.u = a.in<float>(u) + b * s.tokens * s.channels,
          .delta = a.in<float>(u + 1) + b * s.tokens * s.channels,
          .a_log = a.in<float>(u + 2),
          .bc = a.in<float>(u + 3) + b * s.tokens * 2 * s.states,
          .d = a.in<float>(u + 4),
          .dt_bias = a.in<float>(u + 5),
          .gate = a.in<float>(u + 6) + b * s.tokens * s.stride};
}

template <const Loops* (*loops)(), bool step>
struct Scan {
  static constexpr const char* op = step ? MAMBA_OP_SCAN_STEP : MAMBA_OP_SCAN;
  unsigned threads;
  int64_t sequences;
  Sizes s;
  Blocks blocks;
  explicit Scan(const Call& c)
      : threads(c.parallel), sequences(c.in[0].dims[0]), s(scan_sizes(c, 0)), blocks(s.channels) {}
  static void check(const Call& c) { expect_f32(c); }
  static uint64_t workspace(const Call& c) { return floats(c.parallel * scan_scratch(scan_sizes(c, 0))); }
  void run(const Args& a) const {
    each_block(threads, sequences, blocks, [&](unsigned thread, int64_t b, int64_t block) {
      float* states = a.out<float>(1) + b * (step ? 1 : chunks(s.tokens)) * s.states * s.channels;
      loops()->scan(s, scan_in(s, a, 0, b), a.out<float>(0) + b * s.tokens * s.channels, step ? nullptr : states,
                    step ? states : nullptr, blocks.first(block), blocks.last(block),
                    a.scratch<float>() + thread * scan_scratch(s));
    });
  }
};

template <const Loops* (*loops)()>
struct ScanGrad {
  static constexpr const char* op = MAMBA_OP_SCAN_GRAD;
  unsigned threads;
  int64_t sequences;
  Sizes s;
  Blocks blocks;
  explicit ScanGrad(const Call& c)
      : threads(c.parallel), sequences(c.in[1].dims[0]), s(scan_sizes(c, 1)), blocks(s.channels) {}
  static void check(const Call& c) { expect_f32(c); }
  // Scratch: for each sequence (N + 2, E), the gradients of a_log, d and dt_bias; for each sequence and block (T, 2N),
  // the gradient of bc.
  static int64_t sequence_part(const Sizes& s) { return (s.states + 2) * s.channels; }
  static int64_t block_part(const Sizes& s) { return s.tokens * 2 * s.states; }
  static uint64_t workspace(const Call& c) {
    const Sizes s = scan_sizes(c, 1);
    const Blocks blocks(s.channels);
    return floats(c.in[1].dims[0] * (sequence_part(s) + blocks.count * block_part(s)) +
                  c.parallel * scan_grad_scratch(s, blocks.size));
  }
  void run(const Args& a) const {
    float *parts = a.scratch<float>(), *dbc = parts + sequences * sequence_part(s),
          *scratch = dbc + sequences * blocks.count * block_part(s);
    each_block(threads, sequences, blocks, [&](unsigned thread, int64_t b, int64_t block) {
      const ScanGradIn in = {.forward = scan_in(s, a, 1, b),
                             .dy = a.in<float>(0) + b * s.tokens * s.channels,
                             .states = a.in<float>(8) + b * chunks(s.tokens) * s.states * s.channels};
      float* part = parts + b * sequence_part(s);
      const ScanGradOut out = {.du = a.out<float>(0) + b * s.tokens * s.channels,
                               .ddelta = a.out<float>(1) + b * s.tokens * s.channels,
                               .dgate = a.out<float>(6) + b * s.tokens * s.stride,
                               .dbc = dbc + (b * blocks.count + block) * block_part(s),
                               .da_log = part,
                               .dd = part + s.states * s.channels,
                               .ddt_bias = part + (s.states + 1) * s.channels};
      loops()->scan_grad(s, in, out, blocks.first(block), blocks.last(block),
                         scratch + thread * scan_grad_scratch(s, blocks.size));
    });
    // dbc of each token: the sum over the blocks, in order. The columns of dgate before the gate are zero.
    each_row(threads, sequences * s.tokens, [&](int64_t row) {
      float* to = a.out<float>(3) + row * 2 * s.states;
      const float* from = dbc + row / s.tokens * blocks.count * block_part(s) + row % s.tokens * 2 * s.states;
      std::memcpy(to, from, floats(2 * s.states));
      for (int64_t block = 1; block < blocks.count; ++block)
        for (int64_t i = 0; i < 2 * s.states; ++i) to[i] += from[block * block_part(s) + i];
      if (s.stride > s.channels) std::memset(a.out<float>(6) + row * s.stride, 0, floats(s.stride - s.channels));
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

template <const Loops* (*loops)()>
const eng_kernels* kernels_of() {
  static const eng_kernel* const list[] = {&cpu::kernel<Conv<loops, false>>,
                                           &cpu::kernel<Conv<loops, true>>,
                                           &cpu::kernel<ConvGrad<loops>>,
                                           &cpu::kernel<Scan<loops, false>>,
                                           &cpu::kernel<Scan<loops, true>>,
                                           &cpu::kernel<ScanGrad<loops>>,
                                           &split_kernel,
                                           &join_kernel,
                                           &init_a_log_kernel,
                                           &init_dt_bias_kernel};
  static const eng_kernels table = {
      .struct_size = sizeof(eng_kernels), .count = sizeof list / sizeof *list, .kernels = list};
  return &table;
}

const Loops* portable() {
  return &loops_portable;
}
#ifdef MAMBA_X86
const Loops* avx2() {
  return &loops_avx2;
}
const Loops* avx512() {
  return &loops_avx512;
}
#endif
const Loops* chosen() {
  static const Loops* const best = best_loops();
  return best;
}

}  // namespace

const eng_kernels* cpu_kernels() {
  return kernels_of<chosen>();
}

const eng_kernels* isa_kernels(const char* name) {
  const Loops* found = find_loops(name);
#ifdef MAMBA_X86
  if (found == &loops_avx512) return kernels_of<avx512>();
  if (found == &loops_avx2) return kernels_of<avx2>();
#endif
  return found ? kernels_of<portable>() : nullptr;
}

}  // namespace mamba
