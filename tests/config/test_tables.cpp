// SPDX-License-Identifier: Apache-2.0
// A table within a section is keys with a dot.
#include <catch2/catch.hpp>

#include "session/config/config_text.hpp"
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
    // The text that the command writes reads back.
    const Config again = parse(resolved_text(config));
    CHECK(again.section("comm").integer("describe.bandwidth") == 25'000'000'000);
    CHECK(again.section("comm").number("describe.latency") == comm.number("describe.latency"));
  }
  const Config typed = parse(with(""), {"comm.describe.latency=2us", "comm.describe={flops=1e12, bandwidth=\"1GB\"}"});
  CHECK(typed.section("comm").number("describe.latency") == Approx(2e-6));
  CHECK(typed.section("comm").number("describe.flops") == 1e12);
}

TEST_CASE("a mistake in a table is reported at its key") {
  const auto bad = [](const std::string& text, const std::string& part) {
    CHECK_THAT(problems(with(text)), Contains(part));
  };
  bad("[comm]\ndescribe = { bandwith = \"25GB\" }\n", "did you mean `describe.bandwidth`?");
  bad("[comm]\ndescribe = { latency = \"5 parsecs\" }\n", "`describe.latency` must be of type duration");
  bad("[comm]\ndescribe = { bandwidth = 0 }\n", "`describe.bandwidth` must be at least 1 B");
  bad("[comm]\ndescribe = { latency = { a = 1 } }\n", "`describe.latency` cannot be a table");
  bad("[comm]\ndescribe = {}\n", "`describe` belongs to [device], not [comm]");
  bad("[comm]\ndescribe = \"h200\"\n", "`describe` belongs to [device], not [comm]");
  bad("[comm]\ntimeout = { a = 1 }\n", "`timeout` cannot be a table");
}

TEST_CASE("groups of parameters, in every way that TOML has") {
  const std::string lines =
      "[[optimizer.groups]]\nmatch = [\"*.bias\"]\nweight_decay = 0\n"
      "[[optimizer.groups]]\nmatch = [\"a.*\", \"b?\"]\nlearning_rate_scale = 0.5\n";
  const std::string list =
      "[optimizer]\ngroups = [{match = [\"*.bias\"], weight_decay = 0.0}, {match = [\"a.*\", \"b?\"], "
      "learning_rate_scale = 0.5}]\n";
  const Tables expected = {
      {{{"match", std::vector<std::string>{"*.bias"}}, {"weight_decay", 0.0}}},
      {{{"match", std::vector<std::string>{"a.*", "b?"}}, {"learning_rate_scale", 0.5}}},
  };
  for (const std::string& text : {lines, list}) {
    const Config config = parse(with(text));
    CHECK(config.section("optimizer").as<Tables>("groups") == expected);
    CHECK(config.section("optimizer").given("groups"));
    // The text that the command writes reads back, and ranks compare the same.
    CHECK_THAT(resolved_text(config), Contains("groups = [{match = [\"*.bias\"], weight_decay = 0.0}, "
                                               "{learning_rate_scale = 0.5, match = [\"a.*\", \"b?\"]}]"));
    CHECK(parse(resolved_text(config)).section("optimizer").as<Tables>("groups") == expected);
  }
  const Config typed = parse(with(lines), {"optimizer.groups=[{match=[\"x\"]}]"});
  CHECK(typed.section("optimizer").as<Tables>("groups").size() == 1);
  CHECK(parse(with("")).section("optimizer").as<Tables>("groups").empty());
  CHECK(parse(with("[optimizer]\ngroups = []\n")).section("optimizer").as<Tables>("groups").empty());
}

TEST_CASE("a mistake in a group is reported") {
  const auto bad = [](const std::string& group, const std::string& part) {
    INFO(group);
    CHECK_THAT(problems(with("[[optimizer.groups]]\nmatch = [\"x\"]\n[[optimizer.groups]]\n" + group)), Contains(part));
  };
  bad("match = [\"x\"]\nweight_decey = 0\n", "group 2 of `groups`: `weight_decey` is unknown");
  bad("match = [\"x\"]\nweight_decey = 0\n", "did you mean `weight_decay`?");
  bad("match = [\"x\"]\nbeta1 = 0.5\n", "group 2 of `groups`: `beta1` cannot differ between groups");
  bad("match = [\"x\"]\nbeta1 = 0.5\n", "a group has: match, learning_rate_scale, weight_decay");
  bad("match = [\"x\"]\nweight_decay = 11\n", "`weight_decay` must be at least 0, at most 10, not integer 11");
  bad("match = [\"x\"]\nlearning_rate_scale = -1\n", "`learning_rate_scale` must be at least 0, not integer -1");
  bad("match = \"x\"\n", "`match` must be of type list of strings, not string");
  bad("weight_decay = 0\n", "group 2 of `groups` needs `match`");
  bad("match = []\n", "group 2 of `groups` needs `match`");
  bad("match = [\"x\"]\nweight_decay = { a = 1 }\n",
      "`groups` cannot be a list of tables with a table in `weight_decay`");
  CHECK_THAT(problems(with("[optimizer]\ngroups = 3\n")),
             Contains("`groups` must be of type list of tables, not integer 3"));
  CHECK_THAT(problems(with("[train]\nsteps = [{a = 1}]\n")),
             Contains("`steps` must be of type integer, not list of tables"));
}
