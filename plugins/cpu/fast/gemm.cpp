// SPDX-License-Identifier: Apache-2.0
#include "gemm.hpp"

#include <algorithm>
#include <atomic>

#include "isa.hpp"
#include "threads.hpp"

namespace cpu {
namespace {

constexpr int64_t most_depth = 288;                // a panel of B fits the first-level cache
constexpr int64_t most_rows = 256;                 // a packed block of A fits the second-level cache with room for B
constexpr int64_t slab_floats = int64_t{1} << 20;  // of B, packed at once; two of them exist
constexpr int64_t most_slab_columns = 2048;
constexpr int64_t pack_columns = 128;  // of one packing task
constexpr int64_t few = 32;            // rows for which packing B in common does not pay

int64_t pieces(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}
int64_t round_up(int64_t n, int64_t unit) {
  return pieces(n, unit) * unit;
}
// n in as few equal pieces as `most` allows: the size of one, a multiple of `unit`.
int64_t even(int64_t n, int64_t most, int64_t unit) {
  return round_up(pieces(n, std::max<int64_t>(pieces(n, most), 1)), unit);
}

}  // namespace

Gemm::Gemm(const GemmShape& s, unsigned threads) : shape_(s), threads_(std::max(threads, 1U)) {
  depth_ = std::max<int64_t>(even(s.k, most_depth, 8), 1);
  depths_ = std::max<int64_t>(pieces(s.k, depth_), 1);
  few_rows_ = s.m <= few;
  slab_columns_ = std::max<int64_t>(
      few_rows_ ? std::min(round_up(pieces(s.n, 2 * int64_t{threads_}), most_tile_columns), pack_columns)
                : even(s.n, most_slab_columns, most_tile_columns),
      1);
  column_slabs_ = pieces(s.n, slab_columns_);
  slab_depths_ = few_rows_ ? 1 : even(depths_, std::max<int64_t>(slab_floats / (slab_columns_ * depth_), 1), 1);
  depth_slabs_ = pieces(depths_, slab_depths_);
  // Equal shares for all threads, two each at least; blocks of few rows would read B too often.
  const int64_t want = 2 * int64_t{threads_};
  row_tasks_ = std::max<int64_t>({pieces(s.m, most_rows), std::min(want, s.m / 56), 1});
  if (s.m / round_up(row_tasks_, threads_) >= 28) row_tasks_ = round_up(row_tasks_, threads_);
  column_tasks_ = std::clamp<int64_t>(pieces(want, row_tasks_), 1, pieces(slab_columns_, pack_columns));
  packed_a_ = most_packed_rows(pieces(s.m, row_tasks_)) * depth_;
  packed_b_ = slab_columns_ * depth_ * slab_depths_;
}

uint64_t Gemm::scratch_bytes() const {
  const int64_t slabs = column_slabs_ * depth_slabs_;
  const int64_t floats =
      few_rows_ ? threads_ * (packed_a_ + packed_b_) : threads_ * packed_a_ + std::min<int64_t>(slabs, 2) * packed_b_;
  return static_cast<uint64_t>(floats) * sizeof(float);
}

struct Gemm::Work {
  const float *a, *b, *plus;
  int64_t plus_stride;
  float *c, *packed_a, *packed_b;
  int64_t a_row, a_k, b_k, b_column;  // strides
};

void Gemm::run(const float* a, const float* b, const float* plus, int64_t plus_stride, float* c, void* scratch) const {
  const GemmShape& s = shape_;
  if (s.m <= 0 || s.n <= 0) return;
  float* const floats = static_cast<float*>(scratch);
  const Work w{a,
               b,
               plus,
               plus_stride,
               c,
               floats,
               floats + threads_ * packed_a_,
               s.ta ? 1 : s.k,
               s.ta ? s.m : 1,
               s.tb ? 1 : s.n,
               s.tb ? s.k : 1};
  if (few_rows_)
    run_few_rows(w);
  else
    run_shared(w);
}

// Every thread packs what it needs of both operands.
void Gemm::run_few_rows(const Work& w) const {
  const GemmShape& s = shape_;
  parallel_tasks(threads_, column_slabs_, [&](unsigned thread, int64_t task) {
    const int64_t n = task * slab_columns_, columns = std::min(slab_columns_, s.n - n);
    float* const packed_a = w.packed_a + thread * packed_a_;
    float* const packed_b = w.packed_b + thread * packed_b_;
    for (int64_t block = 0; block < depths_; ++block) {
      const int64_t k = block * depth_, depth = std::min(depth_, s.k - k);
      isa_->pack_a(w.a + k * w.a_k, w.a_row, w.a_k, s.m, depth, packed_a);
      isa_->pack_b(w.b + k * w.b_k + n * w.b_column, w.b_k, w.b_column, columns, depth, packed_b);
      const float* const plus = block > 0 ? w.c : w.plus;
      isa_->multiply(s.m, columns, depth, packed_a, packed_b, plus ? plus + n : nullptr,
                     block > 0 ? s.n : w.plus_stride, w.c + n, s.n, {});
    }
  });
}

// One task in packing a slab of B: some columns of one block of depth.
void Gemm::pack_share(const Work& w, int64_t slab, int64_t task) const {
  const GemmShape& s = shape_;
  const int64_t groups = pieces(slab_columns_, pack_columns), block = task / groups;
  const int64_t n0 = slab / depth_slabs_ * slab_columns_, n = task % groups * pack_columns;
  const int64_t k = (slab % depth_slabs_ * slab_depths_ + block) * depth_;
  const int64_t columns = std::min({pack_columns, slab_columns_ - n, s.n - n0 - n}), depth = std::min(depth_, s.k - k);
  if (columns <= 0 || depth <= 0) return;
  isa_->pack_b(w.b + k * w.b_k + (n0 + n) * w.b_column, w.b_k, w.b_column, columns, depth,
               w.packed_b + slab % 2 * packed_b_ + block * depth_ * slab_columns_ + n * depth);
}

Ahead Gemm::block_of_a(const Work& w, int64_t task, int64_t block) const {
  const int64_t m = first_row(task / column_tasks_), rows = first_row(task / column_tasks_ + 1) - m;
  const int64_t k = block * depth_, depth = std::min(depth_, shape_.k - k);
  const float* const from = w.a + m * w.a_row + k * w.a_k;
  return w.a_k == 1 ? Ahead{from, w.a_row, depth, rows} : Ahead{from, w.a_k, rows, depth};
}

// One task in multiplying by a slab of B: some rows and columns of C.
void Gemm::multiply_share(const Work& w, int64_t slab, int64_t task, float* packed_a, const Ahead& later) const {
  const GemmShape& s = shape_;
  const int64_t m = first_row(task / column_tasks_), rows = first_row(task / column_tasks_ + 1) - m;
  const Share share = share_of(slab_columns_, static_cast<unsigned>(task % column_tasks_),
                               static_cast<unsigned>(column_tasks_), most_tile_columns);
  const int64_t n0 = slab / depth_slabs_ * slab_columns_, n = n0 + share.first;
  const int64_t columns = std::min(n0 + share.last, s.n) - n;
  if (rows <= 0 || columns <= 0) return;
  const int64_t first = slab % depth_slabs_ * slab_depths_, last = std::min(first + slab_depths_, depths_);
  for (int64_t block = first; block < last; ++block) {
    const int64_t k = block * depth_, depth = std::min(depth_, s.k - k);
    isa_->pack_a(w.a + m * w.a_row + k * w.a_k, w.a_row, w.a_k, rows, depth, packed_a);
    const float* const packed_b =
        w.packed_b + slab % 2 * packed_b_ + (block - first) * depth_ * slab_columns_ + share.first * depth;
    const int64_t plus_stride = k > 0 ? s.n : w.plus_stride;
    const float* const plus = k > 0 ? w.c : w.plus;
    isa_->multiply(rows, columns, depth, packed_a, packed_b, plus ? plus + m * plus_stride + n : nullptr, plus_stride,
                   w.c + m * s.n + n, s.n, block + 1 < last ? block_of_a(w, task, block + 1) : later);
  }
}

// The tasks of all slabs in one row: each slab's packing, then its products. Threads take them in order; one that
// comes to products waits until the slab is packed, one that comes to packing until the buffer is free, so everything
// waited for is already being worked on.
void Gemm::run_shared(const Work& w) const {
  const int64_t slabs = column_slabs_ * depth_slabs_;
  const int64_t packs = pieces(slab_columns_, pack_columns) * slab_depths_, products = row_tasks_ * column_tasks_;
  const int64_t all = slabs * (packs + products);
  struct alignas(64) Counter {
    std::atomic<int64_t> n{0};
  };
  Counter next, packed, done[2];  // done: products of the even and of the odd slabs
  parallel_for(threads_, [&](unsigned thread, unsigned) {
    float* const packed_a = w.packed_a + thread * packed_a_;
    const auto take = [&] { return next.n.fetch_add(1, std::memory_order_relaxed); };
    // The next ticket is taken before the work on this one begins, which fetches what that will read.
    for (int64_t ticket = take(), after; ticket < all; ticket = after) {
      after = take();
      const int64_t slab = ticket / (packs + products), task = ticket % (packs + products);
      if (task < packs) {
        wait_for(packed.n, slab * packs);
        wait_for(done[slab % 2].n, slab / 2 * products);
        pack_share(w, slab, task);
        packed.n.fetch_add(1, std::memory_order_release);
      } else {
        wait_for(packed.n, (slab + 1) * packs);
        if (slab % depth_slabs_ > 0) wait_for(done[(slab - 1) % 2].n, (slab + 1) / 2 * products);  // adds to C
        const int64_t later = after % (packs + products) - packs;
        multiply_share(w, slab, task - packs, packed_a,
                       later < 0 || after >= all
                           ? Ahead{}
                           : block_of_a(w, later, after / (packs + products) % depth_slabs_ * slab_depths_));
        done[slab % 2].n.fetch_add(1, std::memory_order_release);
      }
    }
  });
}

}  // namespace cpu
