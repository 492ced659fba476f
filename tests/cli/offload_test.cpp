// SPDX-License-Identifier: Apache-2.0
// [offload]: states on a tier, as people use it.
#include <fmt/format.h>

#include <algorithm>

#include "group.hpp"
#include "harness.hpp"

using namespace cli;

namespace {

Args plus(Args words, const Args& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Args on_host = {"offload.optimizer=host", "offload.gradients=host", "offload.parameters=host",
                      "offload.activations=host"};

}  // namespace

#ifndef SANITIZED  // which takes more memory than such a group may have
TEST_CASE("a control group's memory is a limit that is read beforehand", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Args large = {"check", "config.toml", "model.hidden_size=512", "model.intermediate_size=2048",
                      "offload.optimizer=host"};
  CHECK(engine(scratch, large).exit == 0);
  const std::string bytes = std::to_string(uint64_t{96} << 20);
  const Group group("memory", {"memory.limit_in_bytes", bytes}, {"memory.max", bytes});
  if (!group.there()) {
    WARN("this system permits no control groups: their limits are not tested");
    return;
  }
  const Result refused = engine(scratch, large);
  INFO(refused.err);
  CHECK(refused.exit == 6);
  CHECK(has(refused.err, "device cpu has 96.0 MiB (memory."));
  CHECK(has(refused.err, "of the control group "));
  CHECK(has(refused.err, group.name()));
}
#endif

TEST_CASE("a run with states in host memory has the numbers of one without, and each resumes the other", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Args base = {"run", "config.toml", "precision.plugin=bf16", "checkpoint.every=4", "--out"};
  REQUIRE(engine(scratch, plus(base, {"plain"})).exit == 0);
  REQUIRE(engine(scratch, plus(plus(base, {"host"}), on_host)).exit == 0);
  CHECK(column(scratch / "host", "loss") == column(scratch / "plain", "loss"));
  CHECK(column(scratch / "host", "grad_norm") == column(scratch / "plain", "grad_norm"));
  CHECK(engine(scratch, {"ckpt", "diff", "host", "plain"}).exit == 0);
  // From a checkpoint of the one, the other goes on.
  REQUIRE(engine(scratch, plus(base, {"other", "train.steps=4"})).exit == 0);
  const Result on = engine(scratch, plus({"run", "other", "train.steps=8"}, on_host));
  INFO(on.err);
  REQUIRE(on.exit == 0);
  CHECK(engine(scratch, {"ckpt", "diff", "other", "plain"}).exit == 0);
  REQUIRE(engine(scratch, plus(plus(base, {"back", "train.steps=4"}), on_host)).exit == 0);
  REQUIRE(engine(scratch, {"run", "back", "train.steps=8", "offload.optimizer=none", "offload.master=none",
                           "offload.gradients=none", "offload.parameters=none", "offload.activations=none",
                           "offload.update=device"})
              .exit == 0);
  CHECK(engine(scratch, {"ckpt", "diff", "back", "plain"}).exit == 0);
  // Evaluating and generating take the weights from there, too.
  const Args eval = {"eval", "host", "--json", "--batches", "2"};
  const auto loss = [&](const Args& words) { return Json::parse(engine(scratch, words).out).at("loss"); };
  CHECK(loss(eval) == loss({"eval", "plain", "--json", "--batches", "2"}));
  CHECK(engine(scratch, {"generate", "host", "a", "--tokens", "8", "--seed", "3"}).out ==
        engine(scratch, {"generate", "plain", "a", "--tokens", "8", "--seed", "3"}).out);
}

TEST_CASE("a run whose updates the next step makes has the numbers of one without, and each resumes the other",
          "[cli]") {
  Scratch scratch;
  scratch.config();
  const Args base = {"run",
                     "config.toml",
                     "precision.plugin=bf16",
                     "train.accumulate=2",
                     "train.eval_every=2",
                     "checkpoint.every=3",
                     "--out"},
             late = {"offload.optimizer=host", "offload.update_late=true"};
  REQUIRE(engine(scratch, plus(base, {"plain"})).exit == 0);
  REQUIRE(engine(scratch, plus(plus(base, {"late"}), late)).exit == 0);
  const auto evaluated = [&](const char* run) {
    std::vector<double> out;
    for (const Json& line : metrics(scratch / run))
      if (line.contains("eval_loss")) out.push_back(line.at("eval_loss").get<double>());
    return out;
  };
  CHECK(evaluated("late").size() == 4);
  CHECK(evaluated("late") == evaluated("plain"));
  for (const char* number : {"loss", "grad_norm"})
    CHECK(column(scratch / "late", number) == column(scratch / "plain", number));
  CHECK(engine(scratch, {"ckpt", "diff", "late", "plain"}).exit == 0);
  // It ends after step 5 as if it were killed: what is left of it is the checkpoint of step 3.
  REQUIRE(engine(scratch, plus(plus(base, {"other", "train.steps=5", "checkpoint.last=false"}), late)).exit == 0);
  const Result on = engine(scratch, {"run", "other", "train.steps=8", "checkpoint.last=true"});
  INFO(on.err);
  REQUIRE(on.exit == 0);
  CHECK(engine(scratch, {"ckpt", "diff", "other", "plain"}).exit == 0);
  REQUIRE(engine(scratch, plus(plus(base, {"back", "train.steps=4"}), late)).exit == 0);
  REQUIRE(engine(scratch, {"run", "back", "train.steps=8", "offload.update_late=false"}).exit == 0);
  CHECK(engine(scratch, {"ckpt", "diff", "back", "plain"}).exit == 0);
}

TEST_CASE("a run whose updates begin beside the backward has the numbers of one without, and each resumes the other",
          "[cli]") {
  Scratch scratch;
  scratch.config();
  const Args early = {"offload.optimizer=host", "offload.update_early=true", "offload.early_share=0.6"};
  Args base = {"run", "config.toml", "precision.plugin=bf16", "train.accumulate=2", "checkpoint.every=3", "--out"};
  REQUIRE(engine(scratch, plus(base, {"free", "train.grad_clip=0"})).exit == 0);
  std::vector<double> norms = column(scratch / "free", "grad_norm");
  std::sort(norms.begin(), norms.end());
  // Some steps are clipped.
  base.insert(base.begin() + 2, fmt::format("train.grad_clip={}", (norms[2] + norms[3]) / 2));
  REQUIRE(engine(scratch, plus(base, {"plain"})).exit == 0);
  REQUIRE(engine(scratch, plus(plus(base, {"early"}), early)).exit == 0);
  int again = 0;
  for (const Json& line : metrics(scratch / "early")) again += line.contains("updated_again");
  CHECK((again > 0 && again < 8));
  for (const Json& line : metrics(scratch / "plain")) CHECK_FALSE(line.contains("updated_again"));
  for (const char* number : {"loss", "grad_norm"})
    CHECK(column(scratch / "early", number) == column(scratch / "plain", number));
  CHECK(engine(scratch, {"ckpt", "diff", "early", "plain"}).exit == 0);
  REQUIRE(engine(scratch, plus(plus(base, {"other", "train.steps=5", "checkpoint.last=false"}), early)).exit == 0);
  const Result on = engine(scratch, {"run", "other", "train.steps=8", "checkpoint.last=true"});
  INFO(on.err);
  REQUIRE(on.exit == 0);
  CHECK(engine(scratch, {"ckpt", "diff", "other", "plain"}).exit == 0);
  REQUIRE(engine(scratch, plus(plus(base, {"back", "train.steps=4"}), early)).exit == 0);
  REQUIRE(
      engine(scratch, {"run", "back", "train.steps=8", "--unset", "offload.early_share", "offload.update_early=false"})
          .exit == 0);
  CHECK(engine(scratch, {"ckpt", "diff", "back", "plain"}).exit == 0);
}

TEST_CASE("a run goes on with another ratio and other pieces, and a checkpoint does not tell them", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Args base = {"run", "config.toml", "precision.plugin=bf16", "checkpoint.every=4", "--out"};
  REQUIRE(engine(scratch, plus(base, {"plain"})).exit == 0);
  const Args some = {"offload.optimizer=host", "offload.ratio=0.3", "zero.bucket=16KiB", "train.steps=4"};
  REQUIRE(engine(scratch, plus(plus(base, {"split"}), some)).exit == 0);
  const Result on = engine(
      scratch, {"run", "split", "train.steps=8", "offload.ratio=0.8", "offload.update=device", "zero.bucket=32KiB"});
  INFO(on.err);
  REQUIRE(on.exit == 0);
  CHECK(column(scratch / "split", "loss") == column(scratch / "plain", "loss"));
  CHECK(engine(scratch, {"ckpt", "diff", "split", "plain"}).exit == 0);
  for (const char* file : {"model-00000.safetensors", "optim-00000.safetensors"}) {
    const fs::path step = fs::path("checkpoints") / "step-00000008" / file;
    CHECK(read(scratch / "split" / step) == read(scratch / "plain" / step));
  }
}

TEST_CASE("device.memory bounds what is on the device, and the host holds the rest", "[cli][.slow]") {
  Scratch scratch;
  scratch.config();
  const Args plan = {"plan", "config.toml", "--json", "precision.plugin=bf16"};
  const auto arenas = [&](const Args& more) {
    const Result result = engine(scratch, plus(plan, more));
    INFO(result.err);
    return Json::parse(result.out).at("ranks").at(0).at("arenas");
  };
  const Json all = arenas({}), two = arenas(on_host);
  REQUIRE(all.size() == 1);
  REQUIRE(two.size() == 2);
  CHECK(two.at(1).at("device") == "host");
  CHECK(two.at(1).at("kind") == "tier");
  const auto bytes = two.at(0).at("total").get<uint64_t>();
  CHECK(bytes < all.at(0).at("total").get<uint64_t>());
  const std::string limit = "device.memory=" + std::to_string(bytes) + "B";
  CHECK(Json::parse(engine(scratch, plus(plan, {limit})).out).at("fits") == false);
  CHECK(Json::parse(engine(scratch, plus(plan, plus(on_host, {limit}))).out).at("fits") == true);
  const Args run = {"run", "config.toml", "--out", "run", "precision.plugin=bf16", "train.steps=2", limit};
#ifndef SANITIZED  // it searches for what would fit
  const Result refused = engine(scratch, run);
  CHECK(refused.exit == 5);
  CHECK(has(refused.err, "the plan needs an arena of "));
  CHECK(has(refused.err, "device.memory is "));
#endif
  const Result fits = engine(scratch, plus(run, on_host));
  INFO(fits.err);
  CHECK(fits.exit == 0);
}

TEST_CASE("a tier that does not exist, and an update where no state is", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result none = engine(scratch, {"check", "config.toml", "offload.optimizer=disk"});
  CHECK(none.exit == 2);
  CHECK(has(none.err, "offload.optimizer = \"disk\": there is no such tier"));
  CHECK(has(none.err, "help: tiers: none, host"));
  const Result update = engine(scratch, {"check", "config.toml", "offload.update=host"});
  CHECK(update.exit == 2);
  CHECK(has(update.err, "set offload.optimizer to a tier as well, or remove `update`"));
}

TEST_CASE("an update whose bits depend on the kind of device is refused on the host beside a card", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Args card = {"plan", "config.toml", "device.describe=a800-80g", "offload.optimizer=host"};
  const Result refused = engine(scratch, plus(card, {"optimizer.plugin=muon"}));
  INFO(refused.err);
  CHECK(refused.exit == 2);
  CHECK(has(refused.err, "offload.update = \"host\": the update of muon uses eng.matmul/1"));
  CHECK(has(refused.err, "help: offload.update = \"device\""));
  CHECK(engine(scratch, plus(card, {"optimizer.plugin=muon", "offload.update=device"})).exit == 0);
  for (const char* optimizer : {"adamw", "adamw8bit", "sgd"})
    CHECK(engine(scratch, plus(card, {std::string("optimizer.plugin=") + optimizer})).exit == 0);
  // On the cpu device both are one kernel.
  CHECK(engine(scratch, {"check", "config.toml", "offload.optimizer=host", "optimizer.plugin=muon"}).exit == 0);
}
