// SPDX-License-Identifier: Apache-2.0
#include "gemm.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <type_traits>

#include "isa.hpp"
#include "threads.hpp"

namespace cpu {
namespace {

// The division of a product into tiles:
//   depth   sums over k are cut into blocks of `depth_` or less
//   task    a part of C, some rows and columns, which one thread multiplies: for each block of depth it packs its rows
//           of A, and then its columns of B panel by panel. Threads share nothing but the memory.
//   ticket  some neighbouring blocks of depth of a task: what a thread takes at once
constexpr int64_t most_depth = 288;  // so that a panel of B fits the first-level cache
// The more rows a task has, the less it costs to pack B, and the more columns, to pack A: it is read panel by panel, so
// it may lie in the last-level cache. The sums of a C of 16 bits should lie there, too.
constexpr int64_t most_rows = 1024, most_columns = 2048;
constexpr int64_t most_half_rows = 512, most_half_columns = 1024;
constexpr int64_t few = 32, most_few_columns = 128;  // for so few rows, to pack A costs nothing: B is read once
constexpr int64_t tickets_per_thread = 16;           // so that threads finish together though some are slower

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

struct alignas(64) Counter {
  std::atomic<int32_t> n;
};

}  // namespace

Gemm::Gemm(const GemmShape& s, unsigned threads) : shape_(s), threads_(std::max(threads, 1U)) {
  // The blocks of depth depend on k only: they fix the order of summation.
  depth_ = std::max<int64_t>(even(s.k, most_depth, 8), 1);
  depths_ = std::max<int64_t>(pieces(s.k, depth_), 1);
  // Two tasks for each thread, if need be of fewer rows or columns. Fewer rows make B be packed more often, fewer
  // columns A; rows are cut first, down to a quarter of the columns. These limits were found by measuring.
  const bool half = s.c != stored_f32;
  row_tasks_ = std::max<int64_t>(pieces(s.m, half ? most_half_rows : most_rows), 1);
  column_tasks_ = std::max<int64_t>(pieces(s.n, s.m <= few ? most_few_columns
                                                : half     ? most_half_columns
                                                           : most_columns),
                                    1);
  while (threads_ > 1 && tasks() < 2 * int64_t{threads_}) {
    const int64_t rows = s.m / row_tasks_, columns = s.n / column_tasks_;
    if (rows >= 96 && 4 * rows >= columns)
      ++row_tasks_;
    else if (columns >= 128)
      ++column_tasks_;
    else if (rows >= 56)
      ++row_tasks_;
    else
      break;
  }
  // The sums of a C of 16 bits are not left to another thread.
  const int64_t wanted = tickets_per_thread * threads_ / tasks();
  pieces_ = threads_ == 1 || half ? 1 : std::clamp<int64_t>(wanted, 1, depths_);
  blocks_ = pieces(depths_, pieces_);
  pieces_ = pieces(depths_, blocks_);
  const int64_t rows = pieces(pieces(s.m, row_unit), row_tasks_) * row_unit;
  packed_a_ = round_up(most_packed_rows(rows) * depth_, 16);
  panel_ = most_tile_columns * depth_;
  sums_ = half ? rows * pieces(pieces(s.n, column_unit), column_tasks_) * column_unit : 0;
}

uint64_t Gemm::scratch_bytes() const {
  return threads_ * (sizeof(Counter) + static_cast<uint64_t>(packed_a_ + panel_ + sums_) * sizeof(float));
}

struct Gemm::Work {
  const void *a, *b, *plus;
  int64_t plus_stride;
  void* c;
  float* scratch;
  int64_t a_row, a_k, b_k, b_column;  // strides
};

namespace {
template <class Pointer>
Pointer* element(Pointer* base, int64_t at, Stored stored) {
  using Byte = std::conditional_t<std::is_const_v<Pointer>, const char, char>;
  return static_cast<Byte*>(base) + at * stored_bytes(stored);
}
}  // namespace

// The rows of A that a task reads for one block of depth: what to fetch into the cache ahead of time.
Ahead Gemm::block_of_a(const Work& w, int64_t task, int64_t block) const {
  const auto [first, last] = rows(task);
  const int64_t k = block * depth_, depth = std::min(depth_, shape_.k - k), size = stored_bytes(shape_.a);
  const auto* const from = static_cast<const char*>(element(w.a, first * w.a_row + k * w.a_k, shape_.a));
  return w.a_k == 1 ? Ahead{from, w.a_row * size, depth * size, last - first}
                    : Ahead{from, w.a_k * size, (last - first) * size, depth};
}

// One ticket. While a block is multiplied, the A of the next one is fetched; in the last block that of ticket `next`.
// In f32 the first block of a task adds `plus`, and each later one adds to C. In 16 bits the blocks are added up in the
// thread's sums, and at the end `plus` is added and the result rounded.
void Gemm::multiply(const Work& w, unsigned thread, int64_t ticket, int64_t next) const {
  const GemmShape& s = shape_;
  const int64_t task = ticket % tasks(), begin = ticket / tasks() * blocks_, end = std::min(begin + blocks_, depths_);
  const Share r = rows(task), n = columns(task);
  if (r.first >= r.last || n.first >= n.last) return;
  float* const packed_a = w.scratch + thread * (packed_a_ + panel_ + sums_);
  float* const panel = packed_a + packed_a_;
  float* const sums = panel + panel_;
  const int64_t at = r.first * s.n + n.first;
  const bool half = s.c != stored_f32;
  const void* const plus = w.plus ? element(w.plus, r.first * w.plus_stride + n.first, s.plus) : nullptr;
  Block x{};
  x.rows = r.last - r.first, x.columns = n.last - n.first;
  x.a = packed_a, x.panel = panel, x.b_k = w.b_k, x.b_column = w.b_column;
  x.c = half ? sums : static_cast<float*>(w.c) + at, x.ldc = half ? x.columns : s.n;
  const auto pack_a = pairs() ? isa_->pairs->pack_a : isa_->pack_a[s.a];
  const auto multiply = pairs() ? isa_->pairs->multiply : isa_->multiply[s.b];
  for (int64_t block = begin; block < end; ++block) {
    const int64_t k = block * depth_;
    x.depth = std::min(depth_, s.k - k);
    x.b = element(w.b, k * w.b_k + n.first * w.b_column, s.b);
    x.plus = block > 0 ? x.c : half ? nullptr : static_cast<const float*>(plus);
    x.plus_stride = block > 0 ? x.ldc : w.plus_stride;
    x.later = block + 1 < end    ? block_of_a(w, task, block + 1)
              : next < tickets() ? block_of_a(w, next % tasks(), next / tasks() * blocks_)
                                 : Ahead{};
    pack_a(element(w.a, r.first * w.a_row + k * w.a_k, s.a), w.a_row, w.a_k, x.rows, x.depth, packed_a);
    multiply(x);
  }
  if (half)
    isa_->round_sums[s.c][s.plus == stored_f32](x.rows, x.columns, sums, x.columns, plus, w.plus_stride,
                                                element(w.c, at, s.c), s.n);
}

// Tickets are numbered by tasks first: ticket + tasks() continues the sums of `ticket`. Threads take them in order. A
// ticket waits until no thread is at the one it continues, or an earlier one.
//
// A thread holds two tickets: the one it works on and the next, whose A it fetches. It is "at" the lower one. So a
// ticket waits for lower ones only, the lowest that is not finished waits for nothing, and there is no deadlock.
//
// Each element of C gets its blocks of depth in order, whichever threads compute them: bits do not depend on chance.
void Gemm::run(const void* a, const void* b, const void* plus, int64_t plus_stride, void* c, void* scratch) const {
  const GemmShape& s = shape_;
  if (s.m <= 0 || s.n <= 0) return;
  const auto end = static_cast<int32_t>(tickets());
  auto* const at = static_cast<Counter*>(scratch);
  for (unsigned t = 0; t < threads_; ++t) new (at + t) Counter{end};  // a thread that has not begun holds none
  const Work w{a,
               b,
               plus,
               plus_stride,
               c,
               reinterpret_cast<float*>(at + threads_),
               s.ta ? 1 : s.k,
               s.ta ? s.m : 1,
               s.tb ? 1 : s.n,
               s.tb ? s.k : 1};
  Counter taken{0};
  parallel_for(threads_, [&](unsigned thread, unsigned count) {
    // At the first before it takes any: whoever takes a later one than this thread sees that.
    at[thread].n.store(0, std::memory_order_relaxed);
    const auto take = [&] { return taken.n.fetch_add(1, std::memory_order_acq_rel); };
    for (int32_t ticket = take(), next; ticket < end; ticket = next) {
      next = take();
      set_counter(at[thread].n, ticket);
      if (ticket >= tasks())
        for (unsigned other = 0; other < count; ++other)
          wait_for(at[other].n, ticket - static_cast<int32_t>(tasks()) + 1);
      multiply(w, thread, ticket, next);
    }
    set_counter(at[thread].n, end);
  });
}

}  // namespace cpu
