// SPDX-License-Identifier: Apache-2.0
#include "session/ranks/cause.hpp"

#include <fmt/format.h>

#include <csignal>
#include <cstring>
#include <regex>
#include <set>

#include "core/base/error.hpp"

namespace eng {
namespace {

// "rank 1", "ranks 0, 2"
std::string list(const std::set<uint32_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string last_words(const RankStory& story) {
  return story.last.empty() ? "" : "\n  its last line: " + story.last;
}

// Finds what mpirun reported: "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed)."
std::optional<Cause> killed(const std::map<uint32_t, RankStory>& ranks, const std::string& mpirun, bool oom) {
  static const std::regex said(
      R"(process\s+rank\s+(\d+)\s+with\s+PID\s+\d+\s+on\s+node\s+(\S+)\s+exited\s+on\s+signal\s+(\d+))");
  std::smatch found;
  if (!std::regex_search(mpirun, found, said)) return std::nullopt;
  const auto rank = static_cast<uint32_t>(std::stoul(found[1]));
  const int signal = std::stoi(found[3]);
  const auto story = ranks.find(rank);
  const RankStory known = story == ranks.end() ? RankStory{} : story->second;
  if (known.error) return std::nullopt;  // it had failed before the signal
  const char* abbreviation = sigabbrev_np(signal);
  Cause out{static_cast<int>(Exit::communication), "", ""};
  out.text = fmt::format("rank {} (process {} on {}) was killed by signal {} (SIG{})", rank, known.pid, found[2].str(),
                         signal, abbreviation ? abbreviation : "?") +
             last_words(known);
  out.lost = rank, out.signal = signal;
  if (signal == SIGKILL && oom) {
    out.exit = static_cast<int>(Exit::host_memory);
    out.help = "the system killed it because memory ran out: see engine plan for what the ranks need together";
  }
  return out;
}

}  // namespace

Cause cause_of(const std::map<uint32_t, RankStory>& ranks, uint32_t count, const std::string& mpirun, int status,
               bool oom) {
  // A rank's own failure is the cause of the failures that others noticed.
  const RankStory* first = nullptr;
  const auto communication = static_cast<int>(Exit::communication);
  const auto earlier = [&](const RankStory& a) { return !first || a.when < first->when; };
  for (const auto& [rank, story] : ranks)
    if (story.error && story.error != communication && earlier(story)) first = &story;
  if (!first)
    if (auto cause = killed(ranks, mpirun, oom)) return *cause;
  if (!first)
    for (const auto& [rank, story] : ranks)
      if (story.error && earlier(story)) first = &story;
  if (first) {
    std::set<uint32_t> same;
    for (const auto& [rank, story] : ranks)
      if (story.error == first->error && story.text == first->text) same.insert(rank);
    // An error of all ranks is reported without a rank.
    Cause out{first->error, same.size() == count ? first->text : list(same) + ": " + first->text, first->help};
    if (first->error != communication) out.error = first->text;
    return out;
  }
  std::set<uint32_t> absent;
  for (uint32_t rank = 0; rank < count; ++rank)
    if (!ranks.count(rank) || !ranks.at(rank).end) absent.insert(rank);
  if (ranks.empty())
    return {static_cast<int>(Exit::environment), fmt::format("mpirun started no rank (it ended with {})", status),
            mpirun.empty() ? "" : "it said:\n" + mpirun};
  if (absent.empty())
    return {static_cast<int>(Exit::bug), fmt::format("mpirun ended with {} after all ranks ended normally", status),
            mpirun};
  if (status > 128 && mpirun.empty())
    return {communication, fmt::format("mpirun was killed by signal {}, and the ranks with it", status - 128), ""};
  const RankStory known = ranks.count(*absent.begin()) ? ranks.at(*absent.begin()) : RankStory{};
  return {
      communication,
      fmt::format("{} ended without an error message (mpirun ended with {})", list(absent), status) + last_words(known),
      mpirun};
}

}  // namespace eng
