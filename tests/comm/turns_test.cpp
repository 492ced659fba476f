// SPDX-License-Identifier: Apache-2.0
// The lock under which the communicator calls MPI goes to whoever came first.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "plugins/mpi/turns.hpp"

namespace {

// A lock without order: a waiter looks once in 2 ms, and the thread that gives it back has it again long before.
class Barging {
 public:
  void lock() {
    while (held_.test_and_set()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  void unlock() { held_.clear(); }

 private:
  std::atomic_flag held_ = ATOMIC_FLAG_INIT;
};

// Counts how often of 21 times a thread that gives the lock back and wants it again at once finds another one before
// it.
template <class Lock>
int served_first() {
  int count = 0;
  for (int k = 0; k < 21; ++k) {
    Lock lock;
    std::atomic<bool> comes{false}, served{false};
    lock.lock();
    std::thread other([&] {
      comes = true;
      lock.lock();
      served = true;
      lock.unlock();
    });
    while (!comes) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // by now it waits
    lock.unlock();
    lock.lock();
    count += served;
    lock.unlock();
    other.join();
  }
  return count;
}

}  // namespace

TEST_CASE("who waits for the communicator's lock is not overtaken") {
  CHECK(served_first<mpi::Turns>() > 10);
  CHECK(served_first<Barging>() <= 10);  // what it is not
}
