// SPDX-License-Identifier: Apache-2.0
// [checkpoint] memory_every: ranks that are killed at random places, and runs that go on from the memory of their host.
#include "killed.hpp"

using namespace cli;

namespace {

const Args in_memory = {"checkpoint.every=100", "checkpoint.memory_every=1"};

Args with(Args words, const Args& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<std::string> left_in_memory() {
  std::vector<std::string> out = names("/dev/shm");
  std::erase_if(out, [](const std::string& name) { return !name.starts_with("engine-copies-"); });
  return out;
}

}  // namespace

TEST_CASE("a rank that is killed anywhere costs no step, with the same bits", "[ranks][kill][.slow]") {
  Scratch scratch;
  write_config(scratch);
  const std::vector<std::string> before = left_in_memory();
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  for (const int ranks : {2, 3}) {
    const std::string n = std::to_string(ranks), whole = "whole" + n;
    REQUIRE(train(scratch, {"run", "config.toml", "--out", whole, "--ranks", n}).exit == 0);
    for (int k = 0; k < 4; ++k) {
      const Place place = random_place(random, ranks);
      const std::string run = "run" + n + std::to_string(k);
      INFO("seed " << seed << ", " << ranks << " ranks, rank " << place.rank << ", " << place.where << " of step "
                   << place.step);
      fs::remove(scratch / "killed");
      const Result result =
          train(scratch, {"run", "config.toml", "--out", run, "--ranks", n, "--restarts", "1", "--min-ranks", n},
                with(in_memory, place.words()));
      INFO(result.err);
      REQUIRE(result.exit == 0);
      CHECK(fs::exists(scratch / "killed"));
      same_bits(scratch, scratch / run, scratch / whole);
      const std::vector<Json> told = events(scratch / run);
      REQUIRE(told.size() == 2);
      const std::string last = "step-0000000" + std::to_string(place.step - 1);
      if (place.step > 1) {
        CHECK(has(result.err, "restart 1 of 1: " + n + " ranks, from " + last + " (in memory)"));
        CHECK(has(result.err, "note: " + last + " was only in memory ("));
        CHECK(has(result.err, "resumes from " + last));
        CHECK(told[0].at("checkpoint") == last);
        CHECK(told[0].at("in_memory") == true);
        CHECK(names(scratch / run / "checkpoints") == std::vector<std::string>{last, "step-00000006"});
      }
      CHECK(told[0].at("steps_lost") == 0);
      CHECK(left_in_memory() == before);
    }
  }
}

TEST_CASE("the ranks that are left go on from memory as from a checkpoint of that step", "[ranks][kill][.slow]") {
  Scratch scratch;
  write_config(scratch);
  const Result result = train(scratch, {"run", "config.toml", "--out", "run", "--ranks", "3", "--restarts", "1"},
                              with(in_memory, Place{1, 4, "backward"}.words()));
  INFO(result.err);
  REQUIRE(result.exit == 0);
  CHECK(has(result.err,
            "restart 1 of 1: 2 ranks instead of 3, from step-00000003 (in memory); 3 steps done before, 0 of "
            "them again"));
  REQUIRE(train(scratch, {"run", "config.toml", "--out", "whole", "--ranks", "3", "checkpoint.every=3"}).exit == 0);
  REQUIRE(train(scratch, {"run", "whole", "--resume", "3", "--ranks", "2", "train.global_batch=12", "--unset",
                          "train.accumulate"})
              .exit == 0);
  same_bits(scratch, scratch / "run", scratch / "whole");
}

TEST_CASE("one rank that is killed goes on from memory too, by hand", "[ranks][kill][.slow]") {
  Scratch scratch;
  scratch.config();
  const Args words = {"run", "config.toml", "--out", "run", "train.eval_every=0", "train.steps=100000"};
  Child child(scratch, with(words, in_memory));
  REQUIRE(child.wait_for("step 5/"));
  child.signal(SIGKILL);
  CHECK(child.wait().killed);
  CHECK(names(scratch / "run" / "checkpoints").empty());
  // Only the newest step is looked for; none of them is on the disk.
  CHECK(engine(scratch, {"run", "run", "--resume", "3"}).exit == 9);
  const size_t made = metrics(scratch / "run").size();
  const std::string steps = "train.steps=" + std::to_string(made + 3);
  const Result on = good(scratch, {"run", "run", steps});
  INFO(on.err);
  CHECK(has(on.err, "note: step-0"));
  CHECK(has(on.err, " was only in memory ("));
  good(scratch, {"run", "config.toml", "--out", "whole", "train.eval_every=0", steps});
  CHECK(column(scratch / "run", "loss") == column(scratch / "whole", "loss"));
  good(scratch, {"ckpt", "diff", (scratch / "run").string(), (scratch / "whole").string()});
}

TEST_CASE("copies in memory that cannot be are refused before anything is made", "[ranks]") {
  Scratch scratch;
  scratch.config();
  const Result nothing = engine(
      scratch, {"check", "config.toml", "checkpoint.memory_every=1", "checkpoint.every=0", "checkpoint.last=false"});
  CHECK(nothing.exit == 2);
  CHECK(has(nothing.err, "checkpoint.memory_every: the run saves nothing"));
  CHECK(has(good(scratch, {"plan", "config.toml", "checkpoint.memory_every=1"}).out, "copies in memory "));
}
