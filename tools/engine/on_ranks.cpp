// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/on_ranks.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/error.hpp"
#include "session/checkpoint/memory_copies.hpp"
#include "session/ranks/room.hpp"
#include "session/ranks/signals.hpp"
#include "session/report/pace.hpp"
#include "tools/engine/restarts.hpp"

namespace eng {
namespace {

// The words of the user without these flags, which have a value.
std::vector<std::string> without(const std::vector<std::string>& words, const std::vector<std::string>& flags) {
  std::vector<std::string> out;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto is = [&](const std::string& flag) { return words[i] == flag || words[i].starts_with(flag + "="); };
    const auto found = std::find_if(flags.begin(), flags.end(), is);
    if (found == flags.end()) {
      if (words[i] != "--oversubscribe") out.push_back(words[i]);
    } else if (words[i] == *found) {
      ++i;
    }
  }
  return out;
}

// `config`: for the ranks of the start.
RestartPolicy restart_policy(const RankFlags& flags, const Config& config) {
  const Section& train = config.section("train");
  RestartPolicy out{flags.restarts, *flags.ranks, flags.min_ranks.value_or(1)};
  out.micro = train.integer("micro_batch");
  out.same = ranks_per_sample(config);
  out.batch = out.micro * train.integer("accumulate") * int64_t{out.ranks / out.same};
  check_restarts(out);
  return out;
}

int launch_with_restarts(const Launch& what, const RestartPolicy& policy, const Launching& to, bool accumulates) {
  // The data are read in the order of the whole batch, so a step of fewer ranks takes the same sequences.
  std::vector<std::string> batch = {fmt::format("train.global_batch={}", policy.batch)};
  if (accumulates) batch.insert(batch.end(), {"--unset", "train.accumulate"});
  const auto words = [&](const std::string& run, bool reshaped, double seconds) {
    const std::vector<std::string> changes = reshaped ? batch : std::vector<std::string>();
    if (!run.empty()) return to.again(run, changes, seconds);
    std::vector<std::string> out = what.arguments;
    out.insert(out.end(), changes.begin(), changes.end());
    return out;
  };
  return launch_again(what, {policy, words});
}

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
  const bool accumulates = config.section("train").given("accumulate");
  share_batch(config, *flags.ranks);
  std::optional<RestartPolicy> policy;
  if (flags.restarts) policy = restart_policy(flags, config);
  build_data(config, *registry, model_vocabulary(config, *registry), true);
  Launch what;
  what.command = common.command;
  what.ranks = *flags.ranks;
  what.timeout = config.section("comm").number("timeout");
  what.verb = to.verb;
  if (config.section("checkpoint").integer("memory_every"))
    what.copies = [memory = std::filesystem::path(config.section("checkpoint").string("memory_path"))](
                      const std::string& run) { return copies_folder(memory, run, pace_of(run).attempt); };
  what.again = fmt::format("--ranks {}{}", what.ranks, flags.oversubscribe ? " --oversubscribe" : "");
  what.arguments = without(common.arguments, {"--ranks", "--restarts", "--min-ranks"});
  if (!flags.restarts) return launch(what);
  what.again += fmt::format(" --restarts {}", flags.restarts);
  if (flags.min_ranks) what.again += fmt::format(" --min-ranks {}", *flags.min_ranks);
  return launch_with_restarts(what, *policy, to, accumulates);
}

}  // namespace

void add_rank_flags(CLI::App& command, RankFlags& flags) {
  command.add_option("--ranks", flags.ranks, "number of ranks to start on this machine through mpirun")
      ->check(CLI::Range(1, 65536));
  command.add_flag("--oversubscribe", flags.oversubscribe,
                   "with --ranks: start them even if this machine has no room for so many");
}

void add_restart_flags(CLI::App& command, RankFlags& flags) {
  command
      .add_option("--restarts", flags.restarts,
                  "with --ranks: after a failure start again from the last checkpoint, at most so many times")
      ->check(CLI::Range(0, 1000000));
  command.add_option("--min-ranks", flags.min_ranks,
                     "with --restarts: after ranks were lost start again with at least so many; by default with those "
                     "that are left; as many as --ranks: always with all");
}

bool stop_asked() {
  return Signals::pending() != 0;
}

int on_ranks(const Common& common, const RankFlags& flags, const Launching& what,
             const std::function<Exit(Member&)>& work) {
  const auto variable = [](const char* name) -> const char* { return std::getenv(name); };
  if (flags.min_ranks && !flags.restarts)
    throw Error(Exit::usage, "--min-ranks is for --restarts, which is not given", "add --restarts N, or remove it");
  if (flags.restarts && (!flags.ranks || *flags.ranks < 2))
    throw Error(Exit::usage, "--restarts starts ranks again that --ranks started, and there are none",
                "add --ranks N with N above 1; other launchers have restarts of their own: docs/ranks.md");
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
    if (!member->many() && !member->has_parent() && !flags.ranks)
      check_alone(variable, command_words(common.arguments));
    const Exit exit = work(*member);
    return member->leave(exit);
  } catch (...) {
    if (!member || !member->told()) throw;
    member->failed(std::current_exception());
    // Skips destructors and exit handlers, in which this rank could wait for the others.
    std::fflush(nullptr);
    ::_exit(failure(std::current_exception()).exit);
  }
}

}  // namespace eng
