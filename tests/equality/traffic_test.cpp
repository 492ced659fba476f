// SPDX-License-Identifier: Apache-2.0
// Bytes that ranks send while they train, counted where they are copied, against the formula.
#include <catch2/catch.hpp>

#include "draw.hpp"

using namespace equality;

namespace {

// Elements that one rank's collectives brought together or reduced in a step, in units of all elements, beside the few
// of the norm and the losses. Of n elements each rank sends n / world to each other one.
double traffic(const Group& group, const Draw& draw) {
  const Planned planned = plan(group, draw);
  const Result result = train(group, planned, {1});
  REQUIRE(result.complaint == "");
  uint64_t all = 0;
  for (const eng::Unit& unit : planned.plans[0].units) all += unit.count;
  const uint64_t world = group.world, norm = 2 * all / eng::chunk,
                 losses = world * static_cast<uint64_t>(group.accumulate);
  for (uint64_t sent : result.sent) CHECK(sent == result.sent[0]);
  const auto steps = static_cast<uint64_t>(group.steps);
  const uint64_t bytes = result.sent[0] / steps, elements = bytes / sizeof(float) * world / (world - 1);
  CHECK(elements * sizeof(float) * (world - 1) / world * steps == result.sent[0]);
  return static_cast<double>(elements - norm - losses) / static_cast<double>(all);
}

}  // namespace

TEST_CASE("a step moves as many bytes as the formula says", "[.slow]") {
  for (int64_t a : {1, 4})
    for (bool per_step : {false, true}) {
      const Group group{"llama", a == 1 ? 3u : 2u, a, per_step};
      const double reduced = per_step ? 1 : static_cast<double>(a);
      INFO(describe(group));
      for (const char* strategy : {"none", "zero1", "zero2"}) {
        INFO(strategy);
        CHECK(traffic(group, {strategy, 65536, 1, true, 0}) == reduced + 1);
      }
      // Stage 3 gathers for each pass what is not there from the pass before; the embedding's backward needs no weight.
      const double gathered = traffic(group, {"zero3", 65536, 0, true, 0}) - reduced;
      CHECK(gathered <= 2.0 * static_cast<double>(a));
      CHECK(gathered > 1.4 * static_cast<double>(a));
    }
}
