// SPDX-License-Identifier: Apache-2.0
// Every wait of a plan is needed, and somebody sees when it is missing: the verifier, and the results, when what was to
// be waited for is held back until the one that should have waited has run.
#include <catch2/catch.hpp>

#include <algorithm>
#include <iostream>

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

// Earlier actions that are no longer ordered before a later one with which they share bytes that one of them writes;
// first of them the one that is no longer waited for.
std::vector<uint32_t> left_open(const eng::Plan& plan, const eng::Segment& full, const eng::Segment& without,
                                uint32_t awaited) {
  const eng::Order before = eng::order_of(full), after = eng::order_of(without);
  const auto ordered = [&](const eng::Order& order, uint32_t x, uint32_t y) {
    return order.before[y][static_cast<size_t>(full.actions[x].queue)] > order.position[x];
  };
  const auto share = [&](const eng::View& v, const eng::View& w) {
    if (!v.buffer || !w.buffer || plan.buffer(v.buffer).arena != plan.buffer(w.buffer).arena) return false;
    const uint64_t x = plan.buffer(v.buffer).offset + v.offset, y = plan.buffer(w.buffer).offset + w.offset;
    return x < y + eng::bytes(w.desc) && y < x + eng::bytes(v.desc);
  };
  const auto uses = [](const eng::Action& action, bool writes) {
    std::vector<eng::View> views = action.out;
    views.push_back(action.workspace);
    if (!writes) views.insert(views.end(), action.in.begin(), action.in.end());
    return views;
  };
  const auto clash = [&](const eng::Action& x, const eng::Action& y) {
    for (const bool first : {true, false})
      for (const eng::View& v : uses(x, first))
        for (const eng::View& w : uses(y, !first))
          if (share(v, w)) return true;
    return false;
  };
  std::vector<uint32_t> out = {awaited};
  for (uint32_t y = 0; y < full.actions.size(); ++y)
    for (uint32_t x = 0; x < y; ++x)
      if (x != awaited && full.actions[x].queue != full.actions[y].queue && ordered(before, x, y) &&
          !ordered(after, x, y) && clash(full.actions[x], full.actions[y]) && !std::count(out.begin(), out.end(), x))
        out.push_back(x);
  return out;
}

struct Seen {
  int all = 0, refused = 0, harmless = 0, changed = 0;
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
        // On a busy machine it may only seem that nothing more can run.
        bool changed = false;
        for (on.patience = 15; !changed && on.patience < (refused ? 1000 : 100); on.patience *= 8)
          for (uint32_t source : left_open(plan, segments[s], segment(without, s), awaited)) {
            on.held = number_of(plan, "train", s, source);
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
        ++seen.all, seen.refused += refused, seen.changed += changed;
        if (refused) {
          CHECK(changed);
        } else {
          // No bytes depend on it: it only bounds how many leases are there at a time.
          const auto& after = segments[s].actions[a].after;
          CHECK(std::count(after.begin(), after.end(), awaited) == 1);
          CHECK(left_open(plan, segments[s], segment(without, s), awaited).size() == 1);
          CHECK(!changed);
          ++seen.harmless;
        }
      }
  std::cout << describe(model, on) << ": of " << seen.all << " waits the verifier asks for " << seen.refused << ", "
            << seen.changed << " change the results when left out, " << seen.harmless
            << " bound memory that is not used "
            << "again\n";
  CHECK(seen.all == seen.refused + seen.harmless);
  return seen;
}

}  // namespace

TEST_CASE("each wait that is left out is seen, on one rank") {
  CHECK(without_each_wait({"llama", 1, 3}, "none").refused >= 4);
}

TEST_CASE("each wait that is left out is seen, on two ranks") {
  CHECK(without_each_wait({"llama", 2, 2}, "zero3").refused > 20);
}

TEST_CASE("each wait that is left out is seen, everywhere", "[.slow]") {
  for (const char* model : {"llama", "opt", "mamba"})
    for (const char* strategy : {"none", "zero1", "zero2", "zero3"}) without_each_wait({model, 2, 2}, strategy);
}
