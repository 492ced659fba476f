// SPDX-License-Identifier: Apache-2.0
#include "session/planning/live.hpp"

#include <algorithm>

#include "core/memory/layout.hpp"

namespace eng {
namespace {

std::vector<const Action*> actions_of(const Program& program) {
  std::vector<const Action*> actions;
  for (const Segment& segment : program.segments)
    for (const Action& action : segment.actions) actions.push_back(&action);
  return actions;
}

// First and last use of a transient buffer.
struct Lifetime {
  Id buffer = 0;  // 0: it has none
  size_t first = 0, last = 0;
};

// In the order of the buffers, with those that are not used.
std::vector<Lifetime> uses_of(const Plan& plan, const std::vector<const Action*>& actions) {
  std::vector<Lifetime> uses(plan.buffers.size());
  for (size_t a = 0; a < actions.size(); ++a) {
    const auto use = [&](const View& v) {
      if (!v.buffer || plan.buffer(v.buffer).persistent) return;
      Lifetime& use = uses[v.buffer - 1];
      use = {v.buffer, use.buffer ? use.first : a, a};
    };
    for (const View& v : actions[a]->in) use(v);
    for (const View& v : actions[a]->out) use(v);
    use(actions[a]->workspace);
  }
  return uses;
}

uint64_t rounded(uint64_t bytes, uint64_t to) {
  return (bytes + to - 1) / to * to;
}

// Bytes in use at each action, of the buffers for which `wanted` is true; each is rounded up to a multiple of `to`.
template <class Wanted>
std::vector<uint64_t> live_bytes(const Plan& plan, const std::vector<Lifetime>& uses, size_t actions, Wanted wanted,
                                 uint64_t to = 1) {
  std::vector<uint64_t> come(actions + 1, 0), gone(actions + 1, 0), live;
  for (const auto& [id, first, last] : uses) {
    if (!id || !wanted(plan.buffer(id))) continue;
    const uint64_t bytes = rounded(plan.buffer(id).bytes, to);
    come[first] += bytes, gone[last + 1] += bytes;
  }
  uint64_t now = 0;
  for (size_t a = 0; a < actions; ++a) live.push_back(now = now + come[a] - gone[a]);
  return live;
}

}  // namespace

Fullest fullest(const Plan& plan) {
  Fullest peak;
  for (const Program& program : plan.programs) {
    const auto actions = actions_of(program);
    const auto uses = uses_of(plan, actions);
    const auto live = live_bytes(plan, uses, actions.size(), [](const Buffer&) { return true; });
    auto top = std::max_element(live.begin(), live.end());
    if (top == live.end() || *top <= peak.bytes) continue;
    const size_t at = static_cast<size_t>(top - live.begin());
    peak = {*top, &program, actions[at]->label, {}};
    for (const auto& [id, first, last] : uses)
      if (id && first <= at && at <= last) peak.live.push_back(id);
  }
  std::stable_sort(peak.live.begin(), peak.live.end(),
                   [&](Id a, Id b) { return plan.buffer(a).bytes > plan.buffer(b).bytes; });
  return peak;
}

uint64_t most_live(const Plan& plan, Line line, std::optional<uint32_t> arena) {
  const auto actions = actions_of(plan.program("train"));
  const auto live = live_bytes(plan, uses_of(plan, actions), actions.size(),
                               [&](const Buffer& b) { return b.line == line && (!arena || b.arena == *arena); });
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

std::vector<uint64_t> live_in(const Plan& plan, const std::string& segment) {
  const Program& train = plan.program("train");
  const auto actions = actions_of(train);
  const auto uses = uses_of(plan, actions);
  std::vector<uint64_t> most(plan.arenas.size(), 0);
  size_t from = 0;
  for (const Segment& s : train.segments) {
    const size_t to = from + s.actions.size();
    for (uint32_t a = 0; a < most.size() && s.name == segment; ++a) {
      const auto live = live_bytes(
          plan, uses, actions.size(), [a](const Buffer& b) { return b.arena == a; }, alignment);
      for (size_t k = from; k < to; ++k) most[a] = std::max(most[a], live[k]);
    }
    from = to;
  }
  return most;
}

void bound_arenas(Plan& plan) {
  for (uint32_t a = 0; a < plan.arenas.size(); ++a) {
    Arena& arena = plan.arenas[a];
    arena.persistent = arena.transient = arena.workspace = 0;
    for (const Buffer& b : plan.buffers)
      if (b.persistent && b.arena == a) arena.persistent += rounded(b.bytes, 4096);
    for (const Program& program : plan.programs) {
      const auto actions = actions_of(program);
      const auto live = live_bytes(
          plan, uses_of(plan, actions), actions.size(), [a](const Buffer& b) { return b.arena == a; }, alignment);
      if (!live.empty()) arena.transient = std::max(arena.transient, *std::max_element(live.begin(), live.end()));
    }
  }
}

}  // namespace eng
