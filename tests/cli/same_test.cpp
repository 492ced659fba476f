// SPDX-License-Identifier: Apache-2.0
// Equal runs give equal bits: again, in other micro-batches, and after any interruption.
#include <fmt/format.h>

#include <cmath>
#include <csignal>
#include <random>
#include <thread>

#include "harness.hpp"

using namespace cli;

namespace {

// Undisturbed, to `steps` in RUN.
void straight(const Scratch& scratch, const std::string& run, Args more = {}) {
  Args args = {"run", "config.toml", "--out", run};
  args.insert(args.end(), more.begin(), more.end());
  const Result result = engine(scratch, args);
  INFO(result.err);
  REQUIRE(result.exit == 0);
}

void check_same(const Scratch& scratch, const std::string& a, const std::string& b, int64_t step) {
  CHECK(numbers(scratch / a) == numbers(scratch / b));
  const auto one = tensors(scratch / a, step), two = tensors(scratch / b, step);
  REQUIRE(one.size() == 2);
  CHECK((one == two));
}

void check_near(const std::vector<double>& a, const std::vector<double>& b, double limit) {
  REQUIRE(a.size() == b.size());
  for (size_t k = 0; k < a.size(); ++k) {
    INFO("step " << k + 1 << ": " << a[k] << " and " << b[k]);
    CHECK(std::abs(a[k] - b[k]) <= limit * std::abs(b[k]));
  }
}

}  // namespace

TEST_CASE("a run done twice gives the same bits, with another seed others", "[cli]") {
  Scratch scratch;
  scratch.config();
  straight(scratch, "a");
  straight(scratch, "b");
  check_same(scratch, "a", "b", 8);
  CHECK(numbers(scratch / "a").size() == 8);
  straight(scratch, "c", {"train.seed=2"});
  CHECK(numbers(scratch / "a") != numbers(scratch / "c"));
  CHECK((tensors(scratch / "a", 8) != tensors(scratch / "c", 8)));
}

TEST_CASE("two threads give the same bits twice", "[cli][.slow]") {
  Scratch scratch;
  scratch.config();
  straight(scratch, "a", {"device.threads=2", "train.steps=4"});
  straight(scratch, "b", {"device.threads=2", "train.steps=4"});
  check_same(scratch, "a", "b", 4);
}

TEST_CASE("micro-batch 8 x 1 is 2 x 4", "[cli]") {
  Scratch scratch;
  scratch.config();
  straight(scratch, "one", {"train.micro_batch=8", "train.accumulate=1", "train.steps=20", "train.eval_every=0"});
  straight(scratch, "four", {"train.micro_batch=2", "train.accumulate=4", "train.steps=20", "train.eval_every=0"});
  const auto losses = column(scratch / "one", "loss"), norms = column(scratch / "one", "grad_norm");
  const auto losses4 = column(scratch / "four", "loss"), norms4 = column(scratch / "four", "grad_norm");
  check_near({losses4[0], norms4[0]}, {losses[0], norms[0]}, 1e-6);
  check_near(losses4, losses, 1e-5);
  // Other data is further away than that.
  straight(scratch, "other", {"train.micro_batch=4", "train.accumulate=1", "train.steps=1"});
  CHECK(std::abs(column(scratch / "other", "loss")[0] - losses[0]) > 1e-5 * losses[0]);
}

TEST_CASE("2N steps are N, a checkpoint, and N more", "[cli]") {
  Scratch scratch;
  scratch.config();
  const std::string schedule = "schedule.kind=constant";
  straight(scratch, "whole", {schedule});
  straight(scratch, "halves", {schedule, "train.steps=4"});
  const Result more = engine(scratch, {"run", "halves", "train.steps=8"});
  INFO(more.err);
  CHECK(more.exit == 0);
  check_same(scratch, "whole", "halves", 8);
}

TEST_CASE("with another batch a run goes on where it was in the data", "[cli]") {
  Scratch scratch;
  scratch.config();
  // Weights that stay as they are: a loss says which samples it is of.
  const Args still = {"optimizer.learning_rate=1e-30", "schedule.kind=constant", "schedule.min_learning_rate=0",
                      "train.micro_batch=4",           "train.accumulate=1",     "train.eval_every=0"};
  const auto go = [&](const char* run, Args more) {
    more.insert(more.end(), still.begin(), still.end());
    straight(scratch, run, more);
  };
  go("small", {"train.steps=4"});
  go("large", {"train.steps=2"});
  const Result more = engine(scratch, {"run", "large", "train.steps=3", "train.accumulate=2"});
  INFO(more.err);
  REQUIRE(more.exit == 0);
  const auto small = column(scratch / "small", "loss"), large = column(scratch / "large", "loss");
  check_near({large[2]}, {(small[2] + small[3]) / 2}, 1e-6);
  CHECK(column(scratch / "large", "tokens")[2] == column(scratch / "small", "tokens")[3]);
}

