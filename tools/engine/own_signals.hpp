// SPDX-License-Identifier: Apache-2.0
// The signals of the command that starts ranks.
#pragma once

#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "session/file.hpp"

namespace eng {

// Blocks the signals that are read from a descriptor, and ignores those that say that nobody reads. Throws
// Error(Exit::environment).
class OwnSignals {
 public:
  OwnSignals() {
    sigset_t mine;
    sigemptyset(&mine);
    for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&mine, number);
    ::sigprocmask(SIG_BLOCK, &mine, &before_);
    for (const int number : {SIGPIPE, SIGHUP, SIGXFSZ}) ::signal(number, SIG_IGN);
    fd_ = Fd(::signalfd(-1, &mine, SFD_CLOEXEC | SFD_NONBLOCK));
    if (fd_ >= 0) return;
    const int error = errno;
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    throw Error(Exit::environment, fmt::format("cannot make a signalfd: {}", std::strerror(error)));
  }
  ~OwnSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  OwnSignals(const OwnSignals&) = delete;
  OwnSignals& operator=(const OwnSignals&) = delete;
  int fd() const { return fd_; }
  const sigset_t& before() const { return before_; }
  // The next signal that asks to stop, 0 if none has come. Does not wait.
  int next() const {
    signalfd_siginfo info{};
    while (::read(fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info)))
      if (info.ssi_signo != SIGCHLD) return static_cast<int>(info.ssi_signo);
    return 0;
  }

 private:
  sigset_t before_{};
  Fd fd_;
};

}  // namespace eng
