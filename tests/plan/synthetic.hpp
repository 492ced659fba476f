// SPDX-License-Identifier: Apache-2.0
// Random plans that compute nothing, and an interpreter that runs a plan's queues in any order they allow.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "core/plan/plan.hpp"
#include "engine/ops.h"

namespace synthetic {

using Random = std::mt19937_64;
constexpr uint64_t cell = 16;  // bytes that are read and written together

inline uint64_t below(Random& random, uint64_t n) {
  return random() % n;
}
inline bool chance(Random& random, double p) {
  return static_cast<double>(random() % 1000) < p * 1000;
}

inline eng::View part(eng::Id id, uint64_t first, uint64_t n) {
  return {id, first * cell, eng::make_desc(ENG_U8, {static_cast<int64_t>(n * cell)})};
}

// A plan whose reads all find written bytes when its actions run in list order; no waits, no layout.
class Maker {
 public:
  Maker(Random& random, size_t queues, size_t actions, size_t arenas) : random_(random), queues_(queues) {
    plan_.arenas.assign(arenas, {"none", "device", 0, 0, 0});
    plan_.labels.push_back({eng::Phase::step, "synthetic"});
    static const eng::Op any = [] {
      eng::Op op{"test.any/1", 0, 3, nullptr};
      for (uint32_t out : {0u, 1u})
        for (uint32_t in : {0u, 1u, 2u}) op.in_place.push_back({out, in, false});
      return op;
    }();
    plan_.calls.push_back({&any, {}, {}, {}, 0, 0, 0});
    for (uint64_t n = 2 + below(random, 4); n > 0; --n) make_buffer(true, n % 3 != 0);
    plan_.programs.push_back({"random", {}});
    for (uint64_t n = 1 + below(random, 3); n > 0; --n) {
      plan_.programs[0].segments.push_back(
          {"part " + std::to_string(n), 1 + static_cast<uint32_t>(below(random, 3)), {}});
      // Some live on into the next segment.
      std::erase_if(live_, [&](eng::Id) { return chance(random_, 0.6); });
      for (size_t a = 0; a < actions; ++a) make_action();
    }
  }
  eng::Plan take() { return std::move(plan_); }

 private:
  eng::Id make_buffer(bool persistent, bool initial) {
    const uint64_t cells = 1 + below(random_, chance(random_, 0.2) ? 200 : 24);
    const auto id = static_cast<eng::Id>(plan_.buffers.size() + 1);
    plan_.buffers.push_back({"b" + std::to_string(id), eng::Line::activations,
                             static_cast<uint32_t>((id + id / 5) % plan_.arenas.size()), cells * cell, 0, persistent,
                             initial});
    written_[id].assign(cells, initial);
    if (persistent) kept_.push_back(id);
    return id;
  }

  // Some written range, or nothing.
  eng::View read() {
    std::vector<eng::Id> pool = kept_;
    pool.insert(pool.end(), live_.begin(), live_.end());
    const eng::Id id = pool[below(random_, pool.size())];
    const auto& written = written_[id];
    uint64_t first = below(random_, written.size()), n = 0;
    while (first + n < written.size() && written[first + n]) ++n;
    if (n == 0) return {};
    return part(id, first, 1 + below(random_, n));
  }

  // An output may be one of the inputs as it is, and nothing else that the action uses.
  static bool fits(const eng::Action& action, const eng::View& out) {
    const auto end = [](const eng::View& v) { return v.offset + eng::bytes(v.desc); };
    const auto apart = [&](const eng::View& v) {
      return v.buffer != out.buffer || end(v) <= out.offset || end(out) <= v.offset;
    };
    return std::all_of(action.out.begin(), action.out.end(), apart) &&
           std::all_of(action.in.begin(), action.in.end(),
                       [&](const eng::View& v) { return apart(v) || (v.offset == out.offset && end(v) == end(out)); });
  }

