// SPDX-License-Identifier: Apache-2.0
// Small plans made by hand: what the fleet computes, and the faults that it and the verifier see.
#include <catch2/catch.hpp>

#include <numeric>

#include "core/memory/layout.hpp"
#include "core/plan/emitter.hpp"
#include "core/plan/waits.hpp"
#include "core/verify/verify.hpp"
#include "engine/ops.h"
#include "plugins.hpp"
#include "together.hpp"

using namespace equality;
using Catch::Contains;

namespace {

constexpr int64_t n = 64;  // f32 elements of a part

eng_desc flat(int64_t count) {
  return eng::make_desc(ENG_F32, {count});
}

// One rank of a step that sums a vector over all ranks and adds the sum to a state, twice, then broadcasts the state of
// the last rank. What collects runs on a queue of its own.
struct Step {
  eng::Plan plan;
  eng::View state, given, from_last, all;
  Step(uint32_t rank, uint32_t size) {
    plan.ranks = eng::Ranks({rank, size, rank, size});
    plan.arenas.push_back({"reference", "device", 0, 0, 0});
    eng::Emitter emit(plan, {});
    const auto collect = [&](const char* op, const eng::View& in, const eng::View& out, int64_t root = 0) {
      emit.action(eng::op(op), {in}, {out}, {{{"group", 1, 0}, {"members", size, 0}, {"root", root, 0}}});
      plan.programs.back().segments.back().actions.back().queue = eng::Queue::comm;
    };
    given = emit.persistent("given", eng::Line::weights, flat(n * size), true);
    state = emit.persistent("state", eng::Line::weights, flat(n * size), true);
    from_last = emit.persistent("from last", eng::Line::weights, flat(n * size), false);
    emit.begin_program("step");
    emit.begin_segment("sum", 2);
    emit.label(eng::Phase::step, "sum");
    const auto temp = [&](int64_t count) { return emit.transient("temp", eng::Line::activations, flat(count)); };
    const eng::View fresh = temp(n * size), rows = temp(n * size), sum = temp(n), whole = temp(n * size);
    emit.action(eng::op(ENG_OP_ADD), {given, state}, {fresh});
    collect(ENG_OP_ALL_TO_ALL, fresh, rows);
    emit.action(eng::op(ENG_OP_FOLD), {rows}, {sum}, {{{"rows", size, 0}}});
    collect(ENG_OP_ALL_GATHER, sum, whole);
    emit.action(eng::op(ENG_OP_ADD), {state, whole}, {state});
    emit.begin_segment("last", 1);
    emit.label(eng::Phase::step, "last");
    collect(ENG_OP_BROADCAST, state, from_last, size - 1);
    emit.action(eng::op(ENG_OP_ADD), {given, given}, {given});
    finish();
  }
  void finish() {
    eng::place_waits(plan);
    eng::place_buffers(plan);
  }
};

struct Steps {
  explicit Steps(uint32_t size) {
    for (uint32_t r = 0; r < size; ++r) {
      Step step(r, size);
      state = step.state, given = step.given, from_last = step.from_last;
      plans.push_back(std::move(step.plan));
    }
  }
  std::vector<eng::Action>& actions(uint32_t rank, size_t segment = 0) {
    return plans[rank].programs[0].segments[segment].actions;
  }
  std::vector<eng::Plan> plans;
  eng::View state, given, from_last;
};

float start(uint32_t rank, int64_t e) {
  return 0.37f * static_cast<float>(e) + 1.1f * static_cast<float>(rank);
}

void fill(Fleet& fleet, const Steps& steps) {
  for (uint32_t r = 0; r < steps.plans.size(); ++r) {
    std::vector<float> given(static_cast<size_t>(eng::count(steps.given.desc))), state(given.size());
    for (size_t e = 0; e < given.size(); ++e) given[e] = start(r, static_cast<int64_t>(e));
    fleet.upload(r, steps.given, given.data());
    fleet.upload(r, steps.state, state.data());
  }
}

// The states of all ranks after the step; none if it did not come to its end.
std::vector<float> outcome(const Steps& steps, const Schedule& schedule, std::string* complaint = nullptr) {
  Fleet fleet(steps.plans, reference());
  fill(fleet, steps);
  const bool complete = fleet.run("step", schedule);
  if (complaint && !complete) *complaint = fleet.complaint();
  std::vector<float> all;
  for (size_t r = 0; r < steps.plans.size() && complete; ++r)
    for (float x : fleet.download<float>(r, steps.state)) all.push_back(x);
  return all;
}

}  // namespace

TEST_CASE("a fleet of ranks computes what the step says, in any order") {
  for (uint32_t size = 1; size <= 4; ++size) {
    const Steps steps(size);
    for (const eng::Plan& plan : steps.plans) CHECK(eng::problems(plan).empty());
    CHECK(disagreements(steps.plans).empty());
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      Fleet fleet(steps.plans, reference());
      fill(fleet, steps);
      fleet.run("step", {seed, seed % 2 == 0});
      INFO("size " << size << ", seed " << seed);
      REQUIRE(fleet.complaint() == "");
      std::vector<float> expected;
      for (int64_t e = 0; e < n * size; ++e) {
        float state = 0;
        for (int round = 0; round < 2; ++round) {
          std::vector<float> level(size);
          for (uint32_t r = 0; r < size; ++r) level[r] = start(r, e) + state;
          const float low = size > 1 ? level[0] + level[1] : level[0];
          state += size < 3 ? low : low + (size > 3 ? level[2] + level[3] : level[2]);
        }
        expected.push_back(state);
      }
      for (uint32_t r = 0; r < size; ++r) {
        CHECK(fleet.download<float>(r, steps.state) == expected);
        CHECK(fleet.download<float>(r, steps.from_last) == expected);
      }
      const uint64_t part = n * sizeof(float);
      CHECK(fleet.sent(0) == (size - 1) * part * 4);  // each repetition scatters and gathers
    }
  }
}

