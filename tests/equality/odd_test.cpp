// SPDX-License-Identifier: Apache-2.0
// Parameters of two blocks, parameters that the loss does not need, and parameters without elements.
#include <catch2/catch.hpp>

#include <cmath>
#include <map>

#include "core/verify/verify.hpp"
#include "draw.hpp"
#include "plant.hpp"
#include "plugins.hpp"

using namespace equality;

namespace {

std::map<std::string, std::vector<float>> by_name(const Result& result) {
  REQUIRE(result.complaint == "");
  return {result.tensors.begin(), result.tensors.end()};
}

}  // namespace

TEST_CASE("what the loss does not need changes nothing else") {
  const Group group{"odd", 3, 2, false};
  const auto all = by_name(train(group, plan(group, {"zero3", 65536, 1, true, 0}), {1}));
  Group without = group;
  without.model = "odd-plain";
  const auto plain = by_name(train(without, plan(without, {}), {2}));
  for (const auto& [name, values] : plain) {
    INFO(name);
    REQUIRE(all.count(name) == 1);
    REQUIRE(all.at(name).size() == values.size());
    // The norm adds its zeros at other places of the tree: its last bit may differ, and with it what is clipped.
    for (size_t k = 0; k < values.size(); ++k) REQUIRE(all.at(name)[k] == Approx(values[k]).epsilon(1e-4).margin(1e-6));
  }
  // Before the first update nothing can differ.
  CHECK(all.at("losses")[0] == plain.at("losses")[0]);
  size_t empty = 0, unused = 0;
  const Planned planned = plan(group, {});
  Fleet start(planned.plans, reference());
  REQUIRE(start.run("init"));
  for (const eng::Tensor& t : planned.plans[0].tensors) {
    if (t.role != "parameter" || plain.count("parameter " + t.name)) continue;
    INFO(t.name);
    const auto& now = all.at("parameter " + t.name);
    CHECK(now.size() == static_cast<size_t>(eng::count(t.desc)));
    if (now.empty()) {
      ++empty;
      continue;
    }
    // Their gradient is zero, not absent: only the decay moves them.
    ++unused;
    for (const char* state : {"exp_avg ", "exp_avg_sq "})
      for (float x : all.at(state + t.name)) REQUIRE(x == 0);
    const bool decays = t.desc.ndim == 2;
    std::vector<float> expected = start.download<float>(0, t.whole());
    for (const auto& row : planned.table)
      for (float& x : expected) x = decays ? x * (1 - 0.1f * row[0]) : x;
    bool moved = false;
    for (size_t k = 0; k < now.size(); ++k) {
      REQUIRE(now[k] == Approx(expected[k]).epsilon(1e-6));
      moved = moved || now[k] != start.download<float>(0, t.whole())[k];
    }
    CHECK(moved == decays);
  }
  CHECK(empty == 8);
  CHECK(unused == 9);
}

TEST_CASE("odd parameters are equal in every strategy and number of ranks") {
  for (uint32_t world : {1u, 2u, 3u, 4u})
    for (bool per_step : {false, true}) {
      if (world == 1 && per_step) continue;
      const Group group{world % 2 ? "odd" : "odd-tied", world, 2, per_step};
      const Result whole = train(group, plan(group, {}), {world});
      int k = 0;
      for (const char* strategy : every_strategy) {
        ++k;
        const Draw draw{strategy, k % 2 ? 1u : 1u << 20, k % 3, k % 4 != 0, k % 2 ? 1.0 : 0.0};
        INFO(describe(group) << "; " << describe(draw));
        CHECK(difference(whole, train(group, plan(group, draw), {world + 10, k % 2 == 0})) == "");
      }
    }
}

TEST_CASE("a gradient that is not zero where nothing is used is seen") {
  const Group group{"odd", 2, 1, false};
  const Result whole = train(group, plan(group, {}), {1});
  for (const char* strategy : every_strategy) {
    INFO(strategy);
    Planned faulty = plan(group, {strategy, 65536, 1, true, 0});
    for (eng::Plan& plan : faulty.plans) {
      REQUIRE(fill_unused(plan));
      CHECK(eng::problems(plan).empty());
    }
    CHECK_THAT(difference(whole, train(group, faulty, {2})), Catch::StartsWith("norms, element 0: "));
  }
}