  void make_action() {
    eng::Action action;
    action.queue = static_cast<eng::Queue>(below(random_, queues_));
    for (uint64_t n = below(random_, 4); n > 0; --n) {
      eng::View view = read();
      if (view.buffer) action.in.push_back(view);
    }
    for (uint64_t n = 1 + below(random_, 2); n > 0; --n) {
      if (!action.in.empty() && chance(random_, 0.25)) {  // in place
        const eng::View out = action.in[below(random_, action.in.size())];
        if (fits(action, out)) action.out.push_back(out);
        continue;
      }
      eng::Id id = 0;
      if (live_.empty() || chance(random_, 0.5))
        live_.push_back(id = make_buffer(false, false));
      else
        id = chance(random_, 0.3) ? kept_[below(random_, kept_.size())] : live_[below(random_, live_.size())];
      const uint64_t cells = plan_.buffer(id).bytes / cell;
      const bool all = chance(random_, 0.6);
      const uint64_t first = all ? 0 : below(random_, cells);
      const eng::View out = part(id, first, all ? cells : 1 + below(random_, cells - first));
      if (fits(action, out)) action.out.push_back(out);
    }
    for (const eng::View& v : action.out)
      for (uint64_t k = v.offset / cell; k < (v.offset + eng::bytes(v.desc)) / cell; ++k) written_[v.buffer][k] = true;
    if (chance(random_, 0.3)) {
      action.workspace.buffer = make_buffer(false, false);
      plan_.buffer(action.workspace.buffer).line = eng::Line::workspace;
      action.workspace = part(action.workspace.buffer, 0, plan_.buffer(action.workspace.buffer).bytes / cell);
    }
    if (live_.size() > 12) live_.erase(live_.begin() + static_cast<int64_t>(below(random_, live_.size())));
    plan_.programs[0].segments.back().actions.push_back(std::move(action));
  }

  Random& random_;
  size_t queues_;
  eng::Plan plan_;
  std::vector<eng::Id> kept_, live_;
  std::map<eng::Id, std::vector<char>> written_;
};

inline eng::Plan make(Random& random, size_t queues, size_t actions, size_t arenas = 1) {
  return Maker(random, queues, actions, arenas).take();
}

inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
  x ^= x >> 29, x *= 0xbf58476d1ce4e5b9u, x ^= x >> 32;
  return x;
}

// Runs a plan by its addresses. An action is no instant: when it begins it spoils its outputs and its scratch, when it
// ends it has read its inputs twice and writes numbers made of all it saw. Two executions that agree have the same
// trace.
class Interpreter {
 public:
  // `grain`: bytes that are taken for one; every offset and size is a multiple of it.
  Interpreter(const eng::Plan& plan, uint64_t seed, uint64_t grain = cell) : plan_(plan), grain_(grain), random_(seed) {
    uint64_t cells = 0;
    for (const eng::Arena& arena : plan.arenas) begin_.push_back(cells), cells += arena.total() / grain;
    memory_.resize(cells + 1), input_of_.resize(cells + 1);
  }

  // `in_order`: one action after the other, as listed; else any order that queues and waits allow.
  // What every action saw, then what the persistent buffers hold that the plan wrote or got.
  std::vector<uint64_t> run(bool in_order) {
    for (const eng::Program& program : plan_.programs) {
      for (uint64_t& c : memory_) c = random_();  // nobody may depend on this
      for (eng::Id id = 1; id <= plan_.buffers.size(); ++id) {
        const eng::Buffer& b = plan_.buffer(id);
        if (b.persistent && b.initial)
          for (uint64_t k = 0; k < b.bytes / grain_; ++k) memory_[at(b, 0) + k] = mix(id, k);
      }
      std::set<uint64_t> defined;
      for (const eng::Segment& segment : program.segments) {
        for (uint32_t r = 0; r < segment.repeat; ++r) run(segment, in_order);
        for (const eng::Action& a : segment.actions)
          for (const eng::View& v : a.out)
            if (plan_.buffer(v.buffer).persistent) cells(v, [&](uint64_t c) { defined.insert(c); });
      }
      for (uint64_t c : defined) trace_.push_back(memory_[c]);
    }
    return trace_;
  }

 private:
  struct Running {
    uint64_t seen = 0, spoiled = 0;
  };

  uint64_t at(const eng::Buffer& b, uint64_t offset) const { return begin_[b.arena] + (b.offset + offset) / grain_; }
  template <class F>
  void cells(const eng::View& v, F visit) const {
    if (!v.buffer) return;
    const uint64_t first = at(plan_.buffer(v.buffer), v.offset);
    for (uint64_t k = 0; k < eng::bytes(v.desc) / grain_; ++k)
      if (first + k < memory_.size()) visit(first + k);
  }
  uint64_t read(const eng::Action& action) const {
    uint64_t seen = 0;
    for (const eng::View& v : action.in) cells(v, [&](uint64_t c) { seen = mix(seen, memory_[c]); });
    return seen;
  }
  // The cells that an action may fill with anything until it ends.
  template <class F>
  void scratch(const eng::Action& action, F visit) {
    ++mark_;
    for (const eng::View& v : action.in) cells(v, [&](uint64_t c) { input_of_[c] = mark_; });
    for (const eng::View& v : action.out)
      cells(v, [&](uint64_t c) {
        if (input_of_[c] != mark_) visit(c);
      });
    cells(action.workspace, visit);
  }

