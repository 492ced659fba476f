// SPDX-License-Identifier: Apache-2.0
// Code that the kernels for the device `cpu` share. A task is one sequence and one block of channels. Blocks depend on
// the number of channels only, and sums over sequences and blocks are made at the end, in order, so the bits do not
// depend on the threads.
//
// The activations and their gradients, and the convolution's weights, have one type: f32, bf16 or f16. What the loops
// take as f32 only is widened into scratch memory first; sums stay f32 until they are complete.
//
// Shapes in comments: B sequences, T tokens, E channels, N states of a channel, K taps of the convolution.
#pragma once

#include <algorithm>
#include <cstring>

#include "../common/documents.hpp"
#include "../common/parallel.hpp"
#include "../common/reals.hpp"
#include "../common/types.hpp"
#include "kernels.hpp"
#include "loops.hpp"
#include "ops.hpp"

namespace mamba {
namespace {

using common::Args;
using common::Call;
using common::columns;
using common::Reals;

// Checks that these inputs and outputs, absent ones aside, have the type of the first input, `name`; `what` names all.
void expect_one_type(const Call& c, std::initializer_list<size_t> in, std::initializer_list<size_t> out,
                     const char* name, const char* what) {
  const eng_desc& first = c.in[*in.begin()];
  cpu::need_float(first, name);
  for (size_t k : in)
    if (c.has(k)) cpu::need_same_type(first, c.in[k], what);
  for (size_t k : out)
    if (c.has_out(k)) cpu::need_same_type(first, c.out[k], what);
}
void expect_f32(const Call& c, std::initializer_list<size_t> in, std::initializer_list<size_t> out, const char* what) {
  for (size_t k : in) cpu::need_f32(c.in[k], what);
  for (size_t k : out) cpu::need_f32(c.out[k], what);
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

// x as f32: where it is, or widened into `room`. Null stays null.
template <class T>
const float* wide(const TypedLoops<T>& loops, const T* x, int64_t n, float* room) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    if (!x) return nullptr;
    loops.widen(x, room, n);
    return room;
  }
}
// Zeroes n elements of output k.
void clear(const Call& c, const Args& a, size_t k, int64_t first, int64_t n) {
  const uint64_t size = common::dtype_size(c.out[k].dtype);
  std::memset(a.out<char>(k) + size * static_cast<uint64_t>(first), 0, size * static_cast<uint64_t>(n));
}

}  // namespace
}  // namespace mamba
