// SPDX-License-Identifier: Apache-2.0
// The choice between starting ranks again and not, and their number.
#include <catch2/catch.hpp>
#include <csignal>

#include "core/base/error.hpp"
#include "session/ranks/restarts.hpp"

using namespace eng;

namespace {

// 8 ranks with one micro-batch of 3 sequences each.
RestartPolicy policy(uint32_t most, uint32_t min_ranks) {
  return {most, 8, min_ranks, 24, 3};
}

Cause killed_rank(uint32_t rank, int signal = SIGKILL) {
  Cause cause;
  cause.exit = 8, cause.text = "killed", cause.lost = rank, cause.signal = signal;
  return cause;
}

Cause own(int exit, const std::string& error) {
  Cause cause;
  cause.exit = exit, cause.text = "rank 1: " + error, cause.error = error;
  return cause;
}

using Places = std::vector<uint32_t>;

}  // namespace

TEST_CASE("as many of the ranks that are left as keep the batch", "[ranks]") {
  Restarts all(policy(9, 1));
  CHECK(all.ranks() == 8);
  CHECK(all.after(killed_rank(2), true, 5).empty());
  CHECK(all.places() == Places{0, 1, 3, 4});  // of seven that are left; 8 = 4 x 2
  CHECK(all.after(killed_rank(2), true, 5).empty());
  CHECK(all.places() == Places{0, 1, 4, 5});  // the place of rank 2 was 3
  CHECK(all.after(own(10, "disk full"), true, 7).empty());
  CHECK(all.ranks() == 4);  // nobody was lost
  CHECK(all.made() == 3);
}

TEST_CASE("places are filled again where there would be too few", "[ranks]") {
  Restarts always(policy(9, 8));
  CHECK(always.after(killed_rank(7), true, 1).empty());
  CHECK(always.places() == Places{0, 1, 2, 3, 4, 5, 6, 7});
  Restarts four(policy(9, 4));
  for (const uint32_t lost : {0u, 0u, 0u, 0u}) CHECK(four.after(killed_rank(lost), true, 1).empty());
  CHECK(four.places() == Places{4, 5, 6, 7});
  CHECK(four.after(killed_rank(1), true, 1).empty());
  CHECK(four.places() == Places{0, 4, 6, 7});  // the place that was lost first
}

TEST_CASE("ranks that read the same samples are started together", "[ranks]") {
  const RestartPolicy pairs{9, 8, 1, 12, 3, 2};
  for (const uint32_t n : {2u, 4u, 8u}) CHECK(pairs.keeps(n));
  for (const uint32_t n : {1u, 3u, 6u}) CHECK_FALSE(pairs.keeps(n));
}

TEST_CASE("numbers of ranks that do not keep the batch are refused", "[ranks]") {
  CHECK_NOTHROW(check_restarts(policy(1, 1)));
  CHECK_NOTHROW(check_restarts(policy(1, 4)));
  CHECK_NOTHROW(check_restarts(policy(1, 8)));
  CHECK_THROWS_WITH(check_restarts(policy(1, 5)), Catch::Contains("which 5 to 7 ranks cannot share evenly"));
  CHECK_THROWS_AS(check_restarts(policy(1, 0)), Error);
  CHECK_THROWS_AS(check_restarts(policy(1, 9)), Error);
}

TEST_CASE("what would fail again is not started again", "[ranks]") {
  Restarts one(policy(9, 1));
  CHECK(one.after(own(2, "no such key"), true, 1) == "an error of usage stays one");
  CHECK(one.after(own(5, "does not fit"), false, 1) == "it failed before its first step, and would again");
  CHECK(one.after(own(7, "loss is NaN"), true, 10).empty());
  CHECK(one.after(own(7, "loss is NaN"), true, 20).empty());  // another step
  CHECK(one.after(own(4, "cannot read"), true, 20).empty());  // another error
  CHECK(one.after(killed_rank(0, SIGSEGV), true, 20).empty());
  CHECK(one.after(own(7, "loss is NaN"), true, 10) == "step 10 failed like this before");
  CHECK(one.after(killed_rank(1, SIGSEGV), true, 21) == "step 21 failed like this before");
  CHECK(one.made() == 4);
  // A kill may come at the same step twice.
  Restarts two(policy(2, 8));
  CHECK(two.after(killed_rank(0), false, 1).empty());
  CHECK(two.after(killed_rank(0), false, 1).empty());
  CHECK(two.after(killed_rank(0), false, 1) == "--restarts 2: all of them are used");
  Restarts three(policy(9, 8));
  Cause memory = killed_rank(0);
  memory.exit = 6;
  CHECK(three.after(memory, true, 3).empty());
  CHECK(three.after(memory, true, 3) == "step 3 failed like this before");
}