TEST_CASE("dropout is the same after a checkpoint, again, and in other micro-batches", "[cli]") {
  Scratch scratch;
  scratch.write("config.toml", R"([model]
plugin = "opt"
preset = "tiny"
num_hidden_layers = 2
hidden_size = 32
ffn_dim = 64
num_attention_heads = 2
dropout = 0.2

[data]
paths = ["text.txt"]

[train]
steps = 8
micro_batch = 2
sequence_length = 32

[optimizer]
learning_rate = 3e-3

[schedule]
kind = "constant"

[device]
threads = 1
)");
  straight(scratch, "whole");
  straight(scratch, "again");
  check_same(scratch, "whole", "again", 8);
  straight(scratch, "halves", {"train.steps=4"});
  const Result more = engine(scratch, {"run", "halves", "train.steps=8"});
  INFO(more.err);
  CHECK(more.exit == 0);
  check_same(scratch, "whole", "halves", 8);
  straight(scratch, "one", {"train.micro_batch=8"});
  straight(scratch, "four", {"train.accumulate=4"});
  check_near(column(scratch / "four", "loss"), column(scratch / "one", "loss"), 1e-5);
  straight(scratch, "without", {"model.dropout=0"});
  CHECK(numbers(scratch / "whole") != numbers(scratch / "without"));
}

TEST_CASE("what the backward makes again changes no bit", "[cli][.slow]") {
  for (const std::string model : {"llama", "opt", "mamba"}) {
    INFO(model);
    Scratch scratch;
    scratch.write("config.toml", fmt::format(R"([model]
plugin = "{}"
preset = "tiny"
num_hidden_layers = 4
{}

[data]
paths = ["text.txt"]

[train]
steps = 6
micro_batch = 2
accumulate = 2
sequence_length = 32
eval_every = 3
eval_batches = 1

[schedule]
kind = "constant"

[device]
threads = 1
)",
                                             model, model == "opt" ? "dropout = 0.1" : ""));
    straight(scratch, "none");
    const auto same = [&](const std::string& run) {
      for (const char* name : {"loss", "grad_norm"})
        CHECK(column(scratch / "none", name) == column(scratch / run, name));
      CHECK((tensors(scratch / "none", 6) == tensors(scratch / run, 6)));
    };
    for (const std::string key : {"policy=full", "every=2", "blocks=1", "blocks=3"}) {
      INFO(key);
      straight(scratch, key, {"recompute." + key});
      same(key);
    }
    const Result plan = engine(scratch, {"plan", "config.toml", "--json"});
    const auto kept = Json::parse(plan.out).at("kept_activation_bytes").get<int64_t>();
    straight(scratch, "budget", {fmt::format("recompute.budget={}", kept / 2)});
    same("budget");
    // From one step to the next.
    straight(scratch, "halves", {"recompute.policy=full", "train.steps=3"});
    const Result more = engine(scratch, {"run", "halves", "train.steps=6", "recompute.policy=none"});
    INFO(more.err);
    CHECK(more.exit == 0);
    same("halves");
  }
}

namespace {

// Kills a run once `ready` of it is there, lets it go on, and compares with the undisturbed one.
template <class Ready>
void kill_and_go_on(const Scratch& scratch, const std::string& run, Ready ready) {
  {
    Child child(scratch, {"run", "config.toml", "--out", run, "train.steps=12", "checkpoint.every=3"});
    ready(child);
    child.signal(SIGKILL);
    const Result killed = child.wait();
    INFO(killed.err);
    CHECK((killed.exit == 137 || killed.exit == 0));
  }
  const Result more = engine(scratch, {"run", "config.toml", "--out", run, "train.steps=12", "checkpoint.every=3"});
  INFO(more.err);
  REQUIRE(more.exit == 0);
  check_same(scratch, "whole", run, 12);
}

}  // namespace

TEST_CASE("kill -9 between checkpoints changes nothing", "[cli]") {
  Scratch scratch;
  scratch.config();
  straight(scratch, "whole", {"train.steps=12", "checkpoint.every=3"});
  kill_and_go_on(scratch, "killed", [](Child& child) { REQUIRE(child.wait_for("step 5/12")); });
  CHECK(state(scratch / "killed").at("attempt") == 2);
}

TEST_CASE("kill -9 at any time changes nothing", "[cli][.slow]") {
  Scratch scratch;
  scratch.config();
  straight(scratch, "whole", {"train.steps=12", "checkpoint.every=3"});
  std::mt19937 random(7);
  for (int k = 0; k < 25; ++k) {
    const auto after = std::chrono::milliseconds(random() % 400);
    INFO("killed after " << after.count() << " ms");
    kill_and_go_on(scratch, "killed-" + std::to_string(k), [&](Child&) { std::this_thread::sleep_for(after); });
  }
}
