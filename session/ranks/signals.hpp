// SPDX-License-Identifier: Apache-2.0
// Asks a run to stop: the first signal sets a flag, the second exits at once.
#pragma once

#include <signal.h>

#include <string>

namespace eng {

// While one of these lives: SIGINT, SIGTERM, SIGUSR1 or SIGXCPU sets the flag that pending() reads; a second SIGINT or
// SIGTERM (of either kind) ends the process with 130 or 143 and saves nothing; SIGHUP, SIGPIPE and SIGXFSZ are
// ignored. The destructor restores the previous handlers. At most one at a time. `patient`: after the first signal,
// further SIGTERMs are ignored. Slurm needs this: it sends SIGTERM twice for one request, and SIGKILL after a delay.
class Signals {
 public:
  explicit Signals(bool patient = false);
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  // The first signal that asked to stop, 0 if none. Any thread, any time; one atomic read.
  static int pending();
  static std::string name(int signal);

  static constexpr int count = 7;  // of the signals it takes

 private:
  struct sigaction before_[count] = {};
};

}  // namespace eng
