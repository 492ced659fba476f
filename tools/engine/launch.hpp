// SPDX-License-Identifier: Apache-2.0
// The parent of ranks: starts them through mpirun, forwards signals, prints their output, and ends with their exit
// code. No process or file of it remains. It never waits for whoever reads its output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "session/ranks/cause.hpp"
#include "tools/engine/own_signals.hpp"

namespace eng {

// The end of a launch.
struct LaunchEnd {
  int exit = 0;                // code of the command
  std::optional<Cause> cause;  // if it failed
  std::string run, newest;     // the run's directory, once the ranks work in it; its newest complete checkpoint, or ""
  std::string in_memory;       // a newer one of which this host has all parts in memory, or ""
  bool asked = false;          // a signal asked it to stop
};

struct Launch {
  std::vector<std::string> arguments;  // of every rank, after `engine`
  std::string command;                 // as the user typed it
  std::string verb = "run";            // of `engine`
  std::string again;                   // what to type after the run's directory to resume: "--ranks 4"
  uint32_t ranks = 2;
  double timeout = 600;  // seconds within which the first rank must connect; afterwards the ranks wait for each other
  std::vector<std::pair<std::string, std::string>> variables = {};  // of the environment of the ranks, set anew
  // The folder for copies in memory of a run; empty: there are none.
  std::function<std::filesystem::path(const std::string& run)> copies = {};
  // The text for stderr after a failure; empty: failure_text.
  std::function<std::string(const LaunchEnd&)> failed = {};
  // Called every few seconds with the run's directory; what it returns is shown.
  std::function<std::string(const std::string& run)> watch = {};
};

// Starts the ranks and waits; returns the exit code of the command. Throws Error if they cannot be started.
int launch(const Launch& what);
// Under signals of the caller, which may launch again.
LaunchEnd launch(const Launch& what, OwnSignals& signals);
// The cause of a failure and how to go on; `more`: a line of help.
std::string failure_text(const Launch& what, const LaunchEnd& end, const std::string& more = "");

}  // namespace eng
