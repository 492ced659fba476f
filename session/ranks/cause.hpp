// SPDX-License-Identifier: Apache-2.0
// Of many ranks that ended badly: which one began it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace eng {

// The ranks' own story, as far as it is known.
struct RankStory {
  pid_t pid = 0;
  bool connected = false, gone = false;  // its line to the parent was there; has closed
  std::optional<int> end;                // it ended in good order, with this
  int error = 0;                         // or failed with this
  double when = 0;                       // of the error, seconds since the start
  std::string text, help, last;          // the error; the last line it wrote
};
// What a failed launch comes down to.
struct Cause {
  int exit = 1;
  std::string text, help;
};
// `mpirun`: what it said, and `status` what it ended with, as shells show it. `oom`: the system killed for memory.
Cause cause_of(const std::map<uint32_t, RankStory>& ranks, uint32_t count, const std::string& mpirun, int status,
               bool oom);

}  // namespace eng
