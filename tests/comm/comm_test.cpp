// SPDX-License-Identifier: Apache-2.0
// Ranks under mpirun. Each scenario checks itself (rank_*.cpp); here is how the whole job ends.
#include <future>

#include "job.hpp"

using comm::ends_well;
using comm::fails_well;
using comm::Job;
using comm::run;

TEST_CASE("every collective gives what it must, for 1 to 4 ranks") {
  for (int ranks = 1; ranks <= 4; ++ranks) ends_well(ranks, run(ranks, "right"));
  // Long transfers go in pieces.
  ends_well(3, run(3, "pieces"));
}

// 9 GiB of memory for some seconds; many minutes where other work wants the same cores. Bytes that stand still are
// found by the ranks themselves.
TEST_CASE("more bytes than an int counts go from rank to rank in one call", "[.slow][large]") {
  ends_well(2, run(2, "large", 1800));    // in messages of at most 64 MiB, the default
  ends_well(2, run(2, "largest", 1800));  // of at most 2047 MiB, the most there may be
}

TEST_CASE("ranks that go wrong are named, in time", "[.slow]") {
  // They mostly wait, so they can do it beside each other.
  const auto start = [](int ranks, const char* scenario) {
    return std::async(std::launch::async, [=] { return run(ranks, scenario); });
  };
  auto late = start(3, "late"), elsewhere = start(2, "elsewhere"), executor_late = start(2, "executor_late"),
       aborts = start(3, "aborts"), leaves = start(2, "leaves"), killed = start(2, "killed"),
       missing = start(2, "missing");
  auto vanishes = std::async(std::launch::async, [] { return run(3, "vanishes", 300, "--enable-recovery"); });
  fails_well(3, late.get());
  fails_well(2, elsewhere.get());
  fails_well(2, executor_late.get());
  // One that gives up tells the others why.
  fails_well(3, aborts.get());
  fails_well(2, leaves.get());
  // So does the system, where the launcher is told to let the others be.
  const Job vanish = vanishes.get();
  INFO(vanish.output);
  for (const char* r : {"0", "1", "2"})
    CHECK_THAT(vanish.output, Catch::Contains("rank " + std::string(r) + " is right"));
  const Job kill = killed.get();
  INFO(kill.output);
  CHECK(kill.status == 128 + 9);  // not 124: the other one would stay for ten minutes
  CHECK_THAT(kill.output, Catch::Contains("signal 9"));
  // One that does not start within ten minutes is not waited for.
  const Job miss = missing.get();
  INFO(miss.output);
  CHECK(miss.status == 8);
  CHECK_THAT(miss.output, Catch::Contains("waited 5 s for all ranks to start"));
}
