// SPDX-License-Identifier: Apache-2.0
#include "together.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

namespace equality {
namespace {

using namespace eng;

// A rank's contribution to a collective; must be equal on all members.
std::string key_of(const Plan& plan, const Action& action) {
  const Call& call = plan.calls[action.call];
  std::string key = fmt::format("{} in {}", call.op->id, plan.labels[action.label].text());
  for (const auto& list : {call.in, call.out})
    for (const eng_desc& d : list) key += " " + eng::describe(d);
  for (const Attr& a : call.attrs.list) key += fmt::format(" {}={}", a.key, a.i);
  return key;
}

// One rank that runs a program as its queues and waits allow, and stops at collectives that others have not reached.
struct Runner {
  const Plan& plan;
  const Program& program;
  size_t part = 0;  // segments, each repeated twice at most: two show all that differs
  uint32_t repetition = 0;
  std::vector<char> ended;                   // actions of this segment
  std::array<uint32_t, queue_count> next{};  // actions behind the first that has not ended, per queue
  std::array<size_t, queue_count> place{};   // of the collective that a queue is at, in its group's sequence, from 1
  std::map<int64_t, std::vector<std::string>> reached = {};

  const std::vector<Action>* actions() const {
    return part < program.segments.size() ? &program.segments[part].actions : nullptr;
  }
  // The action that a queue is at, if its waits have ended.
  const Action* at(size_t q) {
    const auto& all = *actions();
    while (next[q] < all.size() && static_cast<size_t>(all[next[q]].queue) != q) ++next[q];
    if (next[q] >= all.size()) return nullptr;
    const auto& waits = all[next[q]].waits;
    const auto done = [&](uint32_t w) { return w < ended.size() && ended[w]; };
    return std::all_of(waits.begin(), waits.end(), done) ? &all[next[q]] : nullptr;
  }
  void end(size_t q) { ended[next[q]++] = 1, place[q] = 0; }
  // Into the first segment, or the next if this one is complete.
  bool enter() {
    if (!actions() || !std::all_of(ended.begin(), ended.end(), [](char e) { return e; })) return false;
    if (++repetition >= std::min(program.segments[part].repeat, 2u)) ++part, repetition = 0;
    start();
    return true;
  }
  void start() {
    next = {};
    while (actions() && actions()->empty()) ++part;
    ended.assign(actions() ? actions()->size() : 0, 0);
  }
};

void run(std::span<const Plan> plans, const std::string& name, std::vector<std::string>& found) {
  std::vector<Runner> ranks;
  for (const Plan& plan : plans) ranks.push_back({plan, plan.program(name), 0, 0, {}, {}, {}}), ranks.back().start();
  for (bool progress = true; progress && found.empty();) {
    progress = false;
    for (uint32_t r = 0; r < ranks.size(); ++r) {
      Runner& rank = ranks[r];
      for (size_t q = 0; q < queue_count && rank.actions(); ++q)
        while (const Action* action = rank.at(q)) {
          const Call& call = rank.plan.calls[action->call];
          if (call.op->collective) {
            const int64_t group = call.attrs.i("group");
            const auto& groups = rank.plan.ranks.groups;
            if (group < 1 || static_cast<size_t>(group) > groups.size() ||
                !std::count(groups[group - 1].begin(), groups[group - 1].end(), r))
              return found.push_back(fmt::format("{}: rank {} is no member of group {}", name, r, group));
            auto& own = rank.reached[group];
            if (!rank.place[q]) {
              own.push_back(key_of(rank.plan, *action));
              rank.place[q] = own.size(), progress = true;
            }
            bool all = true;
            for (uint32_t m : groups[group - 1]) {
              auto& theirs = ranks[m].reached[group];
              all = all && theirs.size() >= rank.place[q];
              if (theirs.size() >= rank.place[q] && theirs[rank.place[q] - 1] != own[rank.place[q] - 1])
                return found.push_back(fmt::format("{}, collective {} of group {}: rank {} has {}, rank {} has {}",
                                                   name, rank.place[q], group, r, own[rank.place[q] - 1], m,
                                                   theirs[rank.place[q] - 1]));
            }
            if (!all) break;
          }
          rank.end(q);
          progress = true;
        }
      progress = rank.enter() || progress;
    }
  }
  for (uint32_t r = 0; r < ranks.size() && found.empty(); ++r)
    for (size_t q = 0; q < queue_count && ranks[r].actions(); ++q)
      if (ranks[r].place[q])
        found.push_back(fmt::format("{}: rank {} waits for ever at {}", name, r,
                                    key_of(ranks[r].plan, (*ranks[r].actions())[ranks[r].next[q]])));
}

}  // namespace

std::vector<std::string> disagreements(std::span<const Plan> plans) {
  std::vector<std::string> found;
  for (uint32_t r = 0; r < plans.size(); ++r) {
    const Ranks& ranks = plans[r].ranks;
    if (ranks.world.rank != r || ranks.world.size != plans.size() || ranks.groups != plans[0].ranks.groups)
      found.push_back(fmt::format("plan {} is for rank {} of {}, or has other groups than plan 0", r, ranks.world.rank,
                                  ranks.world.size));
  }
  if (!found.empty()) return found;
  for (const Program& program : plans[0].programs) run(plans, program.name, found);
  return found;
}

}  // namespace equality
