// SPDX-License-Identifier: Apache-2.0
#include "session/report/outlet.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "session/file.hpp"
#include "session/report/progress.hpp"

namespace eng {
namespace {

// One write. A pipe takes that many bytes together, so lines of several processes do not mix.
constexpr size_t at_once = 4096;

// Returns the bytes that were written. 0: the descriptor failed, and the rest is of no use.
size_t write_some(int fd, std::string_view text) {
  for (;;) {
    const ssize_t n = ::write(fd, text.data(), std::min(text.size(), at_once));
    if (n > 0) return static_cast<size_t>(n);
    if (n < 0 && errno == EAGAIN) {  // another process that shares the open file made it non-blocking
      pollfd ready = {fd, POLLOUT, 0};
      if (::poll(&ready, 1, -1) >= 0 || errno == EINTR) continue;
    }
    if (n == 0 || errno != EINTR) return 0;
  }
}

}  // namespace

struct Outlet::State {
  State(int target, std::string called) : fd(::fcntl(target, F_DUPFD_CLOEXEC, 3)), name(std::move(called)) {}
  bool idle() const { return waiting.empty() && taken.empty() && !lost_bytes; }
  void start(const std::shared_ptr<State>& self);
  void work();

  const Fd fd;  // -1: there is nothing to write to
  const std::string name;
  std::mutex mutex;
  std::condition_variable work_came, moved;
  std::string waiting, taken;  // taken: what the thread is writing; both keep their memory
  size_t written = 0;          // of `taken`
  uint64_t steps = 0;          // counts writes
  uint64_t lost_bytes = 0, lost_lines = 0;
  bool quit = false, running = false, gave_up = false;
  std::thread thread;
};

// Under the lock. The thread starts with the first text: who forks before that, forks a process of one thread.
void Outlet::State::start(const std::shared_ptr<State>& self) {
  if (running) return;
  running = true;
  sigset_t all, before;  // signals are for the other threads
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread = std::thread([self] { self->work(); });
  } catch (const std::system_error&) {  // no thread can be made: the text is lost
    running = false;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Outlet::State::work() {
  std::unique_lock lock(mutex);
  for (;;) {
    work_came.wait(lock, [this] { return quit || !waiting.empty() || lost_bytes; });
    if (waiting.empty() && !lost_bytes) return;
    if (waiting.empty()) {
      waiting = fmt::format("note: {} lines ({}) were dropped here, because nobody read {}\n", lost_lines,
                            size_text(lost_bytes), name);
      lost_bytes = lost_lines = 0;
    }
    waiting.swap(taken);
    for (written = 0; written < taken.size();) {
      const std::string_view rest = std::string_view(taken).substr(written);
      lock.unlock();
      const size_t n = write_some(fd, rest);
      lock.lock();
      written = n ? written + n : taken.size();
      ++steps;
      if (written == taken.size()) taken.clear(), written = 0;
      moved.notify_all();
    }
  }
}

Outlet::Outlet(int fd, std::string name) : state_(std::make_shared<State>(fd, std::move(name))) {}

Outlet::~Outlet() {
  const bool over = drain(state_->gave_up ? 0 : patience);
  std::thread thread;
  {
    const std::lock_guard lock(state_->mutex);
    state_->quit = true;
    thread.swap(state_->thread);
  }
  state_->work_came.notify_all();
  if (!thread.joinable()) return;
  if (over)
    thread.join();
  else
    thread.detach();
}

void Outlet::put(std::string_view text) noexcept try {
  State& s = *state_;
  if (text.empty() || s.fd < 0) return;
  {
    const std::lock_guard lock(s.mutex);
    s.start(state_);
    if (!s.running) return;
    if (s.lost_bytes || s.waiting.size() + s.taken.size() - s.written + text.size() > most) {
      s.lost_bytes += text.size();
      s.lost_lines += static_cast<uint64_t>(std::max<ptrdiff_t>(1, std::count(text.begin(), text.end(), '\n')));
    } else {
      s.waiting.append(text);
    }
  }
  s.work_came.notify_one();
} catch (...) {  // out of memory: the text is lost
}

bool Outlet::drain(double seconds, const std::function<bool()>& stop) {
  using Clock = std::chrono::steady_clock;
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  auto since = Clock::now();
  for (uint64_t steps = s.steps; !s.idle();) {
    s.moved.wait_for(lock, std::chrono::milliseconds(20));
    if (s.steps != steps) steps = s.steps, since = Clock::now();
    if (std::chrono::duration<double>(Clock::now() - since).count() > seconds) {
      s.gave_up = true;
      return s.idle();
    }
    if (!stop) continue;
    lock.unlock();
    const bool over = stop();
    lock.lock();
    if (!over) continue;
    s.gave_up = true;
    return s.idle();
  }
  return true;
}

}  // namespace eng
