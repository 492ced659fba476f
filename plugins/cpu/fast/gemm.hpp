// SPDX-License-Identifier: Apache-2.0
// Matrix products over all threads. Sums are cut into blocks by their length alone and never split between threads:
// the bits of a result depend neither on the number of threads nor on chance, and AVX2 and AVX-512 give the same.
#pragma once

#include "device.hpp"
#include "threads.hpp"

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
  // Tasks are numbered by rows first: neighbours multiply the same columns of B.
  Share rows(int64_t task) const { return share_of(shape_.m, task % row_tasks_, row_tasks_, row_unit); }
  Share columns(int64_t task) const { return share_of(shape_.n, task / row_tasks_, column_tasks_, column_unit); }
  int64_t tasks() const { return row_tasks_ * column_tasks_; }
  int64_t tickets() const { return tasks() * pieces_; }
  void multiply(const Work&, unsigned thread, int64_t ticket, int64_t next) const;
  Ahead block_of_a(const Work&, int64_t task, int64_t block) const;
  // True if both operands are bf16 and multiplied by pairs.
  bool pairs() const { return isa_->pairs && shape_.a == stored_bf16 && shape_.b == stored_bf16; }

  static constexpr int64_t row_unit = 6, column_unit = most_tile_columns;

  GemmShape shape_;
  unsigned threads_;
  const Isa* isa_ = nullptr;
  int64_t depth_, depths_;            // sums are cut into `depths` blocks of `depth` or less
  int64_t row_tasks_, column_tasks_;  // C is cut into row_tasks * column_tasks parts
  int64_t pieces_, blocks_;           // a part is computed in `pieces` pieces of `blocks` blocks of depth or less
  int64_t packed_a_, panel_, sums_;   // floats of a thread: a block of A, a panel of B, a part of a C of 16 bits
};

}  // namespace cpu
