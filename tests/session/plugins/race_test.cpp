// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <catch2/catch.hpp>

#include "race.hpp"

TEST_CASE("another user who exchanges folders never gets a plugin loaded, in 10,000 tries each", "[.slow]") {
  if (geteuid() != 0) {
    WARN("SKIPPED: a race of two users needs root; run it as root, or in a container");
    return;
  }
  CHECK(race::run(10'000, [](const std::string& line) { WARN(line); }) == "");
}
