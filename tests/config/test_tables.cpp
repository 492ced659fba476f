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

namespace {

// The usual plugins, and a transform `path`.
const SchemaSource& with_path() {
  static const PluginSchema path = [] {
    Option rank{"rank", Type::integer, int64_t{8}};
    rank.min = 1;
    return PluginSchema{{rank}, {}};
  }();
  static const SchemaSource all = [] {
    SchemaSource out = plugins();
    out.find = [](const std::string& kind, const std::string& name) -> const PluginSchema* {
      if (kind == "eng.transform/1") return name == "path" ? &path : nullptr;
      return plugins().find(kind, name);
    };
    out.names = [](const std::string& kind) {
      return kind == "eng.transform/1" ? std::vector<std::string>{"path"} : plugins().names(kind);
    };
    return out;
  }();
  return all;
}

}  // namespace

TEST_CASE("[adapter] is the short form of one transform") {
  const std::string keys = "plugin = \"path\"\ntargets = [\"*.q\"]\nrank = 4\n", longer = "[[transforms]]\n" + keys;
  const auto list = [](const std::string& text, const std::vector<std::string>& overrides = {}) {
    return parse(with(text), overrides, with_path()).section("transforms").as<Tables>("list");
  };
  CHECK(list("[adapter]\n" + keys) == list(longer));
  CHECK(list("", {"adapter.plugin=path", "adapter.targets=[\"*.q\"]", "adapter.rank=4"}) == list(longer));
  CHECK(list("[adapter]\n" + keys, {"adapter.rank=2"})[0].values.at("rank") == Value(int64_t{2}));
  // The text that the command writes has the long form, and reads back.
  const Config config = parse(with("[adapter]\n" + keys), {}, with_path());
  CHECK(parse(resolved_text(config), {}, with_path()).section("transforms").as<Tables>("list") == list(longer));
  const Config plain = parse(with(""), {}, with_path());
  CHECK(parse(resolved_text(plain), {"adapter.plugin=path"}, with_path()).section("transforms").given("list"));

  const auto bad = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK_THAT(problems(with(text), {}, with_path()), Contains(part));
  };
  bad("[adapter]\n" + keys + longer, "error[E0113]: [adapter] and [[transforms]] are both given");
  bad("[adapter]\n" + keys + longer, "6 | [adapter]");
  bad("[adapter]\nrank = 4\n", "[[transforms]] 1: it needs `plugin`");
  bad("[adapter]\nplugin = \"path\"\nrnk = 4\n", "[[transforms]] 1: `rnk` is unknown");
  bad("[adapter]\nplugin = \"path\"\nrank = 2026-01-01\n", "[adapter] `rank` cannot be a date or time");
  bad("[[adapter]]\nplugin = \"path\"\n", "write [adapter], with single brackets");
  bad("[adaptor]\nplugin = \"path\"\n", "did you mean `adapter`?");
}
