// SPDX-License-Identifier: Apache-2.0
#include "session/embed/owner.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace eng {
namespace {

std::atomic<pid_t> first{0};  // the process that started a session first; a child inherits it

Precondition forked(pid_t from, const char* what) {
  return Precondition(
      fmt::format(
          "process {} was forked from process {} after that had started {}, whose threads and device are not here",
          ::getpid(), from, what),
      "fork before the start, or start the child as a new program: multiprocessing.get_context(\"spawn\")");
}

}  // namespace

void Owner::enter(const char* function) {
  if (const pid_t by = process_; by && by != ::getpid()) throw forked(by, "this session");
  const auto me = static_cast<pid_t>(::syscall(SYS_gettid));
  pid_t other = 0;
  if (!thread_.compare_exchange_strong(other, me, std::memory_order_acquire)) {
    const char* inside = function_.load(std::memory_order_relaxed);
    const std::string who = other == me ? "this thread" : fmt::format("thread {}", other);
    throw Precondition(
        fmt::format("`{}` of a session that is in use: {} is inside `{}`", function, who, inside ? inside : "it"),
        other == me ? "a callback that it calls may only ask it to stop"
                    : "one thread at a time uses a session: hold a lock around its calls, or open a session for each");
  }
  function_.store(function, std::memory_order_relaxed);
}

void Owner::leave() noexcept {
  function_.store(nullptr, std::memory_order_relaxed);
  thread_.store(0, std::memory_order_release);
}

void Owner::started() {
  const pid_t me = ::getpid();
  pid_t other = 0;
  if (!first.compare_exchange_strong(other, me) && other != me) throw forked(other, "a session");
  process_ = me;
}

}  // namespace eng
