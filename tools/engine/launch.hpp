// SPDX-License-Identifier: Apache-2.0
// The parent of ranks: starts them through mpirun, forwards signals, prints their output, and ends with their exit
// code. No process or file of it remains. It never waits for whoever reads its output.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace eng {

struct Launch {
  std::vector<std::string> arguments;  // of every rank, after `engine`
  std::string command;                 // as the user typed it
  std::string verb = "run";            // of `engine`
  std::string again;                   // what to type after the run's directory to resume: "--ranks 4"
  uint32_t ranks = 2;
  double timeout = 600;  // seconds within which the first rank must connect; afterwards the ranks wait for each other
};

// Starts the ranks and waits; returns the exit code of the command. Throws Error if they cannot be started.
int launch(const Launch& what);

}  // namespace eng
