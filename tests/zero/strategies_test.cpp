// SPDX-License-Identifier: Apache-2.0
// The four strategies: what they keep where, and that what they emit gives the right bits on 1 to 8 ranks.
#include <catch2/catch.hpp>
#include <set>

#include "core/base/error.hpp"
#include "core/plan/request.hpp"
#include "simulator.hpp"

using namespace zero_test;
using Catch::Contains;
using models::PluginFile;
using Names = std::vector<std::string>;

namespace {

const char* const names[] = {"none", "zero1", "zero2", "zero3"};
constexpr int32_t roles[] = {ENG_ROLE_WEIGHT,  ENG_ROLE_MASTER, ENG_ROLE_STATE,
                             ENG_ROLE_PARTIAL, ENG_ROLE_GRAD,   ENG_ROLE_ACT};

const PluginFile& plugin() {
  static const PluginFile file("zero");
  return file;
}

// True if a rank keeps only a part.
bool parted(const std::string& name, int32_t role) {
  if (role == ENG_ROLE_PARTIAL || role == ENG_ROLE_ACT) return false;
  if (role == ENG_ROLE_GRAD) return true;
  if (name == "none") return false;
  return role != ENG_ROLE_WEIGHT || name == "zero3";
}

}  // namespace

TEST_CASE("a strategy keeps each role whole or in W parts, one per rank") {
  for (const char* name : names) {
    const PluginFile& file = plugin();
    for (uint32_t size = 1; size <= 8; ++size) {
      INFO(name << " on " << size);
      World world(file, name, size);
      for (uint32_t r = 0; r < size; ++r) {
        for (int32_t role : roles) CHECK((world.part(r, role) != 0) == parted(name, role));
        CHECK(world.ranks(r).groups.size() == 1);
        REQUIRE(world.ranks(r).parts.size() == 1);
        for (const eng::Part& part : world.ranks(r).parts)
          CHECK((part.count == size && part.index == r && part.group == 1));
      }
    }
  }
}

TEST_CASE("gradients are summed in one tree over the ranks, whatever the strategy") {
  for (const char* name : names) {
    const PluginFile& file = plugin();
    for (uint32_t size = 1; size <= 8; ++size)
      for (size_t width : {1, 13, 64}) {
        INFO(name << " on " << size);
        World world(file, name, size);
        const auto gradients = random_gradients(size, size * width, size);
        const Floats sum = tree_sum(gradients);
        const auto moved = world.reduce(gradients);
        for (uint32_t r = 0; r < size; ++r) CHECK(same_bits(moved.dst[r], world.kept(r, ENG_ROLE_GRAD, sum)));
        CHECK(moved.ops == Names{"all_to_all", "fold"});
      }
  }
}

TEST_CASE("a sum from left to right is seen") {
  for (const char* name : names)
    for (uint32_t size = 4; size <= 8; ++size) {
      World world(plugin(), name, size);
      const auto gradients = random_gradients(size, size * 64, size);
      const Floats sum = tree_sum(gradients);
      const auto right = world.reduce(gradients), wrong = world.reduce(gradients, Fault::left_to_right);
      bool seen = false;
      for (uint32_t r = 0; r < size; ++r) seen |= !same_bits(right.dst[r], wrong.dst[r]);
      CHECK(seen);
    }
}

TEST_CASE("what is kept in parts is gathered, into another place or around its own") {
  for (const char* name : names) {
    const PluginFile& file = plugin();
    for (uint32_t size = 1; size <= 8; ++size)
      for (int32_t role : {ENG_ROLE_WEIGHT, ENG_ROLE_MASTER, ENG_ROLE_STATE, ENG_ROLE_GRAD})
        for (bool in_place : {false, true}) {
          if (!parted(name, role)) continue;
          INFO(name << " on " << size << ", role " << role);
          World world(file, name, size);
          const Floats whole = random_gradients(1, size * 17, 100 + size)[0];
          const auto moved = world.gather(role, whole, in_place);
          for (const Floats& got : moved.dst) CHECK(same_bits(got, whole));
          CHECK(moved.ops == Names{"all_gather"});
        }
  }
}

