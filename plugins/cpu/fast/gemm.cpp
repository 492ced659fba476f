// SPDX-License-Identifier: Apache-2.0
#include "gemm.hpp"

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "isa.hpp"
#include "threads.hpp"

namespace cpu {
namespace {

// How a product is cut up:
//   depth       sums over k are cut into blocks of `depth_` or less: one block of A and one of B are packed together
//   slab        some columns of B, and some blocks of depth: what is packed at once, by all threads together
//   task        a share of the rows and columns of a slab's part of C: what one thread multiplies at once
constexpr int64_t most_depth = 288;                // so that a panel of B fits the first-level cache
constexpr int64_t most_rows = 256;                 // so that a packed block of A, with B, fits the second-level cache
constexpr int64_t slab_floats = int64_t{1} << 20;  // of a slab; there are two slabs in scratch memory
constexpr int64_t half_slab_floats = 2 * slab_floats;  // the same where C has 16 bits
constexpr int64_t most_slab_columns = 2048;
constexpr int64_t pack_columns = 128;  // of one packing task
constexpr int64_t few = 32;            // with this number of rows or less, packing B in common does not pay

int64_t pieces(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}
int64_t round_up(int64_t n, int64_t unit) {
  return pieces(n, unit) * unit;
}
// Cuts n into as few pieces of about equal size as possible, none above `most`. Returns the size of a piece, rounded up
// to a multiple of `unit`.
int64_t even(int64_t n, int64_t most, int64_t unit) {
  return round_up(pieces(n, std::max<int64_t>(pieces(n, most), 1)), unit);
}

}  // namespace

Gemm::Gemm(const GemmShape& s, unsigned threads) : shape_(s), threads_(std::max(threads, 1U)) {
  // The blocks of depth depend on k only: they fix the order of summation.
  depth_ = std::max<int64_t>(even(s.k, most_depth, 8), 1);
  depths_ = std::max<int64_t>(pieces(s.k, depth_), 1);
  // Slabs of B: with few rows one per task, about two for each thread; otherwise as large as slab_floats allows.
  // A C of 16 bits is rounded when its sums are complete: its slabs have the whole depth, and fewer columns. Where that
  // leaves few columns, so that A would be packed again and again, the sums of all of C are kept instead.
  few_rows_ = s.m <= few;
  const bool half = s.c != stored_f32;
  const int64_t whole_depth = depth_ * depths_;
  const int64_t half_columns = std::clamp(half_slab_floats / whole_depth, pack_columns, most_slab_columns);
  keeps_sums_ =
      half && !few_rows_ && half_columns < s.n && s.m * s.n + 2 * slab_floats <= 2 * half_columns * whole_depth;
  const bool cut = !half || keeps_sums_;  // along the depth
  slab_columns_ = std::max<int64_t>(
      few_rows_ ? std::min(round_up(pieces(s.n, 2 * int64_t{threads_}), most_tile_columns), pack_columns)
                : even(s.n, cut ? most_slab_columns : half_columns, most_tile_columns),
      1);
  column_slabs_ = pieces(s.n, slab_columns_);
  slab_depths_ = few_rows_ ? 1
                 : !cut    ? depths_
                           : even(depths_, std::max<int64_t>(slab_floats / (slab_columns_ * depth_), 1), 1);
  depth_slabs_ = pieces(depths_, slab_depths_);
  // Tasks of a slab: at least two for each thread, in equal shares. They are cut by rows first, then by columns,
  // because every task reads its columns of B once and tasks of few rows would read B too often.
  const int64_t want = 2 * int64_t{threads_};
  row_tasks_ = std::max<int64_t>({pieces(s.m, most_rows), std::min(want, s.m / 56), 1});
  if (s.m / round_up(row_tasks_, threads_) >= 28) row_tasks_ = round_up(row_tasks_, threads_);
  column_tasks_ = std::clamp<int64_t>(pieces(want, row_tasks_), 1, pieces(slab_columns_, pack_columns));
  packed_a_ = most_packed_rows(pieces(s.m, row_tasks_)) * depth_;
  packed_b_ = slab_columns_ * depth_ * slab_depths_;
  if (keeps_sums_) {
    sums_stride_ = s.n, sums_ = round_up(s.m * s.n, 16);
    return;
  }
  sums_stride_ =
      few_rows_ ? slab_columns_ : pieces(pieces(slab_columns_, most_tile_columns), column_tasks_) * most_tile_columns;
  sums_ = half ? threads_ * (few_rows_ ? s.m : pieces(s.m, row_tasks_)) * sums_stride_ : 0;
}

uint64_t Gemm::scratch_bytes() const {
  const int64_t slabs = column_slabs_ * depth_slabs_;
  const int64_t floats =
      few_rows_ ? threads_ * (packed_a_ + packed_b_) : threads_ * packed_a_ + std::min<int64_t>(slabs, 2) * packed_b_;
  return static_cast<uint64_t>(floats + sums_) * sizeof(float);
}

struct Gemm::Work {
  const void *a, *b, *plus;
  int64_t plus_stride;
  void* c;
  float *sums, *packed_a, *packed_b;
  int64_t a_row, a_k, b_k, b_column;  // strides
};

namespace {
template <class Pointer>
Pointer* element(Pointer* base, int64_t at, Stored stored) {
  using Byte = std::conditional_t<std::is_const_v<Pointer>, const char, char>;
  return static_cast<Byte*>(base) + at * stored_bytes(stored);
}
}  // namespace

const void* Gemm::a_at(const Work& w, int64_t row, int64_t k) const {
  return element(w.a, row * w.a_row + k * w.a_k, shape_.a);
}
const void* Gemm::b_at(const Work& w, int64_t k, int64_t column) const {
  return element(w.b, k * w.b_k + column * w.b_column, shape_.b);
}
const void* Gemm::plus_at(const Work& w, int64_t row, int64_t column) const {
  return w.plus ? element(w.plus, row * w.plus_stride + column, shape_.plus) : nullptr;
}

// One block of depth of some rows and columns of C. In f32 the first block adds `plus`, and each later one adds to C.
// In 16 bits the blocks are added up in sums, this thread's or those of all of C; the last one adds `plus` and rounds.
void Gemm::multiply_block(const Work& w, unsigned thread, int64_t row, int64_t column, int64_t rows, int64_t columns,
                          int64_t block, const float* packed_a, const float* packed_b, const Ahead& ahead) const {
  const GemmShape& s = shape_;
  const int64_t depth = std::min(depth_, s.k - block * depth_), at = row * s.n + column;
  const auto multiply = pairs() ? isa_->pairs->multiply : isa_->multiply;
  if (s.c == stored_f32) {
    float* const c = static_cast<float*>(w.c) + at;
    const float* const plus = block > 0 ? c : static_cast<const float*>(plus_at(w, row, column));
    return multiply(rows, columns, steps(depth), packed_a, packed_b, plus, block > 0 ? s.n : w.plus_stride, c, s.n,
                    ahead);
  }
  float* const sums = w.sums + (keeps_sums_ ? at : thread * (sums_ / threads_));
  multiply(rows, columns, steps(depth), packed_a, packed_b, block > 0 ? sums : nullptr, sums_stride_, sums,
           sums_stride_, ahead);
  if (block + 1 == depths_)
    isa_->round_sums[s.c][s.plus == stored_f32](rows, columns, sums, sums_stride_, plus_at(w, row, column),
                                                w.plus_stride, element(w.c, at, s.c), s.n);
}

void Gemm::run(const void* a, const void* b, const void* plus, int64_t plus_stride, void* c, void* scratch) const {
  const GemmShape& s = shape_;
  if (s.m <= 0 || s.n <= 0) return;
  float* const floats = static_cast<float*>(scratch);
  const Work w{a,
               b,
               plus,
               plus_stride,
               c,
               floats,
               floats + sums_,
               floats + sums_ + threads_ * packed_a_,
               s.ta ? 1 : s.k,
               s.ta ? s.m : 1,
               s.tb ? 1 : s.n,
               s.tb ? s.k : 1};
  if (few_rows_)
    run_few_rows(w);
  else
    run_shared(w);
}

// A task is one slab of columns. Its thread packs both operands itself, block of depth after block of depth.
void Gemm::run_few_rows(const Work& w) const {
  const GemmShape& s = shape_;
  parallel_tasks(threads_, column_slabs_, [&](unsigned thread, int64_t task) {
    const int64_t n = task * slab_columns_, columns = std::min(slab_columns_, s.n - n);
    float* const packed_a = w.packed_a + thread * packed_a_;
    float* const packed_b = w.packed_b + thread * packed_b_;
    for (int64_t block = 0; block < depths_; ++block) {
      const int64_t k = block * depth_, depth = std::min(depth_, s.k - k);
      pack_a()(a_at(w, 0, k), w.a_row, w.a_k, s.m, depth, packed_a);
      pack_b()(b_at(w, k, n), w.b_k, w.b_column, columns, depth, packed_b);
      multiply_block(w, thread, 0, n, s.m, columns, block, packed_a, packed_b, {});
    }
  });
}

// One packing task of a slab: pack_columns columns of one block of depth. A slab holds block
// after block of depth, each of slab_columns * depth floats in panels.
void Gemm::pack_share(const Work& w, int64_t slab, int64_t task) const {
  const GemmShape& s = shape_;
  const int64_t groups = pieces(slab_columns_, pack_columns), block = task / groups;
  const int64_t n0 = slab / depth_slabs_ * slab_columns_, n = task % groups * pack_columns;
  const int64_t k = (slab % depth_slabs_ * slab_depths_ + block) * depth_;
  const int64_t columns = std::min({pack_columns, slab_columns_ - n, s.n - n0 - n}), depth = std::min(depth_, s.k - k);
  if (columns <= 0 || depth <= 0) return;
  pack_b()(b_at(w, k, n0 + n), w.b_k, w.b_column, columns, depth,
           w.packed_b + slab % 2 * packed_b_ + block * depth_ * slab_columns_ + n * steps(depth));
}

// The rows of A that product `task` reads for one block of depth: what to fetch into the cache ahead of time.
Ahead Gemm::block_of_a(const Work& w, int64_t task, int64_t block) const {
  const int64_t m = first_row(task / column_tasks_), rows = first_row(task / column_tasks_ + 1) - m;
  const int64_t k = block * depth_, depth = std::min(depth_, shape_.k - k), size = stored_bytes(shape_.a);
  const char* const from = static_cast<const char*>(a_at(w, m, k));
  return w.a_k == 1 ? Ahead{from, w.a_row * size, depth * size, rows} : Ahead{from, w.a_k * size, rows * size, depth};
}

// One product task of a slab: some rows and columns of C. For each block of depth in order it packs its rows of A and
// multiplies them. While it multiplies it fetches the A of the next block, or, in the last block, `later`: the A of
// this thread's next task.
void Gemm::multiply_share(const Work& w, unsigned thread, int64_t slab, int64_t task, const Ahead& later) const {
  float* const packed_a = w.packed_a + thread * packed_a_;
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
    pack_a()(a_at(w, m, k), w.a_row, w.a_k, rows, depth, packed_a);
    const float* const packed_b =
        w.packed_b + slab % 2 * packed_b_ + (block - first) * depth_ * slab_columns_ + share.first * steps(depth);
    multiply_block(w, thread, m, n, rows, columns, block, packed_a, packed_b,
                   block + 1 < last ? block_of_a(w, task, block + 1) : later);
  }
}

