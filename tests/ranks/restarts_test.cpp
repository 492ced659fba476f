// SPDX-License-Identifier: Apache-2.0
// engine run --restarts: ranks that are killed at random places, and errors that come again.
#include <signal.h>

#include <cmath>

#include "killed.hpp"

using namespace cli;

TEST_CASE("mistakes with --restarts are reported before anything is started", "[ranks]") {
  Scratch scratch;
  scratch.config();
  const auto refused = [&](Args words, const std::string& text) {
    words.insert(words.begin(), {"run", "config.toml"});
    const Result run = engine(scratch, words, {.path = "/nowhere"});
    INFO(run.err);
    CHECK(run.exit == 2);
    CHECK(has(run.err, text));
    CHECK_FALSE(has(run.err, "restart 1"));
  };
  refused({"--restarts", "2"}, "add --ranks N");
  refused({"--ranks", "1", "--restarts", "2"}, "add --ranks N");
  refused({"--ranks", "2", "--min-ranks", "2"}, "--min-ranks is for --restarts");
  refused({"--ranks", "2", "--restarts", "1", "--min-ranks", "3"}, "--min-ranks 3 is not between 1 and --ranks 2");
  refused({"--ranks", "4", "--restarts", "1", "--min-ranks", "3", "train.accumulate=1"},
          "which 3 ranks cannot share evenly");
  refused({"--ranks", "4", "--restarts", "1", "--min-ranks", "3", "train.accumulate=1"},
          "numbers of ranks that can: 1, 2, 4; with --min-ranks 4 all ranks are always started again");
  refused({"--ranks", "2", "--restarts", "2", "train.stepz=1"}, "did you mean `steps`?");
  CHECK(names(scratch / "runs").empty());
}

TEST_CASE("a rank that is killed anywhere is replaced, with the same bits", "[ranks][kill][.slow]") {
  Scratch scratch;
  write_config(scratch);
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  for (const int ranks : {2, 3}) {
    const std::string n = std::to_string(ranks), whole = "whole" + n;
    REQUIRE(train(scratch, {"run", "config.toml", "--out", whole, "--ranks", n}).exit == 0);
    for (int k = 0; k < 3; ++k) {
      const Place place = random_place(random, ranks);
      const std::string run = "run" + n + std::to_string(k);
      INFO("seed " << seed << ", " << ranks << " ranks, rank " << place.rank << ", " << place.where << " of step "
                   << place.step);
      fs::remove(scratch / "killed");
      const Result result =
          train(scratch, {"run", "config.toml", "--out", run, "--ranks", n, "--restarts", "1", "--min-ranks", n},
                place.words());
      INFO(result.err);
      REQUIRE(result.exit == 0);
      CHECK(fs::exists(scratch / "killed"));
      CHECK(has(result.err, "error: rank " + std::to_string(place.rank) + " (process "));
      CHECK(has(result.err, "restart 1 of 1: " + n + " ranks, from "));
      same_bits(scratch, scratch / run, scratch / whole);
      const std::vector<Json> told = events(scratch / run);
      REQUIRE(told.size() == 2);
      CHECK(told[0].at("event") == "restart");
      CHECK(told[0].at("rank") == place.rank);
      CHECK(told[0].at("signal") == SIGKILL);
      CHECK(told[0].at("ranks") == ranks);
      const int64_t last = (place.step - 1) / 2 * 2;  // the checkpoint
      if (last)
        CHECK(told[0].at("checkpoint") == "step-0000000" + std::to_string(last));
      else
        CHECK(told[0].at("checkpoint").is_null());
      CHECK(told[0].at("steps_lost") == told[0].at("step").get<int64_t>() - last);
      CHECK(told[1].at("event") == "rate");
      CHECK(told[1].at("tokens_per_second").get<double>() > 0);
      CHECK(all_gone((scratch / run).string(), 2));
    }
  }
}

