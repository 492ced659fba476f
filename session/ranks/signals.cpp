// SPDX-License-Identifier: Apache-2.0
#include "session/ranks/signals.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace eng {
namespace {

constexpr int kHandled[Signals::count] = {SIGINT, SIGTERM, SIGUSR1, SIGXCPU, SIGHUP, SIGPIPE, SIGXFSZ};

// A closed terminal or pipe must not stop a run. A file above its size limit is a write error, reported like a full
// disk.
bool ignored(int signal) {
  return signal == SIGHUP || signal == SIGPIPE || signal == SIGXFSZ;
}

std::atomic<int> g_first{0};
std::atomic<int> g_urgent{0};  // SIGINT and SIGTERM seen
std::atomic<bool> g_patient{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler may touch lock-free atomics only");

extern "C" void on_signal(int signal) {
  const int saved = errno;
  const bool urgent = signal == SIGINT || (signal == SIGTERM && !g_patient);
  if (urgent && g_urgent.fetch_add(1) > 0) _exit(128 + signal);
  int none = 0;
  g_first.compare_exchange_strong(none, signal);
  errno = saved;
}

}  // namespace

Signals::Signals(bool patient) {
  g_first = 0;
  g_urgent = 0;
  g_patient = patient;
  for (int i = 0; i < count; ++i) {
    struct sigaction action {};
    action.sa_handler = ignored(kHandled[i]) ? SIG_IGN : on_signal;
    action.sa_flags = SA_RESTART;  // the flag is polled, so reads and writes need not fail
    sigemptyset(&action.sa_mask);
    sigaction(kHandled[i], &action, &before_[i]);
  }
}

Signals::~Signals() {
  // The second SIGTERM of one request may arrive when the process is about to exit.
  if (g_patient && g_first)
    for (int i = 0; i < count; ++i)
      if (kHandled[i] == SIGTERM) before_[i].sa_handler = SIG_IGN;
  for (int i = 0; i < count; ++i) sigaction(kHandled[i], &before_[i], nullptr);
}

int Signals::pending() {
  return g_first.load(std::memory_order_relaxed);
}

std::string Signals::name(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGXCPU:
      return "SIGXCPU (the limit of processor time)";
    default:
      return "signal " + std::to_string(signal);
  }
}

}  // namespace eng
