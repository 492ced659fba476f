// SPDX-License-Identifier: Apache-2.0
// Threads of communicators.
#pragma once

#include <signal.h>

#include <future>
#include <thread>
#include <utility>

namespace common {

// Blocks signals for this thread and those that it starts: signals are for the host's threads.
inline void leave_signals_to_host() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

// Runs `body`, which may wait for other ranks without a limit, on a thread of its own. Who does not wait for the result
// any longer leaves the thread behind, so `body` owns all that it uses.
template <class Body>
auto on_own_thread(Body body) {
  std::packaged_task task(std::move(body));
  auto result = task.get_future();
  std::thread([task = std::move(task)]() mutable {
    leave_signals_to_host();  // by the library's threads, too
    task();
  }).detach();
  return result;
}

}  // namespace common
