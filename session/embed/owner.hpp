// SPDX-License-Identifier: Apache-2.0
// A session belongs to the process that started it, and to one of its threads at a time.
#pragma once

#include <sys/types.h>

#include <atomic>

#include "core/base/error.hpp"

namespace eng {

// ENG_PRECONDITION: nothing was done, and the session is as it was.
class Precondition : public Error {
 public:
  explicit Precondition(const std::string& message, std::string help = "")
      : Error(Exit::usage, message, std::move(help)) {}
};

class Owner {
 public:
  // `function` is inside until `leave`. Throws Precondition if another one is, or in a child of the process that
  // started the session.
  void enter(const char* function);
  void leave() noexcept;
  // This process starts the session. Throws Precondition in a child of a process that started one: its threads are not
  // in the child, and whoever waits for them waits for ever.
  void started();

 private:
  std::atomic<pid_t> thread_{0};
  std::atomic<const char*> function_{nullptr};
  std::atomic<pid_t> process_{0};  // 0: not started
};

}  // namespace eng
