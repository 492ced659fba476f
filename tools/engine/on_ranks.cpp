// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/on_ranks.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "core/base/error.hpp"
#include "session/ranks/room.hpp"
#include "session/ranks/signals.hpp"
#include "tools/engine/launch.hpp"

namespace eng {
namespace {

// The ranks do the work. This does only what each rank would otherwise print, or what would keep all but one waiting.
int launch_ranks(const Common& common, const RankFlags& flags, const Launching& to) {
  // Every rank reads it separately, and a pipe can be read only once.
  const std::filesystem::file_type type = std::filesystem::status(to.target).type();
  if (to.target.starts_with("/dev/") || type == std::filesystem::file_type::fifo)
    throw Error(Exit::usage, "with --ranks the configuration cannot come from a pipe: each rank reads it",
                "write it to a file");
  if (!flags.oversubscribe) check_room(*flags.ranks, room_here());
  auto [registry, config] = to.load();
  config.require("data");
  refuse_described(config);
  share_batch(config, *flags.ranks);
  build_data(config, *registry, model_vocabulary(config, *registry), true);
  Launch what;
  what.command = common.command;
  what.ranks = *flags.ranks;
  what.timeout = config.section("comm").number("timeout");
  what.verb = to.verb;
  what.again = fmt::format("--ranks {}{}", what.ranks, flags.oversubscribe ? " --oversubscribe" : "");
  for (size_t i = 0; i < common.arguments.size(); ++i) {
    const std::string& word = common.arguments[i];
    if (word == "--ranks")
      ++i;
    else if (word.rfind("--ranks=", 0) != 0 && word != "--oversubscribe")
      what.arguments.push_back(word);
  }
  return launch(what);
}

}  // namespace

void add_rank_flags(CLI::App& command, RankFlags& flags) {
  command.add_option("--ranks", flags.ranks, "number of ranks to start on this machine through mpirun")
      ->check(CLI::Range(1, 65536));
  command.add_flag("--oversubscribe", flags.oversubscribe,
                   "with --ranks: start them even if this machine has no room for so many");
}

bool stop_asked() {
  return Signals::pending() != 0;
}

int on_ranks(const Common& common, const RankFlags& flags, const Launching& what,
             const std::function<Exit(Member&)>& work) {
  const auto variable = [](const char* name) -> const char* { return std::getenv(name); };
  if (flags.ranks) {
    const Announced announced = Announced::read(variable);
    if (announced.size > 1 || announced.by == "mpirun")
      throw Error(Exit::usage,
                  fmt::format("--ranks starts ranks, but this process is already a rank (rank {} of {}, started by {})",
                              announced.rank, announced.size, announced.by),
                  "remove --ranks, or start the command without the launcher");
    if (*flags.ranks > 1) return launch_ranks(common, flags, what);
  }
  const Signals signals(std::getenv("SLURM_STEP_NUM_TASKS") != nullptr);
  std::optional<Member> member;
  try {
    member.emplace(MemberStart{common.command, common.arguments, [](const Failure& why) { print(why); }});
    if (!member->many() && !flags.ranks) check_alone(variable, command_words(common.arguments));
    const Exit exit = work(*member);
    return member->leave(exit);
  } catch (...) {
    if (!member || !member->many()) throw;
    member->failed(std::current_exception());
    // Skips destructors and exit handlers, in which this rank could wait for the others.
    std::fflush(nullptr);
    ::_exit(failure(std::current_exception()).exit);
  }
}

}  // namespace eng
