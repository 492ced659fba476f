// SPDX-License-Identifier: Apache-2.0
// Every wait of a plan is needed, and somebody sees when it is missing: the verifier, and the results, when what was to
// be waited for is held back until the one that should have waited has run.
#include <catch2/catch.hpp>

#include <algorithm>
#include <iostream>
#include <map>

#include "core/base/error.hpp"
#include "core/verify/verify.hpp"
#include "engine/ops.h"
#include "waits.hpp"

using namespace devices;

namespace {

bool differs(const Model& model, const On& on, const Result& expected, const Change& change) {
  try {
    return difference(expected, Training(model, on, change).run()) != "";
  } catch (const eng::Error&) {  // such as a token that the vocabulary does not have
    return true;
  }
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
        eng::Plan without = without_wait(plan, s, a, w);
        const auto& waits = segment(without, s).actions[a].waits;
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
          return std::string(plan.calls[action.call].op->id) + " in " + plan.labels[action.label].text() +
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

TEST_CASE("each wait that is left out is seen by the verifier, with states in host memory and in storage", "[.slow]") {
  std::map<eng::Queue, int> by_queue;  // waits that order bytes, of those who wait and of those that are awaited
  for (const char* offload :
       {"optimizer = 'host'\nactivations = 'host'\n", "optimizer = 'host'\nupdate = 'device'\n",
        "optimizer = 'host'\ngradients = 'host'\nparameters = 'host'\n", "optimizer = 'host'\nupdate_late = true\n",
        "optimizer = 'host'\nupdate_early = true\nearly_share = 1.0\n",
        "optimizer = 'drawer'\nupdate_early = true\nearly_share = 0.5\nupdate_late = true\n",
        "optimizer = 'host'\nupdate = 'both'\nhost_share = 0.5\nparameters = 'host'\nupdate_late = true\n",
        "optimizer = 'host'\nupdate = 'both'\nhost_share = 0.5\nupdate_early = true\nearly_share = 0.5\nupdate_late = "
        "true\n",
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
            eng::Plan without = without_wait(plan, s, a, w);
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
