// SPDX-License-Identifier: Apache-2.0
// train.epochs: how many steps they are, in a run, in a plan, and after a resumption.
#include "session/train/epochs.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "session/config/problem_text.hpp"
#include "session/config/source.hpp"
#include "tests/session/built.hpp"
#include "tests/session/runs.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Matchers::Contains;

TEST_CASE("epochs: whole steps, rounded up once", "[epochs]") {
  CHECK(steps_of(1, 100, 10) == 10);
  CHECK(steps_of(1, 101, 10) == 11);
  CHECK(steps_of(3, 101, 10) == 31);  // not 3 x 11
  CHECK(steps_of(0.5, 101, 10) == 6);
  CHECK(steps_of(0.07, 100, 1) == 7);  // 7.000000000000001 in binary
  CHECK(steps_of(0.001, 10, 10) == 1);
  CHECK(steps_of(2, 1, 64) == 1);
  CHECK_THAT(refusal(Exit::usage, [] { steps_of(1e6, 1 << 30, 1); }), Contains("1.07e+15 steps; at most 10^9"));
}

TEST_CASE("epochs: a run takes the steps that its data and its batch give", "[epochs]") {
  const Folder folder;
  const std::vector<std::string> by_epochs = {"-train.steps", "train.epochs=0.25", "train.eval_every=0",
                                              "schedule.kind=linear", "checkpoint.every=0"};
  const auto request = [&](const char* name, std::vector<std::string> more = {}) {
    more.insert(more.end(), by_epochs.begin(), by_epochs.end());
    RunRequest out = folder.request("config.toml", more);
    out.out = folder / name;
    return out;
  };
  Heard whole, by_steps;
  run(request("whole"), whole);
  const auto steps = static_cast<int64_t>(whole.losses.size());
  const Document resolved = read_document(folder / "whole" / "config.resolved.toml");
  REQUIRE(resolved.value<int64_t>("train", "steps"));
  CHECK(*resolved.value<int64_t>("train", "steps") == steps);
  RunRequest other = folder.request("config.toml", {"train.steps=" + std::to_string(steps), "train.eval_every=0",
                                                    "schedule.kind=linear", "checkpoint.every=0"});
  other.out = folder / "steps";
  run(other, by_steps);
  CHECK(whole.losses == by_steps.losses);
  CHECK(whole.rates == by_steps.rates);  // the schedule ends with the last epoch

  // Twice the batch, half the steps.
  Heard wide;
  run(request("wide", {"train.accumulate=2"}), wide);
  CHECK(static_cast<int64_t>(wide.losses.size()) == (steps + 1) / 2);

  // Resumed, it goes on to the end of the same epoch, or of another number of them.
  Heard half, rest, more;
  half.stop_after = 3;
  CHECK(run(request("half"), half).exit == Exit::stopped);
  CHECK(run(folder.request("half"), rest).exit == Exit::done);
  half.losses.insert(half.losses.end(), rest.losses.begin(), rest.losses.end());
  CHECK(half.losses == whole.losses);
  run(folder.request("half", {"train.epochs=0.5"}), more);
  CHECK(std::abs(static_cast<int64_t>(more.losses.size()) - steps) <= 1);

  // With another batch the steps of all epochs cannot be counted: the error says how many are left.
  const std::string why = refusal(Exit::usage, [&] { run(folder.request("whole", {"train.accumulate=2"}), more); });
  CHECK_THAT(why, Contains("train.epochs counts steps of 4 samples, but the " + std::to_string(steps) +
                           " steps so far took " + std::to_string(2 * steps) + " samples"));
  try {
    run(folder.request("whole", {"train.steps=9"}), more);
    FAIL("both are accepted");
  } catch (const ConfigError& e) {
    CHECK_THAT(tell(e), Contains("`epochs` and `steps` are both given") && Contains("--unset train.epochs"));
  }
}

TEST_CASE("epochs: packed documents are counted as well", "[epochs]") {
  const Folder folder;
  RunRequest request = folder.request("config.toml", {"-train.steps", "train.epochs=0.1", "data.pack=true",
                                                      "data.validation=0", "train.eval_every=0"});
  request.out = folder / "packed";
  Heard heard;
  CHECK(run(request, heard).exit == Exit::done);
  CHECK(heard.losses.size() > 2);
}

TEST_CASE("epochs: a plan without the data says that the steps are not known", "[epochs]") {
  const std::string model = "[model]\nplugin = \"llama\"\npreset = \"tiny\"\n";
  Config none = built_config(model + "[train]\nepochs = 2\n");
  CHECK_THAT(try_count_steps(none, built_plugins(), 1), Contains("1000 are planned: there is no [data]"));
  Config gone = built_config(model + "[data]\npaths = [\"gone.txt\"]\n[train]\nepochs = 2\n");
  CHECK_THAT(try_count_steps(gone, built_plugins(), 1), Contains("not known here") && Contains("no file /gone.txt"));
  Config without = built_config(model);
  CHECK(try_count_steps(without, built_plugins(), 1).empty());
  const Folder folder;
  Config here = built_config(model + "[data]\npaths = [\"" + (folder / "text.txt").string() +
                             "\"]\n[train]\nepochs = 2\nsequence_length = 16\nmicro_batch = 2\n");
  const std::string text = try_count_steps(here, built_plugins(), 2);
  const auto steps = here.section("train").integer("steps");
  CHECK(text.starts_with("2 epochs of "));
  CHECK_THAT(text, Contains(" samples, 4 in a step: " + std::to_string(steps) + " steps"));
  CHECK(here.section("train").settings().at("steps").origin == "derived");
}