TEST_CASE("zero1 and zero2 are one program") {
  for (uint32_t size : {2, 5}) {
    World one(plugin(), "zero1", size), two(plugin(), "zero2", size);
    const auto gradients = random_gradients(size, size * 8, 3);
    const auto a = one.reduce(gradients), b = two.reduce(gradients);
    CHECK((a.ops == b.ops && a.attrs == b.attrs));
    const auto c = one.gather(ENG_ROLE_MASTER, gradients[0]), d = two.gather(ENG_ROLE_MASTER, gradients[0]);
    CHECK((c.ops == d.ops && c.attrs == d.attrs));
    for (int32_t role : roles) CHECK(one.part(1, role) == two.part(1, role));
  }
}

TEST_CASE("fast leaves the sum to the communicator") {
  for (const char* name : names) {
    const PluginFile& file = plugin();
    CHECK(file.defaults(name).at("fast") == eng::Value(false));
    World world(file, name, 6, {{"fast", true}});
    const auto gradients = random_gradients(6, 6 * 8, 5);
    const Floats sum = tree_sum(gradients);
    const auto moved = world.reduce(gradients);
    CHECK(moved.ops == Names{"reduce_scatter"});
    for (uint32_t r = 0; r < 6; ++r)  // the simulator's library adds in a tree
      CHECK(same_bits(moved.dst[r], world.kept(r, ENG_ROLE_GRAD, sum)));
  }
}

TEST_CASE("any other move is refused and emits nothing") {
  for (const char* name : names) {
    World world(plugin(), name, 2);
    const eng::Id own = world.part(0, ENG_ROLE_GRAD);
    const std::tuple<int32_t, eng::Id, eng::Id> moves[] = {
        {ENG_ROLE_WEIGHT, 0, 1}, {ENG_ROLE_WEIGHT, 0, 0},    {ENG_ROLE_MASTER, 2, 0}, {ENG_ROLE_GRAD, 0, 0},
        {ENG_ROLE_GRAD, 0, 2},   {ENG_ROLE_PARTIAL, own, 0}, {ENG_ROLE_ACT, own, 0},  {7, own, 0}};
    for (const auto& [role, from, to] : moves) {
      INFO(name << " role " << role << " from " << from << " to " << to);
      CHECK_THAT(world.refusal(role, from, to), Contains(std::string(name) + " gathers what it keeps") &&
                                                    Contains("cannot take role " + std::to_string(role)));
    }
  }
}

TEST_CASE("the core makes a strategy from its section and asks it for parts") {
  const PluginFile& file = plugin();
  const eng::Section section("zero", {{"fast", {false, "default", false}},
                                      {"gather", {std::string("exact"), "default", false}},
                                      {"sum", {std::string("exact"), "default", false}}});
  eng::Ranks ranks({2, 4, 2, 4});
  const eng::Sharding made = eng::make_sharding("zero3", file.table<eng_axis>(ENG_ZERO_KIND, "zero3"), section, ranks);
  const eng_unit unit = {sizeof(eng_unit), 1, 0, 0, 4 * 4096};
  const eng::Part& part = ranks.part(made.part(ENG_ROLE_WEIGHT, unit));
  CHECK((part.count == 4 && part.index == 2 && part.group == 1));
  CHECK(made.part(ENG_ROLE_PARTIAL, unit) == 0);
}

TEST_CASE("one file provides all strategies, each with a table of its own") {
  std::set<const void*> tables;
  for (const char* name : {"none", "zero1", "zero2", "zero3", "hpz", "mics"}) {
    tables.insert(plugin().root().get_interface(ENG_ZERO_KIND, name));
    CHECK(plugin().root().get_interface("eng.zero/2", name) == nullptr);
  }
  CHECK(tables.size() == 6);
  CHECK(tables.count(nullptr) == 0);
  CHECK(plugin().root().get_interface(ENG_ZERO_KIND, "zero4") == nullptr);
}
