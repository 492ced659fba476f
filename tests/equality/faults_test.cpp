// SPDX-License-Identifier: Apache-2.0
// Tests of the equality of random plans itself: faults in plans and kernels, and every wait that is left out.
#include <catch2/catch.hpp>

#include <algorithm>
#include <iostream>

#include "core/verify/verify.hpp"
#include "draw.hpp"
#include "plant.hpp"

using namespace equality;

namespace {

// Visits each wait of program "train" as (segment, action, number of the wait).
template <class F>
void each_wait(const eng::Plan& plan, F visit) {
  const auto& segments = plan.program("train").segments;
  for (size_t s = 0; s < segments.size(); ++s)
    for (uint32_t a = 0; a < segments[s].actions.size(); ++a)
      for (size_t w = 0; w < segments[s].actions[a].waits.size(); ++w) visit(s, a, w);
}

eng::Segment& segment(eng::Plan& plan, size_t s) {
  for (eng::Program& program : plan.programs)
    if (program.name == "train") return program.segments[s];
  throw std::logic_error("no program train");
}

struct Deleted {
  int all = 0, found = 0, harmless = 0, tried = 0, shown = 0;
};

// Deletes each wait on its own. What the verifier accepts is run against the missing order; of what it
// refuses, every `every`-th one, to see that the run would show it.
Deleted delete_waits(const Group& group, const Draw& draw, uint64_t seed, int every, int orders) {
  Planned planned = plan(group, draw);
  const Result expected = train(group, planned, {seed});
  REQUIRE(expected.complaint == "");
  Deleted sum;
  planned.live_limit = 0;  // some waits only keep to it; here they are not needed
  each_wait(eng::Plan(planned.plans[0]), [&](size_t s, uint32_t a, size_t w) {
    // The other ranks' updates may have more or fewer actions: there, where it is the same wait.
    const auto before = planned.plans;
    const eng::Action action = segment(planned.plans[0], s).actions[a];
    const uint32_t awaited = action.waits[w];
    for (eng::Plan& plan : planned.plans) {
      auto& actions = segment(plan, s).actions;
      if (a < actions.size() && actions[a].call == action.call && actions[a].waits == action.waits)
        actions[a].waits.erase(actions[a].waits.begin() + static_cast<int64_t>(w));
    }
    ++sum.all;
    // A rank with an observer's actions that others lack may lose another wait there.
    const bool found = std::any_of(planned.plans.begin(), planned.plans.end(),
                                   [](const eng::Plan& plan) { return !eng::problems(plan, 1).empty(); });
    sum.found += found;
    const auto differs = [&](int tries) {
      for (int k = 0; k < tries; ++k) {
        const Result result = train(group, planned,
                                    {seed + 1000 * static_cast<uint64_t>(sum.all) + static_cast<uint64_t>(k),
                                     k % 2 == 1, Schedule::Reversed{"train", s, a, awaited}});
        const std::string what = difference(expected, result);
        if (!what.empty()) return what;
      }
      return std::string();
    };
    INFO(describe(group) << "; " << describe(draw) << ": segment " << s << ", action " << a << " without wait for "
                         << awaited);
    if (!found) {
      const std::string what = differs(orders);
      CHECK(what == "");
      sum.harmless += what.empty();
    } else if (sum.found % every == 0) {
      ++sum.tried;
      sum.shown += !differs(3).empty();
    }
    planned.plans = before;
  });
  std::cout << describe(group) << "; " << describe(draw) << ": of " << sum.all << " waits the verifier asks for "
            << sum.found << ", " << sum.harmless << " others are not needed; of " << sum.tried << " it asks for, "
            << sum.shown << " change numbers when left out\n";
  return sum;
}

}  // namespace

TEST_CASE("the verifier asks for every wait that matters") {
  const Deleted a = delete_waits({"llama", 2, 2, false}, {"zero3", 98304, 1, true, 0}, 1, 8, 4);
  CHECK(a.all > 30);
  CHECK(a.found + a.harmless == a.all);
  CHECK(a.found > a.all * 3 / 4);
  CHECK(a.shown > a.tried / 2);
}

TEST_CASE("the verifier asks for every wait that matters where an update runs beside a forward or backward",
          "[.slow]") {
  for (const char* when : {"update_late = true\n", "update_early = true\nearly_share = 0.6\n"})
    for (const char* strategy : {"zero1", "zero2", "zero3"}) {
      Draw beside{strategy, 98304, 1, true, 0};
      beside.offload = std::string("optimizer = 'host'\ngradients = 'host'\n") + when;
      const Deleted a = delete_waits({"llama", 2, 2, false}, beside, 1, 8, 4);
      CHECK(a.all > 20);
      CHECK(a.found + a.harmless == a.all);
      CHECK(a.found > a.all * 3 / 4);
      CHECK(a.shown > a.tried / 2);
    }
}

TEST_CASE("the verifier asks for every wait that matters in many plans", "[.slow]") {
  Random random(77);
  int all = 0, found = 0;
  for (int k = 0; k < 20; ++k) {
    Group group = draw_group(random);
    group.world = std::max(group.world, 2u);
    Draw draw = equality::draw(random, group);
    draw.overlap = true;
    const Deleted d = delete_waits(group, draw, 100 + static_cast<uint64_t>(k), 16, 6);
    CHECK(d.found + d.harmless == d.all);
    all += d.all, found += d.found;
  }
  std::cout << all << " waits deleted, " << found << " reported\n";
  CHECK(all > 350);
}

TEST_CASE("planted faults are seen") {
  const Group group{"llama", 4, 2, false};
  const Draw flat{"zero3", 131072, 1, true, 0}, nested{"two_level", 131072, 1, true, 0};
  const Planned one = plan(group, flat), two = plan(group, nested);
  const Result tree = train(group, one, {1});
  REQUIRE(difference(tree, train(group, two, {2})) == "");
  SECTION("one piece is reduced twice") {
    for (const char* strategy : {"none", "zero1", "zero2", "zero3", "two_level"}) {
      Planned faulty = plan(group, {strategy, 131072, 1, true, 0});
      for (eng::Plan& plan : faulty.plans) {
        REQUIRE(reduce_twice(plan));
        CHECK(eng::problems(plan).empty());  // it is in order, and wrong
      }
      CHECK_THAT(difference(tree, train(group, faulty, {3})), Catch::StartsWith("norms, element 0: "));
    }
  }
  SECTION("ranks are summed from left to right") {
    Fault fault;
    fault.left_to_right = true;
    const Result flat_sum = train(group, one, {4}, fault), nested_sum = train(group, two, {5}, fault);
    CHECK(difference(tree, flat_sum) != "");
    CHECK(difference(flat_sum, nested_sum) != "");  // which no group of groups could repeat
    CHECK(difference(flat_sum, train(group, one, {6}, fault)) == "");
  }
  SECTION("a rank that learns otherwise") {
    Planned faulty = one;
    faulty.table[0][0] *= 1.0000001f;
    CHECK_THAT(difference(tree, train(group, faulty, {7})), Catch::Contains("element"));
  }
}

TEST_CASE("another group is another result") {
  const auto result = [](const Group& g) { return train(g, plan(g, {}), {1}); };
  const Result first = result({"llama", 4, 2, false});
  CHECK(difference(first, result({"llama", 4, 2, true})) != "");  // one reduction per step: another order of sums
  CHECK(difference(first, result({"llama", 4, 3, false})) != "");
  CHECK(difference(first, result({"llama-tied", 4, 2, false})) != "");
}
