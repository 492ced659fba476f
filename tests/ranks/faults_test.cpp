// SPDX-License-Identifier: Apache-2.0
// Ranks that are stopped, killed or starved while they train: one cause is reported in time, nothing remains, and
// the run resumes from its last checkpoint.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <random>

#include "training.hpp"

using namespace cli;

TEST_CASE("ranks train, and leave everything in its place", "[ranks]") {
  Scratch scratch;
  scratch.config();
  const Result result = engine(scratch, {"run", "config.toml", "--ranks", "2", "--out", "run"});
  INFO(result.err);
  REQUIRE(result.exit == 0);
  const fs::path run = scratch / "run";
  CHECK(names(run / "logs") == std::vector<std::string>{"rank-00000.log", "rank-00001.log"});
  const Json identity = Json::parse(read(run / "run.json"));
  CHECK(identity.at("ranks") == 2);
  CHECK(identity.at("hosts").size() == 1);
  CHECK(has(identity.at("command").get<std::string>(), "run config.toml --ranks 2"));
  CHECK(state(run).at("status") == "done");
  CHECK(numbers(run).size() == 8);
  for (const char* rank : {"0", "1"}) {
    const std::string log = read(run / "logs" / ("rank-0000" + std::string(rank) + ".log"));
    CHECK(has(log, "rank " + std::string(rank) + " of 2 started by mpirun on "));
    CHECK(has(log, "exited with 0"));
  }
  // One rank draws, and nobody else says anything.
  CHECK(result.err.find("step 8/8") == result.err.rfind("step 8/8"));
  CHECK_FALSE(has(result.err, "rank 1"));
  CHECK_FALSE(has(result.err, "mpirun"));
  CHECK(has(result.err, "longer: engine run run --ranks 2 train.steps=N"));
}

TEST_CASE("what ranks evaluate are the weights of the step before, whoever keeps them", "[ranks]") {
  Scratch scratch;
  scratch.config();
  for (const std::string strategy : {"none", "zero2"})
    REQUIRE(engine(scratch, {"run", "config.toml", "--ranks", "2", "--out", strategy, "train.steps=3",
                             "train.eval_every=1", "zero.plugin=" + strategy})
                .exit == 0);
  for (const char* key : {"loss", "eval_loss", "grad_norm"}) {
    INFO(key);
    const std::vector<double> whole = column(scratch / "none", key);
    CHECK(whole.size() == 3);
    CHECK(column(scratch / "zero2", key) == whole);
  }
}

TEST_CASE("SIGTERM to the command above the ranks: saved, 75, and the same numbers afterwards", "[ranks]") {
  Training training({"train.steps=6", "train.accumulate=10"});
  REQUIRE(training.child->wait_for("step 2/"));
  training.child->signal(SIGTERM);
  const Result stopped = training.child->wait();
  INFO(stopped.err);
  REQUIRE(stopped.exit == 75);
  CHECK(has(stopped.err, "SIGTERM: the ranks save and exit"));
  CHECK(has(stopped.err, "resume with:  engine run " + training.run.string() + " --ranks 2"));
  CHECK(state(training.run).at("status") == "stopped");
  const Result on = engine(training.scratch, {"run", training.run.string(), "--ranks", "2"});
  INFO(on.err);
  REQUIRE(on.exit == 0);
  const Result whole = engine(training.scratch, {"run", "config.toml", "--out", "whole", "--ranks", "2",
                                                 "train.steps=6", "train.eval_every=0", "train.accumulate=10"});
  REQUIRE(whole.exit == 0);
  CHECK(numbers(training.run) == numbers(training.scratch / "whole"));
}

TEST_CASE("a signal while the ranks start is kept for them", "[ranks][.slow]") {
  Training training;
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  training.child->signal(SIGINT);
  const Result stopped = training.child->wait();
  INFO(stopped.err);
  // Before the command above has its handlers the signal ends it, as it would any other.
  CHECK((stopped.exit == 75 || stopped.exit == 130));
  CHECK(all_gone(training.run.string(), 5));
}

