// SPDX-License-Identifier: Apache-2.0
// Runs on one rank or on many: the flags, the launch of ranks, and this process as one of them.
#pragma once

#include <functional>
#include <optional>

#include "session/ranks/member.hpp"
#include "tools/engine/command.hpp"

namespace eng {

struct RankFlags {
  std::optional<uint32_t> ranks;
  bool oversubscribe = false;
  uint32_t restarts = 0;
  std::optional<uint32_t> min_ranks;
};
void add_rank_flags(CLI::App& command, RankFlags& flags);
// --restarts and --min-ranks.
void add_restart_flags(CLI::App& command, RankFlags& flags);

// True if a signal asked this process to stop.
bool stop_asked();

// The work of a parent before it starts ranks.
struct Launching {
  std::string verb, target;      // "run", and what it is given
  std::function<Loaded()> load;  // reads the configuration
  // With --restarts: the words after `engine` that resume `run`, after so many seconds. `changes`: overrides.
  std::function<std::vector<std::string>(const std::string& run, const std::vector<std::string>& changes,
                                         double seconds)>
      again = {};
};
// Starts the ranks that --ranks asks for, or does `work` as the rank that this process is. Returns the exit code.
int on_ranks(const Common& common, const RankFlags& flags, const Launching& what,
             const std::function<Exit(Member&)>& work);

}  // namespace eng
