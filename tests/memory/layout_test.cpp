// SPDX-License-Identifier: Apache-2.0
// Waits, layout and verifier on random plans, and the faults that the verifier must see.
#include <catch2/catch.hpp>

#include "core/memory/layout.hpp"
#include "core/plan/waits.hpp"
#include "core/verify/verify.hpp"
#include "tests/plan/synthetic.hpp"

using namespace synthetic;

namespace {

eng::Plan planned(uint64_t seed, size_t queues, size_t actions) {
  Random random(seed);
  eng::Plan plan = make(random, queues, actions);
  eng::place_waits(plan);
  eng::place_buffers(plan);
  return plan;
}

// The layout of one queue that runs the list, under the waits of many: reuse that races.
eng::Plan in_list_order(eng::Plan plan) {
  eng::Plan flat = plan;
  for (auto& program : flat.programs)
    for (auto& segment : program.segments)
      for (auto& action : segment.actions) action.queue = eng::Queue::compute, action.waits.clear();
  eng::place_buffers(flat);
  plan.buffers = flat.buffers;
  plan.arenas = flat.arenas;
  return plan;
}

struct Tally {
  int made = 0, found = 0, missed = 0, harmful = 0;  // harmful: missed, and an execution went wrong
  void add(const eng::Plan& plan, uint64_t seed, int executions) {
    ++made;
    if (!eng::problems(plan).empty()) {
      ++found;
      return;
    }
    ++missed;
    harmful += !agrees(plan, seed, executions);
  }
};

std::string only(const std::vector<std::string>& list) {
  std::string all;
  for (const auto& line : list) all += line + "\n";
  return all;
}

}  // namespace

TEST_CASE("every order that a planned step allows gives what the list gives") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const size_t queues = 1 + seed % 6;
    const eng::Plan plan = planned(seed, queues, 10 + seed % 50);
    INFO("seed " << seed);
    CHECK(only(eng::problems(plan)) == "");
    CHECK(agrees(plan, seed, 20));
  }
}

TEST_CASE("layout in list order races, and both the verifier and the interpreter see it") {
  int raced = 0, wrong = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const eng::Plan plan = in_list_order(planned(seed, 4, 60));
    const bool found = !eng::problems(plan).empty();
    const bool same = agrees(plan, seed, 20);
    INFO("seed " << seed);
    CHECK((found || same));  // what goes wrong was reported
    raced += found, wrong += !same;
  }
  CHECK(raced > 30);
  CHECK(wrong > 20);
}

TEST_CASE("a deleted wait is reported, or it was not needed") {
  Tally tally;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    eng::Plan plan = planned(seed, 2 + seed % 4, 40);
    for (auto& segment : plan.programs[0].segments)
      for (auto& action : segment.actions)
        for (size_t w = 0; w < action.waits.size(); ++w) {
          const auto waits = action.waits;
          action.waits.erase(action.waits.begin() + static_cast<int64_t>(w));
          tally.add(plan, seed, 100);
          action.waits = waits;
        }
  }
  INFO(tally.made << " waits deleted, " << tally.found << " reported, " << tally.harmful << " of the others did harm");
  CHECK(tally.made > 500);
  CHECK(tally.harmful == 0);
  CHECK(tally.found == tally.made);  // place_waits keeps no wait that others imply
}

TEST_CASE("buffers moved onto each other are reported, or nothing reads the difference") {
  Tally tally;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const eng::Plan good = planned(seed, 1 + seed % 3, 30);
    Random random(seed);
    for (int k = 0; k < 40; ++k) {
      eng::Plan plan = good;
      auto& a = plan.buffers[below(random, plan.buffers.size())];
      auto& b = plan.buffers[below(random, plan.buffers.size())];
      switch (k % 3) {
        case 0:
          a.offset = b.offset;
          break;
        case 1:
          std::swap(a.offset, b.offset);
          break;
        default:
          a.offset = below(random, plan.arenas[0].total() / 256) * 256;
          break;
      }
      tally.add(plan, seed, 8);
    }
  }
  INFO(tally.made << " layouts changed, " << tally.found << " reported");
  CHECK(tally.harmful == 0);
  CHECK(tally.found > tally.made / 3);
}

