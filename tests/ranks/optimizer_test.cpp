// SPDX-License-Identifier: Apache-2.0
// Muon, groups and frozen parameters on two ranks: every strategy leaves the same checkpoint, which goes on with
// another strategy and another number of ranks.
#include "../cli/harness.hpp"

namespace optimizer_test {

using namespace cli;

namespace {

struct Place : Scratch {
  Place() { config(); }
  Result run(const std::string& out, const Args& more, const std::string& strategy, const char* ranks = "2") const {
    Args args = {"run",
                 "config.toml",
                 "--out",
                 out,
                 "--ranks",
                 ranks,
                 "zero.plugin=" + strategy,
                 "zero.bucket=16KiB",
                 "train.steps=2",
                 "checkpoint.every=1",
                 "checkpoint.keep=0"};
    args.insert(args.end(), more.begin(), more.end());
    return engine(*this, args);
  }
};

// All strategies against `none`, then on from the middle.
void everywhere(const Args& more) {
  const Place place;
  for (const std::string strategy : {"none", "zero1", "zero2", "zero3"}) {
    const Result result = place.run(strategy, more, strategy);
    INFO(strategy << "\n" << result.err);
    REQUIRE(result.exit == 0);
    CHECK(engine(place, {"ckpt", "diff", "none", strategy}).exit == 0);
  }
  REQUIRE(engine(place, {"run", "zero3", "--resume", "1", "--ranks", "2", "zero.plugin=zero1"}).exit == 0);
  CHECK(engine(place, {"ckpt", "diff", "none", "zero3"}).exit == 0);
  const Result alone = engine(place, {"run", "zero2", "--resume", "1", "train.micro_batch=8"});
  INFO(alone.err);
  CHECK(alone.exit == 0);
  CHECK(engine(place, {"ckpt", "verify", "zero2"}).exit == 0);
}

}  // namespace

TEST_CASE("muon on two ranks with every strategy", "[ranks][.slow]") {
  everywhere({"optimizer.plugin=muon"});
  everywhere({"optimizer.plugin=muon", "optimizer.products=f32", "optimizer.coefficients=polar_express"});
  everywhere({"optimizer.plugin=normuon"});
}

TEST_CASE("bf16_sr on two ranks with every strategy", "[ranks][.slow]") {
  everywhere({"precision.plugin=bf16_sr", "precision.gradients=bf16"});
  everywhere({"precision.plugin=bf16_sr", "optimizer.plugin=sgd", "optimizer.momentum=0.9"});
}

TEST_CASE("adamw8bit on two ranks with every strategy", "[ranks][.slow]") {
  everywhere({"optimizer.plugin=adamw8bit"});
}

TEST_CASE("a checkpoint of adamw does not go on as adamw8bit, nor the other way round", "[ranks]") {
  const Place place;
  for (const char* plugin : {"adamw", "adamw8bit"}) {
    REQUIRE(place.run(plugin, {std::string("optimizer.plugin=") + plugin}, "none", "1").exit == 0);
    const bool bytes = plugin == std::string("adamw8bit");
    const Result other = engine(
        place, {"run", plugin, std::string("optimizer.plugin=") + (bytes ? "adamw" : "adamw8bit"), "train.steps=3"});
    INFO(other.err);
    CHECK(other.exit != 0);
    CHECK(has(other.err, bytes ? "(exp_avg_codes): this run has no such tensor: another model or optimizer"
                               : "(exp_avg): this run has no such tensor: another model or optimizer"));
  }
}

TEST_CASE("a run of muon that is older than its products goes on in f32", "[ranks]") {
  const Place place;
  for (const char* out : {"old", "new"})
    REQUIRE(place.run(out, {"optimizer.plugin=muon", "optimizer.products=f32"}, "none", "1").exit == 0);
  // The text of an engine that did not have the key.
  std::string text = read(place / "old/config.resolved.toml");
  const size_t line = text.find("\nproducts = ");
  REQUIRE(line != std::string::npos);
  text.erase(line, text.find('\n', line + 1) - line);
  place.write("old/config.resolved.toml", text);
  const Result on = engine(place, {"run", "old", "train.steps=3"});
  INFO(on.err);
  REQUIRE(on.exit == 0);
  CHECK(has(on.err, "optimizer.products = \"f32\", since the run is older than this key"));
  REQUIRE(engine(place, {"run", "new", "train.steps=3"}).exit == 0);
  CHECK(engine(place, {"ckpt", "diff", "new", "old"}).exit == 0);
  // It is written now. Another value changes the numbers, and is told.
  CHECK(has(read(place / "old/config.resolved.toml"), "\nproducts = \"f32\""));
  const Result other = engine(place, {"run", "old", "train.steps=4", "optimizer.products=bf16"});
  CHECK(other.exit == 0);
  CHECK(has(other.err, "optimizer.products = \"bf16\" (\"f32\" before)"));
  REQUIRE(engine(place, {"run", "new", "train.steps=4"}).exit == 0);
  CHECK(engine(place, {"ckpt", "diff", "new", "old"}).exit != 0);
}

TEST_CASE("groups on two ranks with every strategy", "[ranks][.slow]") {
  everywhere({"optimizer.groups=[{match = ['*.mlp.*'], learning_rate_scale = 0.5, weight_decay = 0.0}]"});
}

TEST_CASE("frozen parameters on two ranks with every strategy", "[ranks][.slow]") {
  everywhere({"train.freeze=['model.embed_tokens.*', 'model.layers.0.*']", "optimizer.plugin=muon"});
}

TEST_CASE("ranks whose groups differ do not begin", "[ranks][.slow]") {
  // Frozen and grouped parameters are a part of the configuration that all ranks compare; here those in the run's own.
  const Place place;
  REQUIRE(
      place.run("run", {"train.freeze=['*.mlp.*']", "optimizer.groups=[{match = ['*'], weight_decay = 0}]"}, "zero2")
          .exit == 0);
  const std::string kept = read(place / "run/config.resolved.toml");
  CHECK(has(kept, "freeze = [\"*.mlp.*\"]"));
  CHECK(has(kept, "groups = [{match = [\"*\"], weight_decay = 0.0}]"));
  // Its checkpoints hold no state for what was frozen.
  const Result thawed = engine(place, {"run", "run", "--ranks", "2", "train.freeze=[]", "train.steps=3"});
  CHECK(thawed.exit != 0);
  INFO(thawed.err);
  CHECK(has(thawed.err, "exp_avg"));
}

}  // namespace optimizer_test