  void begin(const eng::Action& action, Running& now) {
    now.seen = read(action);
    now.spoiled = random_();
    scratch(action, [&](uint64_t c) { memory_[c] = now.spoiled; });
  }
  uint64_t end(const eng::Action& action, size_t index, const Running& now) {
    uint64_t seen = mix(index, read(action));
    if (read(action) != now.seen) seen = mix(seen, random_());
    bool touched = false;
    scratch(action, [&](uint64_t c) { touched = touched || memory_[c] != now.spoiled; });
    if (touched) seen = mix(seen, random_());
    for (size_t k = 0; k < action.out.size(); ++k) {
      uint64_t e = 0;
      cells(action.out[k], [&](uint64_t c) { memory_[c] = mix(mix(seen, k), e++); });
    }
    return seen;
  }

  void run(const eng::Segment& segment, bool in_order) {
    const size_t n = segment.actions.size();
    std::vector<uint64_t> saw(n);
    std::vector<char> begun(n, 0), ended(n, 0);
    std::vector<Running> running(n);
    std::vector<std::vector<size_t>> queues(in_order ? 1 : eng::queue_count);
    for (size_t a = 0; a < n; ++a) queues[in_order ? 0 : static_cast<size_t>(segment.actions[a].queue)].push_back(a);
    std::vector<size_t> at(queues.size(), 0), ready;
    for (;;) {
      ready.clear();
      for (size_t q = 0; q < queues.size(); ++q) {
        if (at[q] == queues[q].size()) continue;
        const size_t a = queues[q][at[q]];
        const auto& waits = segment.actions[a].waits;
        if (begun[a] || std::all_of(waits.begin(), waits.end(), [&](uint32_t w) { return ended[w]; }))
          ready.push_back(q);
      }
      if (ready.empty()) break;
      const size_t q = ready[below(random_, ready.size())], a = queues[q][at[q]];
      if (!begun[a]) {
        begin(segment.actions[a], running[a]);
        begun[a] = 1;
      } else {
        saw[a] = end(segment.actions[a], a, running[a]);
        ended[a] = 1;
        ++at[q];
      }
    }
    trace_.insert(trace_.end(), saw.begin(), saw.end());
  }

  const eng::Plan& plan_;
  uint64_t grain_;
  Random random_;
  std::vector<uint64_t> begin_;  // of each arena, in memory_
  std::vector<uint64_t> memory_, trace_;
  std::vector<uint32_t> input_of_;  // per piece of memory: the last action that read it, as numbered by mark_
  uint32_t mark_ = 0;
};

// True if `n` random executions all equal the one in list order.
inline bool agrees(const eng::Plan& plan, uint64_t seed, int n, uint64_t grain = cell) {
  const auto expected = Interpreter(plan, seed, grain).run(true);
  for (int k = 0; k < n; ++k)
    if (Interpreter(plan, seed + 1 + static_cast<uint64_t>(k), grain).run(false) != expected) return false;
  return true;
}

// The most bytes of transients that are in use at once when the actions run as listed: no layout can do with less.
inline uint64_t most_live(const eng::Plan& plan, bool workspace) {
  uint64_t most = 0;
  for (const eng::Program& program : plan.programs) {
    std::map<eng::Id, std::pair<size_t, size_t>> uses;
    size_t a = 0;
    for (const eng::Segment& segment : program.segments) {
      const size_t begin = a;
      for (const eng::Action& action : segment.actions) {
        auto use = [&](const eng::View& v) {
          if (v.buffer && !plan.buffer(v.buffer).persistent) uses.try_emplace(v.buffer, a, a).first->second.second = a;
        };
        for (const eng::View& v : action.in) use(v);
        for (const eng::View& v : action.out) use(v);
        if (workspace) use(action.workspace);
        ++a;
      }
      if (segment.repeat == 1) continue;
      for (auto& [id, span] : uses)  // every repetition needs what came from before
        if (span.first < begin && span.second >= begin) span.second = a - 1;
    }
    std::vector<int64_t> change(a + 1, 0);
    for (const auto& [id, span] : uses) {
      const auto size = static_cast<int64_t>((plan.buffer(id).bytes + 255) / 256 * 256);
      change[span.first] += size, change[span.second + 1] -= size;
    }
    int64_t now = 0;
    for (int64_t c : change) most = std::max(most, static_cast<uint64_t>(now += c));
  }
  return most;
}

}  // namespace synthetic
