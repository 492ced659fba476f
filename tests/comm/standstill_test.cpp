// SPDX-License-Identifier: Apache-2.0
// Measures how long messages stand still, by rank: much to move is no reason to give up, and one rank's bytes do not
// excuse another's.
#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

#include "plugins/mpi/standstill.hpp"

using mpi::Standstill;
using std::chrono::seconds;

namespace {

struct Case {
  Standstill still;
  std::vector<char> through;
  explicit Case(const std::vector<uint32_t>& ranks) : through(ranks.size()) {
    for (const uint32_t rank : ranks) still.add(rank);
    still.begin();
  }
  // The time that a rank has stood still if so many seconds after the start `arrived` have arrived.
  double at(int now, const std::vector<size_t>& arrived) {
    for (const size_t k : arrived) through[k] = 1;
    still.look(seconds(now), [&](size_t k) { return through[k] != 0; });
    return std::chrono::duration<double>(still.longest(seconds(now))).count();
  }
};

}  // namespace

TEST_CASE("as long as bytes arrive nobody stands still") {
  Case two({1, 1, 1, 1});
  CHECK(two.at(4, {}) == 4);
  CHECK(two.at(5, {2}) == 0);
  CHECK(two.at(9, {}) == 4);
  CHECK(two.at(10, {0, 1}) == 0);
  CHECK(two.at(17, {}) == 7);  // the last does not come
  CHECK(two.at(18, {3}) == 0);
  CHECK(two.at(99, {}) == 0);  // all have
}

TEST_CASE("what comes from one rank does not excuse another") {
  Case three({1, 1, 2, 2});
  CHECK(three.at(3, {0}) == 3);
  CHECK(three.at(5, {1}) == 5);  // rank 2 has not come
  CHECK(three.at(6, {2}) == 0);
  CHECK(three.at(8, {}) == 2);
}

TEST_CASE("messages that are started again begin again") {
  Case one({1, 1});
  CHECK(one.at(7, {0, 1}) == 0);
  one.through.assign(2, 0);
  one.still.begin();
  CHECK(one.at(2, {}) == 2);
  CHECK(one.at(3, {1}) == 0);
}
