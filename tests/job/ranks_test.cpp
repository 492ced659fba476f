// SPDX-License-Identifier: Apache-2.0
// A job on two ranks: whichever way states are distributed, the bits are the same; also if one rank is killed.
#include <signal.h>

#include "analyses.hpp"

using namespace job_test;

namespace {

const Args two = {"--ranks", "2", "--oversubscribe", "device.threads=1"};

}  // namespace

TEST_CASE("two ranks give the same bits with every strategy", "[job][.slow]") {
  Scratch scratch;
  scratch.config();
  const auto plain = analysed(scratch, "none", two);
  const auto sites = result(scratch / "none", "sites.txt");
  CHECK(plain.at("parameters") == analysed(scratch, "one").at("parameters"));
  for (const char* strategy : {"zero1", "zero2", "zero3"}) {
    INFO(strategy);
    CHECK(analysed(scratch, strategy, with(two, {std::string("zero.plugin=") + strategy})) == plain);
    CHECK(result(scratch / strategy, "sites.txt") == sites);
    CHECK(result(scratch / strategy, "written.txt").at("back") == "0000000000000001");
  }
  CHECK(analysed(scratch, "with tiers",
                 with(two, {"zero.plugin=zero3", "offload.optimizer=host", "recompute.policy=full"})) == plain);
  const Json facts = Json::parse(read(scratch / "zero3" / "facts.json"));
  CHECK(facts.at("ranks") == 2);
  CHECK(facts.at("zero") == "zero3");
}

TEST_CASE("two ranks have the losses of all positions", "[job]") {
  Scratch scratch;
  scratch.config();
  const Args zero3 = with(two, {"zero.plugin=zero3"});
  const Result done = engine(scratch, words(with({"config.toml", "--job", "positions", "--out", "out"}, zero3)));
  INFO(done.err);
  REQUIRE(done.exit == 0);
  CHECK(read(scratch / "out" / "positions.txt") == "agree 1\ncounted 1\nfollow 1\nsilent 1\n");
}

TEST_CASE("two ranks that were stopped go on with the same bits", "[job][.slow]") {
  Scratch scratch;
  scratch.config();
  const Args turns = with(two, {"job.turns=5", "zero.plugin=zero3"});
  const auto whole = analysed(scratch, "whole", turns);
  Child child(scratch, words(with({"config.toml", "--job", "fixture", "--out", "part", "job.pause=400"}, turns)));
  REQUIRE(child.wait_for_path(scratch / "part" / "checkpoints" / "step-00000002" / "manifest.json"));
  child.signal(SIGINT);
  const Result stopped = child.wait();
  INFO(stopped.err);
  REQUIRE(stopped.exit == 75);
  CHECK(has(stopped.err, "engine analyse part --ranks 2"));
  const Result alone = engine(scratch, words({"part"}));
  CHECK(alone.exit == 2);
  CHECK(has(alone.err, "part began with 2 ranks, now there are 1"));
  const Result on = engine(scratch, words(with({"part"}, {"--ranks", "2", "--oversubscribe"})));
  INFO(on.err);
  REQUIRE(on.exit == 0);
  CHECK(result(scratch / "part") == whole);
}

TEST_CASE("windows of a gradient that ranks cannot divide are reported", "[job]") {
  Scratch scratch;
  scratch.config();
  const Result result =
      engine(scratch, words(with({"config.toml", "--job", "fixture", "--out", "out", "job.windows=3"}, two)));
  INFO(result.err);
  CHECK(result.exit == 2);
  CHECK(has(result.err, "a gradient of 3 windows cannot be divided into micro-batches of 1 on 2 ranks"));
}
