// SPDX-License-Identifier: Apache-2.0
// Every wait of a plan is needed, and somebody sees when it is missing: the verifier, and the results, when what was to
// be waited for is held back until the one that should have waited has run.
#include <catch2/catch.hpp>

#include <algorithm>
#include <iostream>
#include <map>

#include "core/base/error.hpp"
#include "core/plan/waits.hpp"
#include "core/verify/verify.hpp"
#include "engine/ops.h"
#include "train.hpp"

using namespace devices;

namespace {

eng::Segment& segment(eng::Plan& plan, size_t s) {
  for (eng::Program& program : plan.programs)
    if (program.name == "train") return program.segments[s];
  throw std::logic_error("no program train");
}

bool differs(const Model& model, const On& on, const Result& expected, const std::function<void(eng::Plan&)>& change) {
  try {
    return difference(expected, Training(model, on, change).run()) != "";
  } catch (const eng::Error&) {  // such as a token that the vocabulary does not have
    return true;
  }
}

struct Bytes {
  uint32_t arena;
  uint64_t begin, end;
};

// Earlier actions that are no longer ordered before a later one, although one of them writes bytes that the other uses.
// What a collective writes in the place of its own input stays as it is.
std::vector<uint32_t> left_open(const eng::Plan& plan, const eng::Segment& full, const eng::Segment& without) {
  const eng::Order before = eng::order_of(full), after = eng::order_of(without);
  const auto ordered = [&](const eng::Order& order, uint32_t x, uint32_t y) {
    return order.before[y][static_cast<size_t>(full.actions[x].queue)] > order.position[x];
  };
  const auto bytes_of = [&](const eng::View& v) {
    const eng::Buffer& b = plan.buffer(v.buffer);
    return Bytes{b.arena, b.offset + v.offset, b.offset + v.offset + eng::bytes(v.desc)};
  };
  const auto writes = [&](const eng::Action& action) {
    std::vector<Bytes> out;
    if (action.workspace.buffer) out.push_back(bytes_of(action.workspace));
    for (const eng::View& v : action.out) {
      const Bytes all = bytes_of(v);
      const bool collective = plan.calls[action.call].op->collective;
      const Bytes in = collective ? bytes_of(action.in[0]) : Bytes{UINT32_MAX, 0, 0};
      if (in.arena != all.arena || in.begin >= all.end || all.begin >= in.end) {
        out.push_back(all);
        continue;
      }
      if (all.begin < in.begin) out.push_back({all.arena, all.begin, in.begin});
      if (in.end < all.end) out.push_back({all.arena, in.end, all.end});
    }
    return out;
  };
  const auto uses = [&](const eng::Action& action) {
    std::vector<Bytes> out = writes(action);
    for (const eng::View& v : action.in)
      if (v.buffer) out.push_back(bytes_of(v));
    return out;
  };
  const auto share = [](const std::vector<Bytes>& a, const std::vector<Bytes>& b) {
    for (const Bytes& x : a)
      for (const Bytes& y : b)
        if (x.arena == y.arena && x.begin < y.end && y.begin < x.end) return true;
    return false;
  };
  std::vector<uint32_t> out;
  for (uint32_t y = 0; y < full.actions.size(); ++y)
    for (uint32_t x = 0; x < y; ++x) {
      const eng::Action &one = full.actions[x], &other = full.actions[y];
      if (one.queue != other.queue && ordered(before, x, y) && !ordered(after, x, y) &&
          !std::count(out.begin(), out.end(), x) &&
          (share(writes(one), uses(other)) || share(uses(one), writes(other))))
        out.push_back(x);
    }
  return out;
}

struct Seen {
  int all = 0, needed = 0, changed = 0;
};

Seen without_each_wait(const Model& model, const std::string& strategy) {
  On on;
  on.device = "far", on.strategy = strategy, on.graphs = false;
  on.on_queues = true;  // else the host, which waits for collectives, does what a missing wait should have done
  Training reference(model, on);
  const eng::Plan plan = reference.plan();
  const Result expected = reference.run();
  Seen seen;
  const auto& segments = plan.program("train").segments;
  for (size_t s = 0; s < segments.size(); ++s)
    for (size_t a = 0; a < segments[s].actions.size(); ++a)
      for (size_t w = 0; w < segments[s].actions[a].waits.size(); ++w) {
        const uint32_t awaited = segments[s].actions[a].waits[w];
        eng::Plan without = plan;
        auto& waits = segment(without, s).actions[a].waits;
        waits.erase(waits.begin() + static_cast<int64_t>(w));
        const bool refused = !eng::problems(without, 1).empty();
        // Held back is whoever shares bytes with an action that now may run before it: mostly the one that is no longer
        // waited for, or one before it on its queue. If there is none, nothing can change.
        auto open = left_open(plan, segments[s], segment(without, s));
        const bool needed = !open.empty();
        CHECK((refused || !needed));
        if (!needed) open = {awaited};
        // On a busy machine it may only seem that nothing more can run.
        bool changed = false;
        for (on.patience = 15; !changed && on.patience < (needed ? 1000 : 100); on.patience *= 8)
          for (uint32_t source : open) {
            on.held = number_of(plan, "train", s, source), on.late = number_of(plan, "train", s, a);
            changed =
                changed || differs(model, on, expected, [&](eng::Plan& p) { segment(p, s).actions[a].waits = waits; });
          }
        const auto name = [&](size_t k) {
          const eng::Action& action = segments[s].actions[k];
          return std::string(plan.calls[action.call].op->id) + " in " + plan.labels[action.block].text() +
                 ", writing " + plan.buffer(action.out[0].buffer).name;
        };
        INFO(describe(model, on) << ": " << segments[s].name << " action " << a << " (" << name(a)
                                 << ") without its wait for " << awaited << " (" << name(awaited) << ")");
        ++seen.all, seen.needed += needed, seen.changed += changed;
        CHECK(changed == needed);
        // It bounds how many leases are there at a time, or what comes with it lies beside the bytes that are read.
        const auto& after = segments[s].actions[a].after;
        if (!needed) CHECK((std::count(after.begin(), after.end(), awaited) == 1 || refused));
      }
  std::cout << describe(model, on) << ": of " << seen.all << " waits " << seen.needed << " order bytes, "
            << seen.changed << " change the results when left out\n";
  return seen;
}

}  // namespace

