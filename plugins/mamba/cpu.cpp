// SPDX-License-Identifier: Apache-2.0
// Kernels for the device `cpu`: the work is cut into sequences and blocks of channels, whatever the number of threads;
// sums over sequences and blocks are made in order at the end.
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

// Channels in blocks of some cache lines, at most 32 of them.
struct Blocks {
  int64_t channels, size, count;
  explicit Blocks(int64_t e) : channels(e), size(((e + 31) / 32 + 63) / 64 * 64), count((e + size - 1) / size) {}
  int64_t first(int64_t block) const { return block * size; }
  int64_t last(int64_t block) const { return std::min(channels, (block + 1) * size); }
};

// f(thread, sequence, block) for all of them.
template <class F>
void each_block(unsigned threads, int64_t sequences, const Blocks& blocks, F&& f) {
  cpu::parallel_tasks(threads, sequences * blocks.count,
                      [&](unsigned thread, int64_t task) { f(thread, task / blocks.count, task % blocks.count); });
}
// f(row) for all of them.
template <class F>
void each_row(unsigned threads, int64_t rows, F&& f) {
  cpu::parallel_for(threads, [&](unsigned thread, unsigned n) {
    const cpu::Share share = cpu::share_of(rows, thread, n);
    for (int64_t row = share.first; row < share.last; ++row) f(row);
  });
}

// (E, 1, K) -> (4, E), zeros before fewer taps.
void spread_taps(const float* w, int64_t E, int64_t K, float* taps) {
  std::memset(taps, 0, floats(most_taps * E));
  for (int64_t e = 0; e < E; ++e)
    for (int64_t k = 0; k < K; ++k) taps[(most_taps - K + k) * E + e] = w[e * K + k];
}

struct ConvBase {
  unsigned threads;
  int64_t B, K;
  Sizes s;
  Blocks blocks;
  ConvBase(const Call& c, size_t x, size_t w)
      : threads(c.parallel),
        B(c.in[x].dims[0]),
        K(c.in[w].dims[2]),
        s{c.in[x].dims[1], c.in[w].dims[0], 0, c.in[x].dims[2], 0, c.in[w].dims[2]},
        blocks(s.E) {}
};