TEST_CASE("the verifier names what is wrong and where") {
  const eng::Plan good = planned(3, 3, 30);
  REQUIRE(eng::problems(good).empty());
  auto faulty = [&](auto change) {
    eng::Plan plan = good;
    change(plan, plan.programs[0].segments[0]);
    return only(eng::problems(plan));
  };
  using Catch::Contains;
  SECTION("a wait for a later action") {
    CHECK_THAT(faulty([](auto&, auto& s) { s.actions[4].waits.push_back(9); }),
               Contains("action 4") && Contains("waits for action 9, which comes later"));
    CHECK_THAT(faulty([](auto&, auto& s) { s.actions[4].waits.push_back(4); }), Contains("comes later"));
  }
  SECTION("a read of what nobody wrote") {
    CHECK_THAT(faulty([](eng::Plan& plan, auto& s) {
                 plan.buffers.push_back({"fresh", eng::Line::activations, 0, 64, plan.arenas[0].total(), false, false});
                 plan.arenas[0].transient += 256;
                 s.actions[5].in.push_back(part(static_cast<eng::Id>(plan.buffers.size()), 0, 4));
               }),
               Contains("action 5") && Contains("reads fresh where it is not written"));
    CHECK_THAT(faulty([](eng::Plan& plan, auto&) {
                 for (auto& b : plan.buffers) b.initial = false;
               }),
               Contains("where it is not written"));
  }
  SECTION("a view that leaves its buffer") {
    CHECK_THAT(faulty([](eng::Plan& plan, auto& s) {
                 eng::View& v = s.actions[2].out[0];
                 v.offset = plan.buffer(v.buffer).bytes - eng::bytes(v.desc) + cell;
               }),
               Contains("action 2") && Contains("reaches outside its buffer"));
  }
  SECTION("a buffer that leaves its arena") {
    CHECK_THAT(faulty([](eng::Plan& plan, auto& s) {
                 plan.buffer(s.actions[2].out[0].buffer).offset = plan.arenas[0].total();
               }),
               Contains("outside its arena"));
  }
  SECTION("scratch that lies on an input") {
    CHECK_THAT(faulty([](eng::Plan& plan, auto& s) {
                 for (auto& a : s.actions)
                   if (a.workspace.buffer && !a.in.empty()) {
                     plan.buffer(a.workspace.buffer).offset = plan.buffer(a.in[0].buffer).offset + a.in[0].offset;
                     return;
                   }
               }),
               Contains("overwrites another buffer that the same action uses"));
  }
  SECTION("a transient on what must stay") {
    CHECK_THAT(faulty([](eng::Plan& plan, auto&) { plan.buffers.back().offset = plan.buffers.front().offset; }),
               Contains("overlaps b1, which keeps its bytes between programs"));
  }
  SECTION("no order between queues") {
    CHECK_THAT(faulty([](auto&, auto& s) {
                 for (auto& a : s.actions) a.waits.clear();
               }),
               Contains("is not ordered against another queue"));
  }
  SECTION("verify throws, and a long list is cut") {
    eng::Plan plan = good;
    for (auto& b : plan.buffers) b.initial = false;
    CHECK_THROWS_WITH(eng::verify(plan), Contains("the plan is not valid"));
    CHECK(eng::problems(plan, 3).size() == 3);
  }
}

namespace {

// Reads `in`, writes `out` (0: nothing).
eng::Action touch(eng::Id in, eng::Id out) {
  eng::Action action;
  if (in) action.in.push_back(part(in, 0, 16));
  if (out) action.out.push_back(part(out, 0, 16));
  return action;
}

// Four transients of one size; `carried` is written in the first segment and read in the last. In the repeated one
// `near` comes before the only use that `carried` has there and `far` behind it.
struct Crossing {
  enum : eng::Id { before = 1, carried, near, far, after };
  eng::Plan plan;
  explicit Crossing(bool use_in_repeated) {
    plan.arenas.push_back({"none", "device", 0, 0, 0});
    plan.labels.push_back({eng::Phase::step, "crossing"});
    plan.calls.push_back({&eng::op(ENG_OP_ADD), {}, {}, {}, 0, 0});
    for (const char* name : {"before", "carried", "near", "far", "after"})
      plan.buffers.push_back({name, eng::Line::activations, 0, 16 * cell, 0, false, false});
    eng::Segment first{"first", 1, {touch(0, before), touch(before, 0), touch(0, carried)}};
    eng::Segment rest{"rest", 3, {touch(0, near), touch(near, 0)}};
    if (use_in_repeated) rest.actions.push_back(touch(carried, carried));
    rest.actions.push_back(touch(0, far)), rest.actions.push_back(touch(far, 0));
    eng::Segment last{"last", 1, {touch(carried, 0), touch(0, after), touch(after, 0)}};
    plan.programs.push_back({"p", {first, rest, last}});
    eng::place_waits(plan);
    eng::place_buffers(plan);
  }
  bool share(eng::Id a, eng::Id b) const { return plan.buffer(a).offset == plan.buffer(b).offset; }
};

}  // namespace