TEST_CASE("each wait that is left out is seen, on one rank") {
  CHECK(without_each_wait({"llama", 1, 3}, "none").needed >= 4);
}

TEST_CASE("each wait that is left out is seen, on two ranks", "[.slow]") {
  CHECK(without_each_wait({"llama", 2, 2}, "zero3").needed > 20);
}

TEST_CASE("each wait that is left out is seen, everywhere", "[.slow]") {
  for (const char* model : {"llama", "opt", "mamba"})
    for (const char* strategy : {"none", "zero1", "zero2", "zero3"}) without_each_wait({model, 2, 2}, strategy);
}

TEST_CASE("each wait that is left out is seen by the verifier, with states in host memory and in storage") {
  std::map<eng::Queue, int> by_queue;  // waits that order bytes, of those who wait and of those that are awaited
  for (const char* offload :
       {"optimizer = 'host'\nactivations = 'host'\n", "optimizer = 'host'\nupdate = 'device'\n",
        "optimizer = 'host'\ngradients = 'host'\nparameters = 'host'\n",
        "optimizer = 'drawer'\ngradients = 'drawer'\nparameters = 'drawer'\nactivations = 'drawer'\n"})
    for (const uint32_t ranks : {1u, 2u}) {
      On on;
      on.device = "far", on.strategy = ranks == 1 ? "none" : "zero3", on.on_queues = true, on.offload = offload;
      const eng::Plan plan = Training({"llama", ranks, 2}, on).plan();
      int needed = 0, all = 0;
      const auto& segments = plan.program("train").segments;
      for (size_t s = 0; s < segments.size(); ++s)
        for (size_t a = 0; a < segments[s].actions.size(); ++a)
          for (size_t w = 0; w < segments[s].actions[a].waits.size(); ++w) {
            eng::Plan without = plan;
            auto& waits = segment(without, s).actions[a].waits;
            waits.erase(waits.begin() + static_cast<int64_t>(w));
            ++all;
            if (left_open(plan, segments[s], segment(without, s)).empty()) continue;
            ++needed;
            const uint32_t awaited = segments[s].actions[a].waits[w];
            ++by_queue[segments[s].actions[a].queue], ++by_queue[segments[s].actions[awaited].queue];
            INFO(offload << ranks << " ranks, " << segments[s].name << " action " << a);
            CHECK_FALSE(eng::problems(without, 1).empty());
          }
      CHECK(needed > 20);
      CHECK(2 * needed > all);
    }
  using eng::Queue;
  for (const Queue queue : {Queue::compute, Queue::h2d, Queue::d2h, Queue::host, Queue::read, Queue::write})
    CHECK(by_queue[queue] > 10);
}
