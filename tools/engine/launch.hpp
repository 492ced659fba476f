// SPDX-License-Identifier: Apache-2.0
// The command above its ranks: starts them through mpirun, passes signals on, shows what they say, and ends as they
// ended. Nothing of it survives it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace eng {

struct Launch {
  std::vector<std::string> arguments;  // of every rank, behind `engine`
  std::string command;                 // as the user typed it
  std::string again;                   // what to type to go on, without the run: "--ranks 4"
  uint32_t ranks = 2;
  double timeout = 600;  // seconds in which a rank must have come; then they wait for each other by themselves
};

// Open MPI's mpirun on PATH, whatever it is called there. Throws Error(Exit::environment) naming the package.
std::filesystem::path find_mpirun();

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

// Starts them and waits; returns the exit code of the command. Throws Error where they cannot be started.
int launch(const Launch& what);

}  // namespace eng