TEST_CASE("a wait that is missing shows in some order, and the verifier names it") {
  int needed = 0;
  const std::vector<float> expected = outcome(Steps(3), {});
  REQUIRE(!expected.empty());
  for (size_t a = 0; a < Steps(3).actions(0).size(); ++a)
    for (size_t w = 0; w < Steps(3).actions(0)[a].waits.size(); ++w) {
      Steps steps(3);
      const uint32_t awaited = steps.actions(0)[a].waits[w];
      for (uint32_t r = 0; r < 3; ++r)
        steps.actions(r)[a].waits.erase(steps.actions(r)[a].waits.begin() + static_cast<int64_t>(w));
      INFO("action " << a << " no longer waits for " << awaited);
      CHECK(!eng::problems(steps.plans[0]).empty());
      int wrong = 0;
      for (uint64_t seed = 1; seed <= 10; ++seed)
        wrong +=
            outcome(steps, {seed, false, Schedule::Reversed{"step", 0, static_cast<uint32_t>(a), awaited}}) != expected;
      CHECK(wrong > 0);
      ++needed;
    }
  CHECK(needed >= 4);
}

TEST_CASE("ranks that do not agree on their collectives are told apart") {
  const auto both = [](Steps& steps, const std::string& text) {
    const auto found = disagreements(steps.plans);
    REQUIRE(!found.empty());
    CHECK_THAT(found[0], Contains(text));
    Fleet fleet(steps.plans, reference());
    fill(fleet, steps);
    CHECK_FALSE(fleet.run("step"));
    return fleet.complaint();
  };
  SECTION("one collective is missing on one rank") {
    Steps steps(3);
    steps.actions(1, 1).erase(steps.actions(1, 1).begin());
    CHECK_THAT(both(steps, "rank 0 waits for ever at eng.broadcast/1 in last"), Contains("waits for ever"));
  }
  SECTION("another size") {
    Steps steps(2);
    for (auto* list : {&steps.plans[1].calls[1].in, &steps.plans[1].calls[1].out})
      list->at(0) = flat(eng::count(list->at(0)) / 2);
    CHECK_THAT(both(steps, "collective 1 of group 1: rank"),
               Contains("rank 0 has eng.all_to_all/1 f32 (128)") || Contains("rank 1 has eng.all_to_all/1 f32 (64)"));
  }
  SECTION("groups in an order that nobody can finish") {
    Steps steps(3);
    for (eng::Plan& plan : steps.plans) {
      plan.ranks.groups.push_back({2, 1, 0});
      auto& actions = plan.programs[0].segments[1].actions;
      eng::Action other = actions[0];
      plan.calls.push_back(plan.calls[other.call]);
      plan.calls.back().attrs.list[0].i = 2;
      other.call = static_cast<uint32_t>(plan.calls.size() - 1);
      actions.insert(actions.begin() + (plan.ranks.world.rank == 1 ? 0 : 1), other);
      CHECK(eng::problems(plan).empty());
    }
    CHECK_THAT(both(steps, "waits for ever"), Contains("waits for ever"));
  }
  SECTION("no member") {
    Steps steps(2);
    for (eng::Plan& plan : steps.plans) plan.ranks.groups[0] = {0};
    CHECK_THAT(disagreements(steps.plans).at(0), Contains("rank 1 is no member of group 1"));
  }
  SECTION("a plan for another rank") {
    Steps steps(2);
    std::swap(steps.plans[0], steps.plans[1]);
    CHECK_THAT(disagreements(steps.plans).at(0), Contains("plan 0 is for rank 1 of 2"));
  }
}

TEST_CASE("two collectives of a group need an order") {
  Steps steps(2);
  auto& actions = steps.actions(0, 1);
  actions.push_back(actions[0]);
  actions.back().queue = eng::Queue::host;
  actions.back().out[0] = steps.given;
  actions.back().waits = {1};
  std::string all;
  for (const auto& line : eng::problems(steps.plans[0])) all += line + "\n";
  CHECK_THAT(all, Contains("step/last action 2") &&
                      Contains("its order among the collectives of group 1 is undefined") &&
                      Contains("after action 0"));
  actions.back().waits.push_back(0);
  CHECK(eng::problems(steps.plans[0]).empty());
}

TEST_CASE("what an action reads and writes is its own while it runs") {
  // Two queues that touch the same bytes, whatever the values.
  Steps steps(2);
  for (uint32_t r = 0; r < 2; ++r) {
    auto& actions = steps.actions(r);
    actions.push_back(actions.back());
    actions.back().queue = eng::Queue::read;
    actions.back().waits.clear();
  }
  CHECK(!eng::problems(steps.plans[0]).empty());
  int wrong = 0;
  std::string complaints;
  const std::vector<float> expected = outcome(Steps(2), {});
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::string complaint;
    wrong += outcome(steps, {seed, seed % 2 == 0}, &complaint) != expected;
    complaints += complaint + "\n";
  }
  CHECK(wrong > 5);
  CHECK_THAT(complaints, Contains("its inputs changed while it ran") || Contains("somebody else wrote"));
}
