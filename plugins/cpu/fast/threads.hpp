// SPDX-License-Identifier: Apache-2.0
// The threads of the cpu device: libgomp's pool, the one that oneDNN uses too, so that nobody competes.
// A launch allocates nothing: the function object stays on the caller's stack.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace cpu {

// Calls body(context, thread, n) once on each of n <= threads threads, and returns when all are done.
// n is smaller than `threads` only where the OpenMP runtime is limited; inside another parallel region it is 1.
void run_parallel(unsigned threads, void (*body)(void* context, unsigned thread, unsigned n), void* context);

// f(thread, n): every thread does its share. f must not throw.
template <class F>
void parallel_for(unsigned threads, F&& f) {
  using Body = std::remove_reference_t<F>;
  run_parallel(
      threads, [](void* context, unsigned thread, unsigned n) { (*static_cast<Body*>(context))(thread, n); }, &f);
}

// f(thread, task) for every task in 0 .. tasks-1: whoever is free takes the next one. Which thread runs a task
// is chance, so a task must not depend on its thread but for scratch memory. f must not throw.
template <class F>
void parallel_tasks(unsigned threads, int64_t tasks, F&& f) {
  if (threads <= 1 || tasks <= 1) {
    for (int64_t task = 0; task < tasks; ++task) f(0U, task);
    return;
  }
  std::atomic<int64_t> next{0};
  parallel_for(threads, [&](unsigned thread, unsigned) {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) f(thread, task);
  });
}

// Returns when another thread has brought the counter to `least`.
void wait_for(const std::atomic<int64_t>& counter, int64_t least);

// The half-open share of `n` items, in multiples of `unit`, that belongs to `thread` of `threads`.
struct Share {
  int64_t first, last;
};
inline Share share_of(int64_t n, unsigned thread, unsigned threads, int64_t unit = 1) {
  const int64_t units = (n + unit - 1) / unit;
  const int64_t first = units * thread / threads * unit, last = units * (thread + 1) / threads * unit;
  return {first < n ? first : n, last < n ? last : n};
}

// Physical cores that this process may run on (its affinity mask, hyper-threads counted once); at least 1.
unsigned physical_cores();

// While it lives, libraries that ask OpenMP how many threads to plan for are told `threads`.
class ThreadCountGuard {
 public:
  explicit ThreadCountGuard(unsigned threads);
  ~ThreadCountGuard();
  ThreadCountGuard(const ThreadCountGuard&) = delete;
  ThreadCountGuard& operator=(const ThreadCountGuard&) = delete;

 private:
  int before_;
};

}  // namespace cpu