TEST_CASE("a value that crosses segments shares bytes before its first and behind its last use only") {
  for (bool use : {false, true}) {
    const Crossing c(use);
    CHECK(eng::problems(c.plan).empty());
    CHECK(agrees(c.plan, 1, 20));
    CHECK(c.plan.arenas[0].total() == 2 * 16 * cell);
    CHECK(c.share(Crossing::near, Crossing::far));
    for (eng::Id other : {Crossing::near, Crossing::far}) CHECK_FALSE(c.share(Crossing::carried, other));
  }
}

TEST_CASE("the verifier sees what segments do to each other") {
  using Catch::Contains;
  for (bool use : {false, true})
    for (eng::Id other : {Crossing::near, Crossing::far}) {
      Crossing c(use);
      c.plan.buffer(other).offset = c.plan.buffer(Crossing::carried).offset;
      CHECK_THAT(only(eng::problems(c.plan)), Contains("reads carried where it is not written, or where another"));
    }
  for (bool use : {false, true}) {
    Crossing c(use);
    c.plan.programs[0].segments[0].actions.pop_back();  // what should have written it
    CHECK_THAT(only(eng::problems(c.plan)), Contains(use ? "p/rest action 2 " : "p/last action 0 ") &&
                                                Contains("reads carried where it is not written"));
  }
}

TEST_CASE("an action writes nothing of a buffer that it reads, unless its op works in place there") {
  eng::Plan plan;
  plan.arenas.push_back({"none", "device", 0, 0, 0});
  plan.labels.push_back({eng::Phase::step, "in place"});
  const eng::Attrs group{{{"group", 1, 0}}};
  for (const char* op : {ENG_OP_ADD, ENG_OP_ALL_GATHER, ENG_OP_ALL_TO_ALL})
    plan.calls.push_back({&eng::op(op), {}, {}, group, 0, 0});
  plan.buffers.push_back({"kept", eng::Line::activations, 0, 64 * cell, 0, true, true});
  plan.programs.push_back({"p", {{"s", 1, {{}}}}});
  const auto found = [&](uint32_t call, std::vector<eng::View> in, std::vector<eng::View> out) {
    eng::Action& action = plan.programs[0].segments[0].actions[0];
    action.call = call, action.in = std::move(in), action.out = std::move(out);
    eng::place_buffers(plan);
    return only(eng::problems(plan));
  };
  const eng::View a = part(1, 0, 16), b = part(1, 16, 16), both = part(1, 0, 32), between = part(1, 8, 16);
  const auto refused = Catch::Contains("kept is written where the same action also reads or writes it");
  CHECK(found(0, {a, b}, {a}) == "");
  CHECK(found(0, {a, b}, {b}) == "");
  CHECK_THAT(found(0, {a, b}, {between}), refused);
  CHECK_THAT(found(0, {a, between}, {a}), refused);
  CHECK_THAT(found(0, {a, {}, b}, {b}),  // no place of this op's
             refused && Catch::Contains("; in_place of the op must list output 0 and input 2 (eng_op, engine/op.h)"));
  CHECK_THAT(found(0, {a, b}, {a, a}), refused);
  CHECK(found(1, {b}, {both}) == "");
  CHECK_THAT(found(1, {both}, {b}), refused);
  CHECK_THAT(found(2, {a}, {a}), refused);
  CHECK(found(2, {a}, {b}) == "");
}

TEST_CASE("no layout is smaller than what is live, and few are much larger") {
  double ratio = 0, worst = 0;
  int n = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const eng::Plan plan = planned(seed, 1, 60);
    const eng::Arena& arena = plan.arenas[0];
    const uint64_t values = most_live(plan, false), all = most_live(plan, true);
    CHECK(arena.transient >= values);
    CHECK(arena.transient + arena.workspace >= all);
    const double r = static_cast<double>(arena.transient + arena.workspace) / static_cast<double>(all);
    ratio += r, worst = std::max(worst, r), ++n;
  }
  INFO("transients and scratch above the bound: mean " << ratio / n << ", worst " << worst);
  CHECK(ratio / n < 1.1);
  CHECK(worst < 1.5);
  // More queues need more memory, never less.
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const eng::Plan plan = planned(seed, 4, 60);
    CHECK(plan.arenas[0].transient >= most_live(plan, false));
  }
}
