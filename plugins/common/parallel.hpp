// SPDX-License-Identifier: Apache-2.0
// The threads of kernels on host memory: libgomp's pool, shared by all plugins and by libraries, so that they do not
// compete for cores. A launch allocates nothing: the function object stays on the caller's stack.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

// libgomp's entry points, called by name: the same code then runs in parallel whichever compiler built it.
extern "C" {
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
}

namespace cpu {

// Calls f(thread, n) once on each of n <= threads threads and returns when all are done. n is smaller than `threads`
// where the OpenMP runtime is limited; inside another parallel region it is 1. f must not throw.
template <class F>
void parallel_for(unsigned threads, F&& f) {
  if (threads <= 1) return f(0U, 1U);
  using Body = std::remove_reference_t<F>;
  const auto enter = [](void* body) {
    (*static_cast<Body*>(body))(static_cast<unsigned>(omp_get_thread_num()),
                                static_cast<unsigned>(omp_get_num_threads()));
  };
  GOMP_parallel(enter, const_cast<std::remove_const_t<Body>*>(&f), threads, 0);
}

// Calls f(thread, task) for every task in 0 .. tasks-1. A thread that is free takes the next task, so which thread runs
// a task differs from run to run. A task may use its thread's number to choose scratch memory, and for nothing else. f
// must not throw.
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

// The half-open share of `n` items, in multiples of `unit`, that belongs to `thread` of `threads`.
struct Share {
  int64_t first, last;
};
inline Share share_of(int64_t n, unsigned thread, unsigned threads, int64_t unit = 1) {
  const int64_t units = (n + unit - 1) / unit;
  const int64_t first = units * thread / threads * unit, last = units * (thread + 1) / threads * unit;
  return {first < n ? first : n, last < n ? last : n};
}

}  // namespace cpu
