// SPDX-License-Identifier: Apache-2.0
// Asking a run to stop: the first signal sets a flag, the second leaves at once.
#pragma once

#include <signal.h>

#include <string>

namespace eng {

// While one of these lives: SIGINT, SIGTERM or SIGUSR1 sets the flag that pending() reads; a second SIGINT or
// SIGTERM (of either kind) ends the process with 130 or 143 and saves nothing; SIGHUP, SIGPIPE and SIGXFSZ are
// ignored. The destructor puts back what was there. At most one at a time. `patient`: SIGTERM may come as often as it
// likes, as under Slurm, which sends it twice for one request and SIGKILL when its patience ends; once asked to stop,
// the process stays deaf to it.
class Signals {
 public:
  explicit Signals(bool patient = false);
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  // The first signal that asked to stop, 0 if none. Any thread, any time; one atomic read.
  static int pending();
  static std::string name(int signal);

  static constexpr int count = 6;  // of the signals it takes

 private:
  struct sigaction before_[count] = {};
};

}  // namespace eng
