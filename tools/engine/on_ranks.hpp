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
};
void add_rank_flags(CLI::App& command, RankFlags& flags);

// True if a signal asked this process to stop.
bool stop_asked();

// The work of a parent before it starts ranks.
struct Launching {
  std::string verb, target;      // "run", and what it is given
  std::function<Loaded()> load;  // reads the configuration
};
// Starts the ranks that --ranks asks for, or does `work` as the rank that this process is. Returns the exit code.
int on_ranks(const Common& common, const RankFlags& flags, const Launching& what,
             const std::function<Exit(Member&)>& work);

}  // namespace eng
