// SPDX-License-Identifier: Apache-2.0
#include "session/run/waiting.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <thread>
#include <vector>

namespace eng {
namespace {

constexpr const char *library = "libgomp.so.1", *count_variable = "GOMP_SPINCOUNT";

// About what it costs to put a thread to sleep and to wake it: a wait never takes more than twice the least that it
// could (benchmarks/load.py).
constexpr double spin_microseconds = 20;

// libgomp counts looks at a value, with a pause between them: 4 to 60 ns on x86-64, by the processor. The least of
// several measurements is one that was not interrupted.
int64_t looks(double microseconds) {
  constexpr int n = 100;
  double least = 1e9;
  std::atomic<int> value{0};
  for (int trial = 0; trial < 8; ++trial) {
    const auto begin = std::chrono::steady_clock::now();
    for (int k = 0; k < n && value.load(std::memory_order_relaxed) == 0; ++k) {
#ifdef __x86_64__
      __builtin_ia32_pause();
#else
      asm volatile("" ::: "memory");
#endif
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    least = std::min(least, took.count() / n);
  }
  return std::clamp<int64_t>(static_cast<int64_t>(microseconds / std::max(least, 1e-4)), 1, 100'000);
}

std::string settled() {
  for (const char* name : {"OMP_WAIT_POLICY", count_variable})
    if (const char* said = std::getenv(name)) return fmt::format("as {}={} says", name, said);
  if (::dlopen(library, RTLD_LAZY | RTLD_NOLOAD)) return "as libgomp was told by the program that loaded it before";
  ::setenv(count_variable, std::to_string(looks(spin_microseconds)).c_str(), 1);
  const bool loaded = ::dlopen(library, RTLD_LAZY | RTLD_LOCAL) != nullptr;  // it stays
  ::unsetenv(count_variable);
  if (!loaded) return "unknown: there is no " + std::string(library);
  return fmt::format("{:.0f} microseconds awake, then asleep", spin_microseconds);
}

}  // namespace

void check_threads(uint32_t count) {
  std::promise<void> end;
  struct Joined {
    std::promise<void>& end;
    std::vector<std::thread> all = {};
    ~Joined() {
      end.set_value();
      for (std::thread& one : all) one.join();
    }
  } threads{end};
  const std::shared_future<void> ended = end.get_future().share();
  for (uint32_t k = 1; k < count; ++k) threads.all.emplace_back([ended] { ended.wait(); });  // this one is the first
}

const std::string& waiting() {
  static const std::string once = settled();
  return once;
}

}  // namespace eng
