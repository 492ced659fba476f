// SPDX-License-Identifier: Apache-2.0
// Code that the kernels for the device `cpu` share. Rows and parts are divided among threads; sums over tokens are made
// in chunks of a fixed length and then in order, so the bits do not depend on the threads.
#pragma once

#include "../common/parallel.hpp"
#include "kernels.hpp"
#include "loops.hpp"
#include "ops.hpp"
#include "routing.hpp"

namespace moe {
namespace {

using common::Args;
using common::Call;
using common::columns;
using common::elements;
using common::rows;

using Choose = const Isa& (*)();  // the loops of a kernel

uint64_t floats(int64_t n) {
  return sizeof(float) * static_cast<uint64_t>(n);
}
void need_wide(const Call& c, std::initializer_list<size_t> in, std::initializer_list<size_t> out, const char* what) {
  for (size_t k : in)
    if (c.has(k)) cpu::need_f32(c.in[k], what);
  for (size_t k : out) cpu::need_f32(c.out[k], what);
}
// Calls f(row) for every row.
template <class F>
void each_row(unsigned threads, int64_t n, F&& f) {
  cpu::parallel_for(threads, [&](unsigned thread, unsigned count) {
    const cpu::Share share = cpu::share_of(n, thread, count);
    for (int64_t row = share.first; row < share.last; ++row) f(row);
  });
}

}  // namespace
}  // namespace moe
