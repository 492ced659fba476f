// SPDX-License-Identifier: Apache-2.0
// hpz and mics: what they keep where, and that what they emit gives the right bits on 1 to 12 ranks.
#include <catch2/catch.hpp>

#include <set>

#include "core/base/error.hpp"
#include "simulator.hpp"

using namespace zero_test;
using Catch::Contains;
using models::PluginFile;
using Names = std::vector<std::string>;

namespace {

const PluginFile& shipped() {
  static const PluginFile plugin("zero");
  return plugin;
}

models::Values groups_of(int64_t ranks) {
  return {{"group", ranks}};
}

// {world, ranks of a group}
const std::pair<uint32_t, int64_t> grouped[] = {{1, 1}, {2, 1}, {2, 2}, {3, 3}, {4, 1}, {4, 2},  {4, 4}, {6, 2},
                                                {6, 3}, {8, 2}, {8, 4}, {8, 8}, {9, 3}, {12, 4}, {12, 6}};

// The sum within each group of neighbours, then over groups.
Floats grouped_sum(const std::vector<Floats>& gradients, size_t n) {
  std::vector<Floats> groups;
  for (size_t first = 0; first < gradients.size(); first += n)
    groups.push_back(tree_sum(std::vector<Floats>(gradients.begin() + static_cast<std::ptrdiff_t>(first),
                                                  gradients.begin() + static_cast<std::ptrdiff_t>(first + n))));
  return tree_sum(groups);
}

}  // namespace

TEST_CASE(
    "hpz keeps weights in parts of a group and all else in parts of all ranks; mics keeps all in those of a group") {
  for (const auto& [size, n] : grouped) {
    INFO(size << " ranks in groups of " << n);
    World hpz(shipped(), "hpz", size, groups_of(n)), mics(shipped(), "mics", size, groups_of(n));
    std::set<uint32_t> indices;
    for (uint32_t r = 0; r < size; ++r) {
      CHECK(hpz.ranks(r).groups == hpz.ranks(0).groups);
      CHECK(mics.ranks(r).groups == hpz.ranks(0).groups);
      const eng::Part &weight = hpz.ranks(r).part(hpz.part(r, ENG_ROLE_WEIGHT)),
                      &master = hpz.ranks(r).part(hpz.part(r, ENG_ROLE_MASTER));
      CHECK((weight.count == n && weight.index == r % n));
      CHECK(master.count == size);
      CHECK(master.index / (size / n) == weight.index);  // a master lies in the weights of its rank
      indices.insert(master.index);
      for (int32_t role : {ENG_ROLE_STATE, ENG_ROLE_GRAD}) CHECK(hpz.part(r, role) == hpz.part(r, ENG_ROLE_MASTER));
      CHECK(hpz.part(r, ENG_ROLE_RESIDUAL) == hpz.part(r, ENG_ROLE_WEIGHT));
      for (int32_t role : {ENG_ROLE_WEIGHT, ENG_ROLE_MASTER, ENG_ROLE_STATE, ENG_ROLE_GRAD, ENG_ROLE_RESIDUAL}) {
        const eng::Part& part = mics.ranks(r).part(mics.part(r, role));
        CHECK((part.count == n && part.index == r % n));
      }
      for (int32_t role : {ENG_ROLE_PARTIAL, ENG_ROLE_ACT}) CHECK((hpz.part(r, role) == 0 && mics.part(r, role) == 0));
    }
    CHECK(indices.size() == size);
  }
}

TEST_CASE("groups are summed first; where their size is a power of two, these are the bits of the flat tree") {
  for (const char* name : {"hpz", "mics"})
    for (const auto& [size, n] : grouped) {
      INFO(name << ", " << size << " ranks in groups of " << n);
      World world(shipped(), name, size, groups_of(n));
      const auto gradients = random_gradients(size, size * 29, size);
      const Floats sum = grouped_sum(gradients, static_cast<size_t>(n));
      CHECK(same_bits(sum, tree_sum(gradients)) == ((n & (n - 1)) == 0 || n == size));
      const auto moved = world.reduce(gradients);
      for (uint32_t r = 0; r < size; ++r) CHECK(same_bits(moved.dst[r], world.kept(r, ENG_ROLE_GRAD, sum)));
      Names ops = {"all_to_all", "fold"};
      if (size > n) ops.insert(ops.end(), {"all_to_all", "fold"});
      if (size > n && name == std::string("mics")) ops.push_back("all_gather");
      CHECK(moved.ops == ops);
      const auto fast = World(shipped(), name, size, {{"group", n}, {"fast", true}}).reduce(gradients);
      for (uint32_t r = 0; r < size; ++r)  // the simulator's library adds in a tree
        CHECK(same_bits(fast.dst[r], world.kept(r, ENG_ROLE_GRAD, sum)));
    }
}

