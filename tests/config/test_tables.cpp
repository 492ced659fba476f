// SPDX-License-Identifier: Apache-2.0
// A table within a section is keys with a dot.
#include <catch2/catch.hpp>

#include "config_text.hpp"
#include "support.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

TEST_CASE("one machine, described in every way that TOML has") {
  const std::string texts[] = {"[comm]\ndescribe = { bandwidth = \"25GB\", latency = \"5us\", ranks_per_node = 8 }\n",
                               "[comm.describe]\nbandwidth = \"25GB\"\nlatency = \"5us\"\nranks_per_node = 8\n",
                               "[comm]\ndescribe.bandwidth = 25_000_000_000\ndescribe.latency = 5e-6\n"
                               "describe.ranks_per_node = 8\n"};
  for (const std::string& text : texts) {
    const Config config = parse(with(text));
    const Section& comm = config.section("comm");
    CHECK(comm.integer("describe.bandwidth") == 25'000'000'000);
    CHECK(comm.number("describe.latency") == Approx(5e-6));
    CHECK(comm.integer("describe.ranks_per_node") == 8);
    CHECK(comm.given("describe.latency"));
    CHECK_FALSE(comm.has("describe.flops"));
    // What the command writes reads back.
    const Config again = parse(resolved_text(config));
    CHECK(again.section("comm").integer("describe.bandwidth") == 25'000'000'000);
    CHECK(again.section("comm").number("describe.latency") == comm.number("describe.latency"));
  }
  const Config typed = parse(with(""), {"comm.describe.latency=2us", "comm.describe={flops=1e12, bandwidth=\"1GB\"}"});
  CHECK(typed.section("comm").number("describe.latency") == Approx(2e-6));
  CHECK(typed.section("comm").number("describe.flops") == 1e12);
}

TEST_CASE("what is wrong in a table is told at its key") {
  const auto bad = [](const std::string& text, const std::string& part) {
    CHECK_THAT(problems(with(text)), Contains(part));
  };
  bad("[comm]\ndescribe = { bandwith = \"25GB\" }\n", "did you mean `describe.bandwidth`?");
  bad("[comm]\ndescribe = { latency = \"5 parsecs\" }\n", "`describe.latency` must be of type duration");
  bad("[comm]\ndescribe = { bandwidth = 0 }\n", "`describe.bandwidth` must be at least 1 B");
  bad("[comm]\ndescribe = { latency = { a = 1 } }\n", "`describe.latency` cannot be a table");
  bad("[comm]\ndescribe = {}\n", "unknown key `describe`");
  bad("[comm]\ndescribe = \"h200\"\n", "unknown key `describe`");
  bad("[comm]\ntimeout = { a = 1 }\n", "`timeout` cannot be a table");
}