template <const Loops* (*loops)(), bool step>
struct Conv : ConvBase {
  static constexpr const char* op = step ? MAMBA_OP_CONV_STEP : MAMBA_OP_CONV;
  explicit Conv(const Call& c) : ConvBase(c, 0, 1) {}
  static void check(const Call& c) { expect_f32(c); }
  static uint64_t workspace(const Call& c) { return floats(most_taps * c.in[1].dims[0]); }
  void run(const Args& a) const {
    float* taps = a.scratch<float>();
    spread_taps(a.in<float>(1), s.E, K, taps);
    each_block(threads, B, blocks, [&](unsigned, int64_t b, int64_t block) {
      loops()->conv(s, a.in<float>(0) + b * s.T * s.G, taps, a.in<float>(step ? 3 : 2), a.out<float>(0) + b * s.T * s.E,
                    step ? a.out<float>(1) + b * (K - 1) * s.E : nullptr, blocks.first(block), blocks.last(block));
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
    const int64_t E = c.in[2].dims[0];
    return floats(most_taps * E + c.in[1].dims[0] * (most_taps + 1) * E);
  }
  void run(const Args& a) const {
    float *taps = a.scratch<float>(), *parts = taps + most_taps * s.E;  // (B, 5, E)
    const auto part = [&](int64_t b) { return parts + b * (most_taps + 1) * s.E; };
    spread_taps(a.in<float>(2), s.E, K, taps);
    each_block(threads, B, blocks, [&](unsigned, int64_t b, int64_t block) {
      loops()->conv_grad(s, a.in<float>(0) + b * s.T * s.E, a.in<float>(1) + b * s.T * s.G, taps, a.in<float>(3),
                         a.out<float>(0) + b * s.T * s.G, add, part(b), part(b) + most_taps * s.E, blocks.first(block),
                         blocks.last(block));
    });
    if (!add && s.G > s.E)
      each_row(threads, B * s.T,
               [&](int64_t row) { std::memset(a.out<float>(0) + row * s.G + s.E, 0, floats(s.G - s.E)); });
    for (int64_t e = 0; e < s.E; ++e) {
      for (int64_t k = 0; k <= K; ++k) {  // the last one is the bias
        float sum = 0;
        for (int64_t b = 0; b < B; ++b) sum += part(b)[(most_taps - K + k) * s.E + e];
        if (k < K)
          a.out<float>(1)[e * K + k] = sum;
        else if (float* dbias = a.out<float>(2))
          dbias[e] = sum;
      }
    }
  }
};

Sizes scan_sizes(const Call& c, size_t u) {
  return {c.in[u].dims[1], c.in[u].dims[2], columns(c.in[u + 2]), columns(c.in[u + 6]), chunk, 0};
}
ScanIn scan_in(const Sizes& s, const Args& a, size_t u, int64_t b) {
  return {a.in<float>(u) + b * s.T * s.E,
          a.in<float>(u + 1) + b * s.T * s.E,
          a.in<float>(u + 2),
          a.in<float>(u + 3) + b * s.T * 2 * s.N,
          a.in<float>(u + 4),
          a.in<float>(u + 5),
          a.in<float>(u + 6) + b * s.T * s.G};
}

template <const Loops* (*loops)(), bool step>
struct Scan {
  static constexpr const char* op = step ? MAMBA_OP_SCAN_STEP : MAMBA_OP_SCAN;
  unsigned threads;
  int64_t B;
  Sizes s;
  Blocks blocks;
  explicit Scan(const Call& c) : threads(c.parallel), B(c.in[0].dims[0]), s(scan_sizes(c, 0)), blocks(s.E) {}
  static void check(const Call& c) { expect_f32(c); }
  static uint64_t workspace(const Call& c) { return floats(c.parallel * scan_scratch(scan_sizes(c, 0))); }
  void run(const Args& a) const {
    each_block(threads, B, blocks, [&](unsigned thread, int64_t b, int64_t block) {
      float* states = a.out<float>(1) + b * (step ? 1 : chunks(s.T)) * s.N * s.E;
      loops()->scan(s, scan_in(s, a, 0, b), a.out<float>(0) + b * s.T * s.E, step ? nullptr : states,
                    step ? states : nullptr, blocks.first(block), blocks.last(block),
                    a.scratch<float>() + thread * scan_scratch(s));
    });
  }
};

template <const Loops* (*loops)()>
struct ScanGrad {
  static constexpr const char* op = MAMBA_OP_SCAN_GRAD;
  unsigned threads;
  int64_t B;
  Sizes s;
  Blocks blocks;
  explicit ScanGrad(const Call& c) : threads(c.parallel), B(c.in[1].dims[0]), s(scan_sizes(c, 1)), blocks(s.E) {}
  static void check(const Call& c) { expect_f32(c); }
  // Of each sequence (N + 2, E): the gradients of a_log, d, dt_bias; of each sequence and block (T, 2N): that of bc.
  static int64_t sequence_part(const Sizes& s) { return (s.N + 2) * s.E; }
  static int64_t block_part(const Sizes& s) { return s.T * 2 * s.N; }
  static uint64_t workspace(const Call& c) {
    const Sizes s = scan_sizes(c, 1);
    const Blocks blocks(s.E);
    return floats(c.in[1].dims[0] * (sequence_part(s) + blocks.count * block_part(s)) +
                  c.parallel * scan_grad_scratch(s, blocks.size));
  }
  void run(const Args& a) const {
    float *parts = a.scratch<float>(), *dbc = parts + B * sequence_part(s),
          *scratch = dbc + B * blocks.count * block_part(s);
    each_block(threads, B, blocks, [&](unsigned thread, int64_t b, int64_t block) {
      const ScanGradIn in = {scan_in(s, a, 1, b), a.in<float>(0) + b * s.T * s.E,
                             a.in<float>(8) + b * chunks(s.T) * s.N * s.E};
      float* part = parts + b * sequence_part(s);
      const ScanGradOut out = {a.out<float>(0) + b * s.T * s.E,
                               a.out<float>(1) + b * s.T * s.E,
                               a.out<float>(6) + b * s.T * s.G,
                               dbc + (b * blocks.count + block) * block_part(s),
                               part,
                               part + s.N * s.E,
                               part + (s.N + 1) * s.E};
      loops()->scan_grad(s, in, out, blocks.first(block), blocks.last(block),
                         scratch + thread * scan_grad_scratch(s, blocks.size));
    });
    each_row(threads, B * s.T, [&](int64_t row) {
      float* to = a.out<float>(3) + row * 2 * s.N;
      const float* from = dbc + row / s.T * blocks.count * block_part(s) + row % s.T * 2 * s.N;
      std::memcpy(to, from, floats(2 * s.N));
      for (int64_t block = 1; block < blocks.count; ++block)
        for (int64_t i = 0; i < 2 * s.N; ++i) to[i] += from[block * block_part(s) + i];
      if (s.G > s.E) std::memset(a.out<float>(6) + row * s.G, 0, floats(s.G - s.E));
    });
    each_row(threads, s.E, [&](int64_t e) {
      for (int64_t n = 0; n < s.N + 2; ++n) {
        float sum = 0;
        for (int64_t b = 0; b < B; ++b) sum += parts[b * sequence_part(s) + n * s.E + e];
        float* to = n < s.N ? a.out<float>(2) + e * s.N + n : a.out<float>(n == s.N ? 4 : 5) + e;
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
  static const eng_kernels table = {sizeof(eng_kernels), sizeof list / sizeof *list, list};
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
