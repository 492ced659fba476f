// SPDX-License-Identifier: Apache-2.0
// Matrix products over all threads. Sums are cut into blocks by their length alone and never split between threads:
// the bits of a result depend neither on the number of threads nor on chance, and AVX2 and AVX-512 give the same.
#pragma once

#include "device.hpp"

namespace cpu {

// C (m, n) = op(A) op(B) + plus; all matrices dense and row-major, ta and tb: stored transposed.
struct GemmShape {
  int64_t m, n, k;
  bool ta = false, tb = false;
};

class Gemm {
 public:
  Gemm(const Device& device, const GemmShape& shape, unsigned threads) : Gemm(shape, threads) { isa_ = device.isa; }

  // Scratch bytes that `run` wants, aligned to 64 bytes.
  static uint64_t scratch(const GemmShape& shape, unsigned threads) { return Gemm(shape, threads).scratch_bytes(); }

  // plus: (m, n), which may be c; with plus_stride 0 one row that is added to every row, such as a bias; or null.
  // Allocates nothing.
  void run(const float* a, const float* b, const float* plus, int64_t plus_stride, float* c, void* scratch) const;

 private:
  struct Work;
  Gemm(const GemmShape&, unsigned threads);
  uint64_t scratch_bytes() const;
  int64_t first_row(int64_t task) const { return shape_.m * task / row_tasks_; }
  void run_few_rows(const Work&) const;
  void run_shared(const Work&) const;
  void pack_share(const Work&, int64_t slab, int64_t task) const;
  void multiply_share(const Work&, int64_t slab, int64_t task, float* packed_a, const Ahead& later) const;
  Ahead block_of_a(const Work&, int64_t task, int64_t block) const;

  GemmShape shape_;
  unsigned threads_;
  const Isa* isa_ = nullptr;
  int64_t depth_, depths_;  // sums are cut into `depths` blocks of `depth` or less
  // B is packed slab by slab, by all threads together. A slab has slab_columns columns and slab_depths blocks of depth.
  // Slabs are numbered along the depth first: depth_slabs of them continue the same sums.
  int64_t slab_columns_, slab_depths_, column_slabs_, depth_slabs_;
  // The part of C that belongs to a slab is computed by row_tasks * column_tasks tasks.
  int64_t row_tasks_, column_tasks_;
  int64_t packed_a_, packed_b_;  // floats: a thread's part of A, a slab of B (or a thread's part, for few rows)
  bool few_rows_;
};

}  // namespace cpu
