// SPDX-License-Identifier: Apache-2.0
// What a plugin could change in the process behind everybody's back: compared and put back.
#pragma once

#include <csignal>
#include <cstdint>
#include <string>

namespace eng {

// Takes a snapshot of the floating-point control word, the locale and four signal handlers.
class ProcessGuard {
 public:
  ProcessGuard();
  // Restores what differs and says what that was: "" or "it set flush-to-zero ...; it changed the locale ...".
  std::string restore();

 private:
  static constexpr int signals_[4] = {SIGSEGV, SIGBUS, SIGFPE, SIGPIPE};
  uint64_t float_control_;
  std::string locale_;
  struct sigaction handlers_[4];
};

}  // namespace eng
