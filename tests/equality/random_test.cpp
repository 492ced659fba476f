// SPDX-License-Identifier: Apache-2.0
// Random plans of one group give one result, bit for bit, in whatever order their queues run. EQUALITY_SEED sets the
// first seed, EQUALITY_PLANS how many plans the slow case draws.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <iostream>

#include "core/verify/verify.hpp"
#include "draw.hpp"
#include "engine/ops.h"

using namespace equality;

namespace {

uint64_t number(const char* variable, uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : fallback;
}

// Plans of one group against the first of them.
struct Family {
  Group group;
  std::optional<Result> first;
  Draw first_draw;
  // "" or what differs.
  std::string add(const Draw& draw, uint64_t seed) {
    const Planned planned = plan(group, draw);
    const Result result = train(group, planned, {seed, seed % 2 == 0});
    if (!first) first = result, first_draw = draw;
    const std::string what = difference(*first, result);
    return what.empty()
               ? ""
               : "seed " + std::to_string(seed) + ": " + describe(group) + "\n  one plan: " + describe(first_draw) +
                     "\n  another:  " + describe(draw) + "\n  " + what;
  }
};

// True if all went well.
void equal_plans(uint64_t seed, int groups, int plans_of_each) {
  std::cout << "EQUALITY_SEED=" << seed << "\n";
  for (int g = 0; g < groups; ++g) {
    Random random(seed + static_cast<uint64_t>(g));
    Family family{draw_group(random), {}, {}};
    for (int p = 0; p < plans_of_each; ++p) {
      const Draw draw = equality::draw(random, family.group);
      INFO(describe(family.group) << "; " << describe(draw));
      CHECK(family.add(p == 0 ? Draw() : draw, seed + static_cast<uint64_t>(g * 100 + p)) == "");
    }
  }
}

}  // namespace

TEST_CASE("random plans of a group give one result", "[.slow]") {
  equal_plans(number("EQUALITY_SEED", 20), 8, 3);
}

TEST_CASE("many random plans of a group give one result", "[.slow]") {
  equal_plans(number("EQUALITY_SEED", 1000), static_cast<int>(number("EQUALITY_PLANS", 280) / 8), 8);
}
