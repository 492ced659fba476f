// SPDX-License-Identifier: Apache-2.0
#include "core/registry/threads.hpp"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/error.hpp"

namespace eng {
namespace {

thread_local bool inside = false;  // a function that `run` called

// One call of `run`.
struct Job {
  const uint64_t n, grain, ranges;
  const eng_range_fn work;
  void* const data;
  std::atomic<uint64_t> next{0}, failed{UINT64_MAX};  // failed: the lowest range that did
  std::mutex mutex{};
  eng_status status = ENG_OK;
  std::string text{};

  // No exception may leave a thread, and none crosses the ABI.
  eng_status call(uint64_t range, Sink& sink) const noexcept try {
    const uint64_t begin = range * grain;
    return work(data, begin, begin + std::min(grain, n - begin), sink.get());
  } catch (const std::exception& e) {
    return report(sink.get(), ENG_INTERNAL, std::string("the function threw through the C ABI: ") + e.what());
  } catch (...) {
    return report(sink.get(), ENG_INTERNAL, "the function threw through the C ABI");
  }

  // A range that was taken is computed even if another has failed: whatever is below the lowest failure was.
  void take() noexcept {
    const bool before = std::exchange(inside, true);
    for (uint64_t range; failed.load() == UINT64_MAX && (range = next.fetch_add(1)) < ranges;) {
      Sink sink;
      const eng_status answer = call(range, sink);
      if (answer == ENG_OK) continue;
      const std::lock_guard lock(mutex);
      if (range > failed.load()) continue;
      failed = range, status = answer;
      text = sink.text(answer);
    }
    inside = before;
  }
};

uint32_t processors(const eng_threads*) {
  return std::clamp(std::thread::hardware_concurrency(), 1u,
                    most_host_threads.load());  // glibc: of the process's affinity
}

// Signals are for the threads that were there before.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

eng_status run(const eng_threads* self, uint32_t threads, uint64_t n, uint64_t grain, eng_range_fn work, void* data,
               eng_error* error) try {
  if (!grain) return report(error, ENG_INVALID, "eng.threads/1: the grain is 0");
  Job job{n, grain, n / grain + (n % grain != 0), work, data};
  const uint64_t wanted = inside ? 1 : std::min<uint64_t>(threads ? threads : processors(self), job.ranges);
  std::vector<std::thread> others;
  others.reserve(wanted);
  {
    const NoSignals here;
    try {
      while (others.size() + 1 < wanted) others.emplace_back([&job] { job.take(); });
    } catch (const std::exception&) {  // no more threads, or no memory for one: those that there are do it
    }
  }
  job.take();
  for (std::thread& other : others) other.join();
  return job.status == ENG_OK ? ENG_OK : report(error, job.status, job.text);
} catch (const std::bad_alloc&) {
  return report(error, ENG_NO_MEMORY, "eng.threads/1: out of memory");
}

}  // namespace

std::atomic<uint32_t> most_host_threads{1024};
const eng_threads host_threads = {sizeof(eng_threads), 0, processors, run};

}  // namespace eng