TEST_CASE("a second signal ends all ranks at once", "[ranks][.slow]") {
  Training training({"train.accumulate=1000000"});
  REQUIRE(training.child->wait_for("model llama"));
  const auto begin = Clock::now();
  kill(pid_of(training.run, 1), SIGSTOP);  // so that the first signal has no effect
  training.child->signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(training.child->running());
  training.child->signal(SIGTERM);
  const Result result = training.child->wait();
  CHECK(result.exit == 143);
  CHECK_FALSE(result.killed);
  CHECK(seconds_since(begin) < 5 * patience);
  CHECK(processes(training.run.string()).empty());
}

TEST_CASE("a rank that is killed takes the run down, and says which", "[ranks][.slow]") {
  Training training;
  REQUIRE(training.child->wait_for("saved step-"));
  const pid_t victim = pid_of(training.run, 1);
  const auto begin = Clock::now();
  kill(victim, SIGKILL);
  const Result result = training.child->wait();
  INFO(result.err);
  CHECK(seconds_since(begin) < 10 * patience);
  CHECK(result.exit == 8);
  CHECK(has(result.err, "error: rank 1 (process " + std::to_string(victim) + " on "));
  CHECK(has(result.err, "was killed by signal 9 (SIGKILL)"));
  CHECK(has(result.err, "the last complete checkpoint is step-000"));
  CHECK(processes(training.run.string()).empty());
  CHECK(state(training.run).at("status") == "failed");
  CHECK(state(training.run).at("exit_code") == 8);
  training.goes_on();
}

#ifndef SANITIZED  // what is preloaded would come before the sanitizer
TEST_CASE("a rank that is killed, or whose disk fails, while states are on disks", "[ranks][.slow]") {
  const std::string fault = GENERATE(as<std::string>(), "kill", "eio");
  Scratch scratch;
  scratch.config();
  const fs::path disk = scratch / "disk";
  fs::create_directory(disk);
  const Args words = {"run",
                      "config.toml",
                      "--out",
                      "run",
                      "--ranks",
                      "2",
                      "zero.plugin=zero3",
                      "checkpoint.every=2",
                      "offload.optimizer=nvme",
                      "offload.gradients=nvme",
                      "offload.parameters=nvme",
                      "offload.nvme_paths=[\"" + disk.string() + "\"]",
                      "offload.nvme_block=16KiB",
                      "offload.nvme_direct=false"};
  Limits limits;
  limits.more = {std::string("LD_PRELOAD=") + FAULTY_DISK, "DISK_FOLDER=" + disk.string(),
                 "DISK_FAULT=" + fault + " 1000 1"};
  const Result result = engine(scratch, words, limits);
  INFO(result.err);
  CHECK(result.exit == (fault == "kill" ? 8 : 10));
  CHECK(has(result.err, fault == "kill" ? "was killed by signal 9 (SIGKILL)" : "Input/output error"));
  CHECK(has(result.err, "rank 1"));
  CHECK(names(disk).empty());
  CHECK(all_gone((scratch / "run").string(), 5));
  REQUIRE(engine(scratch, {"ckpt", "verify", "run"}).exit == 0);
  REQUIRE(engine(scratch, {"run", "run", "--ranks", "2"}).exit == 0);
  Args whole = words;
  whole[3] = "whole";
  REQUIRE(engine(scratch, whole).exit == 0);
  CHECK(numbers(scratch / "run") == numbers(scratch / "whole"));
  CHECK(names(disk).empty());
}
#endif

TEST_CASE("kill -9 of the command above leaves no rank", "[ranks][.slow]") {
  Training training;
  REQUIRE(training.child->wait_for("step 2/"));
  CHECK(processes(training.run.string()).size() >= 4);  // the command, mpirun, two ranks
  training.child->signal(SIGKILL);
  CHECK(training.child->wait().killed);
  CHECK(all_gone(training.run.string(), 8));
}

// Folders that Open MPI's temporary files are in, as its command line says: for its own, and for shared memory.
std::vector<fs::path> folders_of(const std::vector<pid_t>& all) {
  std::vector<fs::path> out;
  for (const pid_t pid : all) {
    const std::string line = read(fs::path("/proc") / std::to_string(pid) / "cmdline");
    for (const std::string key : {"orte_tmpdir_base", "btl_vader_backing_directory"})
      if (const size_t at = line.find(key); at != std::string::npos)
        out.emplace_back(line.c_str() + at + key.size() + 1);
    if (!out.empty()) break;
  }
  return out;
}

