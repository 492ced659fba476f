// SPDX-License-Identifier: Apache-2.0
// Matrix products over all threads. Sums are cut into blocks by their length alone and never split between threads:
// the bits of a result depend neither on the number of threads nor on chance, and AVX2 and AVX-512 give the same.
#pragma once

#include "device.hpp"

namespace cpu {

// C (m, n) = op(A) op(B) + plus; all matrices dense and row-major, ta and tb: stored transposed. plus is f32 if C is,
// otherwise f32 or of C's type. Sums are in f32, and a C of 16 bits is rounded once.
struct GemmShape {
  int64_t m, n, k;
  bool ta = false, tb = false;
  Stored a = stored_f32, b = stored_f32, c = stored_f32, plus = stored_f32;
};

class Gemm {
 public:
  Gemm(const Device& device, const GemmShape& shape, unsigned threads) : Gemm(shape, threads) { isa_ = device.isa; }

  // Scratch bytes that `run` wants, aligned to 64 bytes.
  static uint64_t scratch(const GemmShape& shape, unsigned threads) { return Gemm(shape, threads).scratch_bytes(); }

  // plus: (m, n), which may be c; with plus_stride 0 one row that is added to every row, such as a bias; or null.
  // Allocates nothing.
  void run(const void* a, const void* b, const void* plus, int64_t plus_stride, void* c, void* scratch) const;

 private:
  struct Work;
  Gemm(const GemmShape&, unsigned threads);
  uint64_t scratch_bytes() const;
  int64_t first_row(int64_t task) const { return shape_.m * task / row_tasks_; }
  void run_few_rows(const Work&) const;
  void run_shared(const Work&) const;
  void pack_share(const Work&, int64_t slab, int64_t task) const;
  void multiply_share(const Work&, unsigned thread, int64_t slab, int64_t task, const Ahead& later) const;
  // Whether both operands are bf16 and multiplied by pairs; then a depth has half as many steps.
  bool pairs() const { return isa_->pairs && shape_.a == stored_bf16 && shape_.b == stored_bf16; }
  int64_t steps(int64_t depth) const { return pairs() ? (depth + 1) / 2 : depth; }
  auto pack_a() const { return pairs() ? isa_->pairs->pack_a : isa_->pack_a[shape_.a]; }
  auto pack_b() const { return pairs() ? isa_->pairs->pack_b : isa_->pack_b[shape_.b]; }
  Ahead block_of_a(const Work&, int64_t task, int64_t block) const;
  const void* a_at(const Work&, int64_t row, int64_t k) const;
  const void* b_at(const Work&, int64_t k, int64_t column) const;
  const void* plus_at(const Work&, int64_t row, int64_t column) const;
  void multiply_block(const Work&, unsigned thread, int64_t row, int64_t column, int64_t rows, int64_t columns,
                      int64_t block, const float* packed_a, const float* packed_b, const Ahead&) const;

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
  int64_t sums_, sums_stride_;  // floats: C before it is rounded to 16 bits, each thread's part or all; one row of that
  bool few_rows_, keeps_sums_;  // keeps_sums_: of all of C, from slab to slab
};

}  // namespace cpu
