// SPDX-License-Identifier: Apache-2.0
// A strategy that is none of the shipped ones, written by a stranger.
#include <catch2/catch.hpp>

#include <set>

#include "simulator.hpp"

using namespace zero_test;
using Catch::Contains;

namespace {

const models::PluginFile& file() {
  static const models::PluginFile plugin(TWO_LEVEL_DIR, "two_level");
  return plugin;
}

models::Values nodes_of(int64_t ranks) {
  return {{"ranks_per_node", ranks}};
}

// {world, ranks per node}: all that it takes on up to 8 ranks.
const std::pair<uint32_t, int64_t> shapes[] = {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {3, 3}, {4, 1}, {4, 2},
                                               {4, 4}, {5, 1}, {5, 5}, {6, 1}, {6, 2}, {6, 6}, {7, 1},
                                               {7, 7}, {8, 1}, {8, 2}, {8, 4}, {8, 8}};

}  // namespace

TEST_CASE("two levels: the parts of all ranks are the whole, and all ranks make the same groups") {
  for (const auto& [size, n] : shapes) {
    World world(file(), "two_level", size, nodes_of(n));
    std::set<uint32_t> indices;
    for (uint32_t r = 0; r < size; ++r) {
      REQUIRE(world.ranks(r).parts.size() == 1);
      indices.insert(world.ranks(r).parts[0].index);
      CHECK(world.ranks(r).groups == world.ranks(0).groups);
      for (int32_t role : {ENG_ROLE_WEIGHT, ENG_ROLE_MASTER, ENG_ROLE_STATE, ENG_ROLE_GRAD})
        CHECK(world.part(r, role) == 1);
      for (int32_t role : {ENG_ROLE_PARTIAL, ENG_ROLE_ACT}) CHECK(world.part(r, role) == 0);
    }
    CHECK(indices.size() == size);
  }
}

TEST_CASE("two levels: the sum has the bits of the flat tree") {
  for (const auto& [size, n] : shapes) {
    INFO(size << " ranks, " << n << " per node");
    World world(file(), "two_level", size, nodes_of(n));
    const auto gradients = random_gradients(size, size * 29, size);
    const Floats sum = tree_sum(gradients);
    const auto moved = world.reduce(gradients);
    for (uint32_t r = 0; r < size; ++r) CHECK(same_bits(moved.dst[r], world.kept(r, ENG_ROLE_GRAD, sum)));
    CHECK(moved.ops == std::vector<std::string>{"all_to_all", "fold", "all_to_all", "fold"});
    bool seen = false;
    const auto wrong = world.reduce(gradients, Fault::left_to_right);
    for (uint32_t r = 0; r < size; ++r) seen |= !same_bits(wrong.dst[r], moved.dst[r]);
    CHECK(seen == (n > 3 || size / n > 3));  // up to three rows have one order: (0 + 1) + 2
  }
}

TEST_CASE("two levels: both steps of a gather end in the right place") {
  for (const auto& [size, n] : shapes)
    for (bool in_place : {false, true}) {
      INFO(size << " ranks, " << n << " per node");
      World world(file(), "two_level", size, nodes_of(n));
      const Floats whole = random_gradients(1, size * 29, size)[0];
      const auto moved = world.gather(ENG_ROLE_WEIGHT, whole, in_place);
      for (const Floats& got : moved.dst) CHECK(same_bits(got, whole));
      CHECK(moved.ops == std::vector<std::string>{"all_gather", "all_gather"});
    }
}

TEST_CASE("two levels: parts in the order of ranks would be seen") {
  World world(file(), "two_level", 8, nodes_of(2));
  for (uint32_t r = 0; r < 8; ++r) world.ranks(r).parts[0].index = r;
  const auto gradients = random_gradients(8, 8 * 4, 1);
  const Floats sum = tree_sum(gradients);
  const auto summed = world.reduce(gradients), gathered = world.gather(ENG_ROLE_WEIGHT, sum);
  bool summed_wrong = false, gathered_wrong = false;
  for (uint32_t r = 0; r < 8; ++r) {
    summed_wrong |= !same_bits(summed.dst[r], world.kept(r, ENG_ROLE_GRAD, sum));
    gathered_wrong |= !same_bits(gathered.dst[r], sum);
  }
  CHECK((summed_wrong && gathered_wrong));
}

TEST_CASE("two levels: nodes that do not fit are refused") {
  const auto make = [](uint32_t size, int64_t n) { World world(file(), "two_level", size, nodes_of(n)); };
  CHECK_THROWS_WITH(make(5, 2),
                    Contains("5 ranks are no multiple of ranks_per_node = 2") && Contains("set it to a divisor of 5"));
  CHECK_THROWS_WITH(make(4, 8), Contains("4 ranks are no multiple of ranks_per_node = 8"));
  CHECK_THROWS_WITH(make(6, 3), Contains("ranks_per_node = 3 is no power of two"));
}

TEST_CASE("two levels: other moves are refused and emit nothing") {
  World world(file(), "two_level", 4);
  for (const auto& [role, from, to] : {std::tuple<int32_t, eng::Id, eng::Id>{ENG_ROLE_GRAD, 0, 0},
                                       {ENG_ROLE_WEIGHT, 0, 1},
                                       {ENG_ROLE_PARTIAL, 1, 0},
                                       {ENG_ROLE_ACT, 1, 0}})
    CHECK_THAT(world.refusal(role, from, to), Contains("two_level gathers weights"));
}