TEST_CASE("nothing of mpirun stays behind when it is killed", "[ranks][.slow]") {
  for (const bool both : {false, true}) {
    Training training;
    REQUIRE(training.child->wait_for("saved step-"));
    const std::vector<pid_t> all = processes(training.run.string());
    const std::vector<fs::path> folders = folders_of(all);
    REQUIRE(folders.size() == 2);
    pid_t mpirun = 0;
    for (const pid_t pid : all)
      if (has(read(fs::path("/proc") / std::to_string(pid) / "comm"), "mpirun")) mpirun = pid;
    REQUIRE(mpirun > 0);
    for (const fs::path& folder : folders) CHECK_FALSE(names(folder).empty());
    if (both) training.child->signal(SIGSTOP);
    kill(mpirun, SIGKILL);
    if (both) training.child->signal(SIGKILL);
    const Result result = training.child->wait();
    INFO(result.err);
    CHECK(result.exit == (both ? 128 + SIGKILL : 8));
    if (!both) CHECK(has(result.err, "mpirun was killed by signal 9"));
    CHECK(all_gone(training.run.string(), 30));
    // If no rank was left to tidy up, the next start does.
    for (const fs::path& folder : folders) CHECK(fs::exists(folder) == both);
    if (both) training.goes_on();
    for (const fs::path& folder : folders) CHECK_FALSE(fs::exists(folder));
  }
}

TEST_CASE("a TMPDIR that cannot be used is not made, and not needed", "[ranks]") {
  Scratch scratch;
  scratch.config();
  Limits limits;
  limits.more = {"TMPDIR=" + (scratch / "none").string()};
  const Result result =
      engine(scratch, {"run", "config.toml", "--ranks", "2", "--out", "run", "train.steps=1"}, limits);
  INFO(result.err);
  CHECK(result.exit == 0);
  CHECK_FALSE(fs::exists(scratch / "none"));
}

TEST_CASE("a rank that stands still is named when the time is up", "[ranks][.slow]") {
  Training training({"comm.timeout=10s"});
  REQUIRE(training.child->wait_for("saved step-"));
  const auto begin = Clock::now();
  kill(pid_of(training.run, 1), SIGSTOP);
  const Result result = training.child->wait();
  INFO(result.err);
  CHECK(result.exit == 8);
  CHECK(has(result.err, "rank 1 has not answered"));
  CHECK(seconds_since(begin) < 10 + (2 + 10) * patience);
  CHECK(processes(training.run.string()).empty());
  training.goes_on();
}

TEST_CASE("a disk that is full for one rank", "[ranks][.slow]") {
  Training training({"train.accumulate=8"});
  REQUIRE(training.child->wait_for("saved step-00000005"));
  const rlimit none{0, RLIM_INFINITY};
  REQUIRE(prlimit(pid_of(training.run, 1), RLIMIT_FSIZE, &none, nullptr) == 0);
  const Result result = training.child->wait();
  INFO(result.err);
  CHECK(result.exit == 10);
  CHECK(has(result.err, "error: rank 1: "));
  CHECK(processes(training.run.string()).empty());
  // Nothing half written has a checkpoint's name.
  for (const std::string& name : names(training.run / "checkpoints"))
    if (name.rfind("step-", 0) == 0) CHECK(fs::exists(training.run / "checkpoints" / name / "manifest.json"));
  training.goes_on();
}

TEST_CASE("ranks are killed at random times", "[ranks][.slow]") {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    // Every step saves, so that half of them die in a checkpoint.
    Training training({round % 2 ? "checkpoint.every=1" : "checkpoint.every=3", "train.accumulate=2"}, "3");
    REQUIRE(training.child->wait_for("saved step-"));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 500000));
    const auto begin = Clock::now();
    kill(pid_of(training.run, static_cast<int>(random() % 3)), SIGKILL);
    const Result result = training.child->wait();
    INFO("round " << round << "\n" << result.err);
    CHECK(seconds_since(begin) < 10 * patience);
    CHECK(result.exit == 8);
    CHECK(processes(training.run.string()).empty());
    training.goes_on("3");
  }
}
