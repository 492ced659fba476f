// SPDX-License-Identifier: Apache-2.0
// Finds the rank that failed first.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace eng {

// The known facts about the end of one rank.
struct RankStory {
  pid_t pid = 0;
  bool connected = false, gone = false;  // its connection to the parent was made; was closed
  std::optional<int> end;                // exit code, if it ended normally
  int error = 0;                         // exit code, if it failed
  double when = 0;                       // of the error, seconds since the start
  std::string text, help, last;          // the error; the last line it wrote
};
// The cause of a failed launch.
struct Cause {
  int exit = 1;
  std::string text, help;
  std::optional<uint32_t> lost = {};  // the rank whose process was killed or crashed
  int signal = 0;                     // that ended it
  std::string error = {};             // what a rank said of its own failure, without its number
};
// `mpirun`: its output. `status`: its exit status as in a shell. `oom`: the system killed a process for memory.
Cause cause_of(const std::map<uint32_t, RankStory>& ranks, uint32_t count, const std::string& mpirun, int status,
               bool oom);

}  // namespace eng