TEST_CASE("without a rank that was lost the others make the same steps", "[ranks][kill][.slow]") {
  Scratch scratch;
  write_config(scratch);
  REQUIRE(train(scratch, {"run", "config.toml", "--out", "whole", "--ranks", "3"}).exit == 0);
  const Result result = train(scratch, {"run", "config.toml", "--out", "run", "--ranks", "3", "--restarts", "1"},
                              Place{1, 4, "backward"}.words());
  INFO(result.err);
  REQUIRE(result.exit == 0);
  CHECK(has(result.err,
            "restart 1 of 1: 2 ranks instead of 3, from step-00000002; 3 steps done before, 1 of them again"));
  CHECK(has(result.err, "restart 1 of 1: 2 ranks: "));
  CHECK(Json::parse(read(scratch / "run" / "run.json")).at("ranks") == 2);
  // Equal steps take equal sequences; sums over ranks have another order from the checkpoint on.
  const fs::path run = scratch / "run", whole = scratch / "whole";
  CHECK(column(run, "tokens") == column(whole, "tokens"));
  const std::vector<double> now = column(run, "loss"), before = column(whole, "loss");
  REQUIRE(now.size() == 6);
  for (size_t k = 0; k < 6; ++k) CHECK(std::abs(now[k] / before[k] - 1) < 1e-5);
  CHECK(now[0] == before[0]);
  CHECK(now[1] == before[1]);
  // Bit for bit it is the run that somebody resumes by hand with two ranks.
  REQUIRE(train(scratch, {"run", "whole", "--resume", "2", "--ranks", "2", "train.global_batch=12", "--unset",
                          "train.accumulate"})
              .exit == 0);
  same_bits(scratch, run, whole);
}

TEST_CASE("two ranks lose one, and one goes on", "[ranks][kill][.slow]") {
  Scratch scratch;
  write_config(scratch);
  const Result result = train(scratch, {"run", "config.toml", "--out", "run", "--ranks", "2", "--restarts", "3"},
                              Place{0, 5, "forward"}.words());
  INFO(result.err);
  REQUIRE(result.exit == 0);
  CHECK(has(result.err, "restart 1 of 3: 1 rank instead of 2, from step-00000004"));
  CHECK(column(scratch / "run", "step") == std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(state(scratch / "run").at("status") == "done");
  CHECK(all_gone((scratch / "run").string(), 2));
}

TEST_CASE("an error that comes again at the same step ends the run", "[ranks][.slow]") {
  Scratch scratch;
  write_config(scratch);
  const Result result = train(scratch, {"run", "config.toml", "--out", "run", "--ranks", "2", "--restarts", "5",
                                        "checkpoint.every=1", "optimizer.learning_rate=1e30", "train.grad_clip=0"});
  INFO(result.err);
  CHECK(result.exit == 7);
  CHECK(has(result.err, "restart 1 of 5: 2 ranks, from "));
  CHECK_FALSE(has(result.err, "restart 2 of 5"));
  CHECK(has(result.err, "failed like this before"));
  const std::vector<Json> told = events(scratch / "run");
  CHECK(told.front().at("exit_code") == 7);
  CHECK(told.front().at("ranks") == 2);  // nobody was lost
  CHECK(told.back().at("event") == "end");
  CHECK(state(scratch / "run").at("status") == "failed");
}

TEST_CASE("restarts are used up, and a signal ends them all", "[ranks][kill][.slow]") {
  for (const bool asked : {false, true}) {
    Training training({"--restarts", "2", "--min-ranks", "2"});
    const auto kill_one = [&](const char* restart) {
      REQUIRE(training.child->wait_for(restart));
      // The log has a line for each process; the last one is of now.
      const auto ranks = [&] {
        std::vector<pid_t> out;
        for (const pid_t one : processes(training.run.string()))
          if (has(read(fs::path("/proc") / std::to_string(one) / "environ"), "OMPI_COMM_WORLD_RANK=1"))
            out.push_back(one);
        return out;
      };
      for (const auto begin = Clock::now(); ranks().empty() && seconds_since(begin) < 10 * patience;)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      REQUIRE(ranks().size() == 1);
      kill(ranks()[0], SIGKILL);
    };
    kill_one("step 2/");
    if (!asked) kill_one("restart 1 of 2: 2 ranks, from ");
    REQUIRE(training.child->wait_for(asked ? "restart 1 of 2: 2 ranks" : "restart 2 of 2: 2 ranks"));
    if (asked) {
      for (const auto begin = Clock::now();
           state(training.run).at("attempt") != 2 && seconds_since(begin) < 20 * patience;)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      training.child->signal(SIGTERM);
    } else {
      kill_one("restart 2 of 2: 2 ranks, from ");
    }
    const Result result = training.child->wait();
    INFO(result.err);
    if (asked) {
      CHECK(result.exit == 75);
      CHECK(state(training.run).at("status") == "stopped");
    } else {
      CHECK(result.exit == 8);
      CHECK(has(result.err, "not started again: --restarts 2: all of them are used"));
      CHECK(has(result.err, "has no checkpoint yet"));
    }
    CHECK(all_gone(training.run.string(), 2));
  }
}