// All tasks form one list: for each slab its packing tasks, then its product tasks. Their numbers are tickets. Threads
// take tickets in order, so packing the next slab overlaps with the last products of this one.
//
// Slabs alternate between two buffers. What a ticket waits for:
//   packing of slab s    all packing before slab s, so that one counter serves all slabs;
//                        all products of slab s - 2, which read the same buffer
//   a product of slab s  all packing of slab s; and, if s continues the sums of slab s - 1, all products of slab s - 1
// A ticket waits for lower tickets only. A thread works on its lower ticket first, so the lowest unfinished ticket is
// always being worked on and waits for nothing: there is no deadlock.
//
// Each element of C gets its blocks of depth in order, whichever threads compute them: bits do not depend on chance.
void Gemm::run_shared(const Work& w) const {
  const int64_t slabs = column_slabs_ * depth_slabs_;
  const int64_t packs = pieces(slab_columns_, pack_columns) * slab_depths_, products = row_tasks_ * column_tasks_;
  const int64_t of_slab = packs + products, all = slabs * of_slab;
  struct alignas(64) Counter {
    std::atomic<int64_t> n{0};
  };
  Counter next;     // the next ticket
  Counter packed;   // finished packing tasks of all slabs
  Counter done[2];  // finished product tasks of the even and of the odd slabs
  parallel_for(threads_, [&](unsigned thread, unsigned) {
    const auto take = [&] { return next.n.fetch_add(1, std::memory_order_relaxed); };
    // What a ticket's product will read first of A; nothing if it packs, or is past the end of the list.
    const auto reads = [&](int64_t ticket) {
      const int64_t slab = ticket / of_slab, product = ticket % of_slab - packs;
      return product < 0 || ticket >= all ? Ahead{} : block_of_a(w, product, slab % depth_slabs_ * slab_depths_);
    };
    // A thread takes its next ticket before it works on this one, so that this work can fetch what the next one reads.
    for (int64_t ticket = take(), after; ticket < all; ticket = after) {
      after = take();
      const int64_t slab = ticket / of_slab, task = ticket % of_slab;
      if (task < packs) {
        wait_for(packed.n, slab * packs);
        wait_for(done[slab % 2].n, slab / 2 * products);  // slabs 0 .. slab - 2 with this buffer: slab / 2 of them
        pack_share(w, slab, task);
        packed.n.fetch_add(1, std::memory_order_release);
      } else {
        wait_for(packed.n, (slab + 1) * packs);
        const bool adds_to_c = slab % depth_slabs_ > 0;
        if (adds_to_c) wait_for(done[(slab - 1) % 2].n, (slab + 1) / 2 * products);
        multiply_share(w, thread, slab, task - packs, reads(after));
        done[slab % 2].n.fetch_add(1, std::memory_order_release);
      }
    }
  });
}

}  // namespace cpu
