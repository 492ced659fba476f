// SPDX-License-Identifier: Apache-2.0
// The command above its ranks: starts them through mpirun, passes signals on, shows what they say, and ends as they
// ended. Nothing of it survives it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
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

// Starts them and waits; returns the exit code of the command. Throws Error where they cannot be started.
int launch(const Launch& what);

}  // namespace eng
