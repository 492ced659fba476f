// SPDX-License-Identifier: Apache-2.0
// The extension "eng.threads/1" as a plugin gets it, and its contract.
#include <pthread.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cfenv>
#include <csignal>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.hpp"
#include "core/registry/threads.hpp"

using namespace eng;

namespace {

using Work = std::function<eng_status(uint64_t, uint64_t, eng_error*)>;

eng_status run(uint32_t threads, uint64_t n, uint64_t grain, const Work& work, Sink* sink = nullptr) {
  return host_threads.run(
      &host_threads, threads, n, grain,
      [](void* data, uint64_t begin, uint64_t end, eng_error* error) {
        return (*static_cast<const Work*>(data))(begin, end, error);
      },
      const_cast<Work*>(&work), sink ? sink->get() : nullptr);
}

size_t threads_of_process() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) ++n;
  return n;
}

}  // namespace

TEST_CASE("every element once, in ranges that do not depend on the threads", "[threads]") {
  for (const uint64_t n : {0u, 1u, 9u, 10u, 1000u})
    for (const uint64_t grain : {1u, 7u, 10u, 5000u}) {
      std::set<std::pair<uint64_t, uint64_t>> expected;
      for (uint64_t at = 0; at < n; at += grain) expected.emplace(at, std::min(n, at + grain));
      for (const uint32_t threads : {0u, 1u, 2u, 5u}) {
        std::mutex mutex;
        std::vector<std::pair<uint64_t, uint64_t>> got;
        REQUIRE(run(threads, n, grain, [&](uint64_t begin, uint64_t end, eng_error*) {
                  const std::lock_guard lock(mutex);
                  got.emplace_back(begin, end);
                  return ENG_OK;
                }) == ENG_OK);
        CHECK(got.size() == expected.size());
        CHECK(std::set(got.begin(), got.end()) == expected);
      }
    }
  CHECK(run(0, UINT64_MAX, UINT64_MAX,
            [](uint64_t, uint64_t end, eng_error*) { return end == UINT64_MAX ? ENG_OK : ENG_INTERNAL; }) == ENG_OK);
}

TEST_CASE("as many threads as asked for, gone when it returns; they have no signals", "[threads]") {
  const size_t before = threads_of_process();
  std::fesetround(FE_UPWARD);
  std::atomic<int> together{0}, signals{0}, rounding{0};
  std::mutex mutex;
  std::set<std::thread::id> who;
  const eng_status status = run(4, 4, 1, [&](uint64_t, uint64_t, eng_error*) {
    ++together;
    while (together < 4) std::this_thread::yield();  // all four are inside at once
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    signals += !sigismember(&mask, SIGINT);
    rounding += std::fegetround() == FE_UPWARD;
    const std::lock_guard lock(mutex);
    who.insert(std::this_thread::get_id());
    return ENG_OK;
  });
  std::fesetround(FE_TONEAREST);
  CHECK(status == ENG_OK);
  CHECK(who.size() == 4);
  CHECK(who.count(std::this_thread::get_id()) == 1);
  CHECK(signals == 1);  // the caller's
  CHECK(rounding == 4);
  CHECK(threads_of_process() == before);
  CHECK(host_threads.count(&host_threads) >= 1);
  const uint32_t most = most_host_threads.exchange(1);
  CHECK(host_threads.count(&host_threads) == 1);
  most_host_threads = most;
}

TEST_CASE("the failure is that of the lowest range, whatever the number of threads", "[threads]") {
  for (const uint32_t threads : {1u, 2u, 4u, 8u})
    for (int trial = 0; trial < 50; ++trial) {
      std::vector<std::atomic<int>> done(64);
      Sink sink;
      const eng_status status = run(
          threads, 64, 1,
          [&](uint64_t i, uint64_t, eng_error* error) -> eng_status {
            ++done[i];
            if (i == 20) std::this_thread::sleep_for(std::chrono::microseconds(200));  // later ones fail before it
            return i == 20 || i == 21 || i == 23 ? report(error, ENG_DATA_LOSS, fmt::format("range {}", i)) : ENG_OK;
          },
          &sink);
      CHECK(status == ENG_DATA_LOSS);
      CHECK(sink.text() == "range 20");
      for (size_t i = 0; i <= 20; ++i) CHECK(done[i] == 1);
      for (size_t i = 21; i < 64; ++i) CHECK(done[i] <= 1);
      CHECK(done[63] == 0);
    }
}

TEST_CASE("a call from inside is computed on its thread; several calls at a time", "[threads]") {
  std::atomic<uint64_t> sum{0};
  std::atomic<bool> moved{false};
  const Work outer = [&](uint64_t, uint64_t, eng_error*) {
    const auto me = std::this_thread::get_id();
    return run(4, 100, 3, [&](uint64_t begin, uint64_t end, eng_error*) {
      if (std::this_thread::get_id() != me) moved = true;
      for (uint64_t i = begin; i < end; ++i) sum += i;
      return ENG_OK;
    });
  };
  std::vector<std::thread> callers;
  for (int k = 0; k < 3; ++k) callers.emplace_back([&] { run(2, 10, 1, outer); });
  for (std::thread& caller : callers) caller.join();
  CHECK(sum == 3 * 10 * 4950);
  CHECK(!moved);
}

TEST_CASE("what threads cannot do is reported", "[threads]") {
  Sink sink;
  CHECK(run(
            1, 5, 0, [](uint64_t, uint64_t, eng_error*) { return ENG_OK; }, &sink) == ENG_INVALID);
  CHECK(sink.text() == "eng.threads/1: the grain is 0");
  Sink thrown;
  CHECK(run(
            2, 5, 1, [](uint64_t, uint64_t, eng_error*) -> eng_status { throw std::runtime_error("no"); }, &thrown) ==
        ENG_INTERNAL);
  CHECK(thrown.text() == "the function threw through the C ABI: no");
}