TEST_CASE("every gather of hpz and mics ends in the right place") {
  for (const char* name : {"hpz", "mics"})
    for (const auto& [size, n] : grouped)
      for (int32_t role : {ENG_ROLE_WEIGHT, ENG_ROLE_MASTER, ENG_ROLE_STATE, ENG_ROLE_GRAD})
        for (bool in_place : {false, true}) {
          INFO(name << ", " << size << " ranks in groups of " << n << ", role " << role);
          World world(shipped(), name, size, groups_of(n));
          const Floats whole = random_gradients(1, size * 29, size)[0];
          for (const Floats& got : world.gather(role, whole, in_place).dst) CHECK(same_bits(got, whole));
        }
}

TEST_CASE("hpz makes the weights of a group from the masters of all ranks") {
  for (const auto& [size, n] : grouped) {
    INFO(size << " ranks in groups of " << n);
    World world(shipped(), "hpz", size, groups_of(n));
    const Floats whole = random_gradients(1, size * 29, size)[0];
    std::vector<Floats> masters;
    std::vector<eng::Id> from, to;
    for (uint32_t r = 0; r < size; ++r) {
      masters.push_back(world.kept(r, ENG_ROLE_MASTER, whole));
      from.push_back(world.part(r, ENG_ROLE_MASTER)), to.push_back(world.part(r, ENG_ROLE_WEIGHT));
    }
    const auto moved = world.move(ENG_ROLE_WEIGHT, masters, from, to, whole.size() / static_cast<size_t>(n));
    for (uint32_t r = 0; r < size; ++r) CHECK(same_bits(moved.dst[r], world.kept(r, ENG_ROLE_WEIGHT, whole)));
    CHECK(moved.ops == Names{"all_gather"});
  }
}

TEST_CASE("without a size, a group has the largest of 8, 4, 2 and 1 ranks that divides them") {
  for (const auto& [size, n] : {std::pair{2u, 2u}, {3u, 1u}, {4u, 4u}, {6u, 2u}, {8u, 8u}, {12u, 4u}, {16u, 8u}}) {
    World world(shipped(), "mics", size);
    CHECK(world.ranks(0).part(world.part(0, ENG_ROLE_WEIGHT)).count == n);
  }
}

TEST_CASE("groups that do not fit, and sums that the communicator does not have, are refused") {
  const auto make = [](const char* name, uint32_t size, const models::Values& options) {
    World world(shipped(), name, size, options);
  };
  CHECK_THROWS_WITH(make("hpz", 6, groups_of(4)), Contains("6 ranks are no multiple of zero.group = 4; set it to a "
                                                           "divisor of 6"));
  CHECK_THROWS_WITH(make("mics", 4, groups_of(8)), Contains("4 ranks are no multiple of zero.group = 8"));
  for (const char* name : {"none", "zero2", "mics"})
    CHECK_THROWS_WITH(make(name, 2, {{"fast", true}, {"sum", std::string("int8")}}),
                      Contains("comm.reduce = \"fast\"") && Contains("zero.sum"));
}

TEST_CASE("only what rounds values is lossy") {
  const auto flags = [](const char* name, uint32_t size, const models::Values& options) {
    World world(shipped(), name, size, options);
    return world.flags();
  };
  const models::Values sum = {{"sum", std::string("int8")}}, gather = {{"gather", std::string("int8")}},
                       groups = {{"sum", std::string("bf16")}, {"group", int64_t{2}}};
  for (const char* name : {"none", "zero1", "zero2", "zero3", "hpz", "mics"}) CHECK(flags(name, 4, {}) == 0);
  for (const char* name : {"none", "zero1", "zero2", "zero3"})
    CHECK(flags(name, 4, sum) == (ENG_AXIS_LOSSY | ENG_AXIS_RESIDUAL));
  CHECK(flags("zero3", 4, gather) == ENG_AXIS_LOSSY);
  for (const char* name : {"hpz", "mics"}) {
    CHECK(flags(name, 4, groups) == (ENG_AXIS_LOSSY | ENG_AXIS_RESIDUAL));
    CHECK(flags(name, 2, groups) == 0);  // one group
  }
}

TEST_CASE("moves that are none of a strategy with groups are refused and emit nothing") {
  for (const char* name : {"hpz", "mics"}) {
    World world(shipped(), name, 4, groups_of(2));
    const eng::Id own = world.part(0, ENG_ROLE_GRAD);
    for (const auto& [role, from, to] : {std::tuple<int32_t, eng::Id, eng::Id>{ENG_ROLE_GRAD, 0, 0},
                                         {ENG_ROLE_GRAD, 0, 7},
                                         {ENG_ROLE_WEIGHT, 0, own},
                                         {ENG_ROLE_PARTIAL, own, 0}})
      CHECK_THAT(world.refusal(role, from, to), Contains(std::string(name) + " gathers what it keeps"));
  }
}
