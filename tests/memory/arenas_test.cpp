// SPDX-License-Identifier: Apache-2.0
// Plans whose values are in several arenas.
#include <catch2/catch.hpp>

#include "core/memory/layout.hpp"
#include "core/plan/waits.hpp"
#include "core/verify/verify.hpp"
#include "tests/plan/synthetic.hpp"

using namespace synthetic;
using Catch::Contains;

namespace {

// Reads `in`, writes `out` (0: nothing).
eng::Action use(eng::Id in, eng::Id out, eng::Queue queue = eng::Queue::compute) {
  eng::Action action;
  action.queue = queue;
  if (in) action.in.push_back(part(in, 0, 16));
  if (out) action.out.push_back(part(out, 0, 16));
  return action;
}

// Two values go from the device to the host and back, one after the other; the copies run beside the computation.
struct Trips {
  enum : eng::Id { kept = 1, first, away, second, away_too, host_kept };
  static constexpr uint64_t size = 16 * cell;
  eng::Plan plan;
  Trips() {
    plan.arenas.push_back({"none", "device", 0, 0, 0});
    plan.arenas.push_back({"none", "host", 0, 0, 0});
    plan.labels.push_back({eng::Phase::step, "trips"});
    plan.calls.push_back({&eng::op(ENG_OP_ADD), {}, {}, {}, 0, 0});
    const auto add = [&](const char* name, uint32_t arena, bool persistent = false) {
      plan.buffers.push_back({name, eng::Line::activations, arena, size, 0, persistent, persistent});
    };
    add("kept", 0, true), add("first", 0), add("away", 1), add("second", 0), add("away too", 1);
    add("host kept", 1, true);
    const auto out = eng::Queue::d2h, in = eng::Queue::h2d;
    eng::Segment s{"s", 1, {}};
    s.actions = {use(kept, first),       use(first, away, out),      use(away, first, in), use(first, kept),
                 use(host_kept, second), use(second, away_too, out), use(away_too, 0),     use(second, kept)};
    plan.programs.push_back({"p", {s}});
    eng::place_waits(plan);
    eng::place_buffers(plan);
  }
  std::string problems() const {
    std::string all;
    for (const auto& line : eng::problems(plan)) all += line + "\n";
    return all;
  }
};

}  // namespace

TEST_CASE("each arena is laid out by itself, and what is out of use there makes room there") {
  const Trips t;
  CHECK(t.problems() == "");
  CHECK(agrees(t.plan, 1, 50));
  for (const eng::Arena& arena : t.plan.arenas) {
    CHECK(arena.persistent == 4096);
    CHECK(arena.transient == Trips::size);
    CHECK(arena.workspace == 0);
  }
  for (eng::Id id : {Trips::first, Trips::away, Trips::second, Trips::away_too})
    CHECK(t.plan.buffer(id).offset == 4096);
}

TEST_CASE("scratch counts in its own arena") {
  Trips t;
  t.plan.buffers.push_back({"scratch", eng::Line::workspace, 1, 3 * Trips::size, 0, false, false});
  t.plan.programs[0].segments[0].actions[4].workspace = part(static_cast<eng::Id>(t.plan.buffers.size()), 0, 48);
  eng::place_waits(t.plan);
  eng::place_buffers(t.plan);
  CHECK(t.problems() == "");
  CHECK(t.plan.arenas[0].workspace == 0);
  CHECK(t.plan.arenas[1].workspace == 2 * Trips::size);
}

TEST_CASE("the verifier checks every arena") {
  const auto faulty = [](auto change) {
    Trips t;
    change(t.plan);
    return t.problems();
  };
  CHECK_THAT(faulty([](eng::Plan& plan) { plan.buffer(Trips::away).offset = plan.arenas[1].total(); }),
             Contains("away lies outside its arena 1"));
  CHECK_THAT(faulty([](eng::Plan& plan) { plan.buffer(Trips::away).offset = 0; }),
             Contains("away overlaps host kept, which keeps its bytes between programs"));
  CHECK_THAT(faulty([](eng::Plan& plan) { plan.buffer(Trips::host_kept).initial = false; }),
             Contains("reads host kept where it is not written"));
  CHECK_THAT(faulty([](eng::Plan& plan) {
               for (eng::Action& a : plan.programs[0].segments[0].actions) a.waits.clear();
             }),
             Contains("of away is not ordered against another queue"));
  CHECK_THAT(faulty([](eng::Plan& plan) { plan.buffer(Trips::second).arena = 2; }),
             Contains("second is in arena 2, but the plan has 2"));
}

TEST_CASE("every order that a step over several arenas allows gives what the list gives, and a lost wait is seen") {
  int deleted = 0, found = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Random random(seed);
    eng::Plan plan = make(random, 1 + seed % 6, 10 + seed % 40, 2 + seed % 2);
    eng::place_waits(plan);
    eng::place_buffers(plan);
    INFO("seed " << seed);
    CHECK(eng::problems(plan).empty());
    CHECK(agrees(plan, seed, 20));
    uint64_t all = 0;
    for (const eng::Arena& arena : plan.arenas) all += arena.transient + arena.workspace;
    CHECK(all >= most_live(plan, true));
    for (auto& segment : plan.programs[0].segments)
      for (auto& action : segment.actions)
        if (!action.waits.empty()) {
          const auto waits = std::exchange(action.waits, {});
          ++deleted, found += !eng::problems(plan).empty();
          action.waits = waits;
        }
  }
  CHECK(deleted > 200);
  CHECK(found == deleted);
}
