// SPDX-License-Identifier: Apache-2.0
// Asked to stop, at any phase: a complete checkpoint, exit 75, and nothing of the result changes.
#include <chrono>
#include <csignal>
#include <regex>
#include <thread>

#include "harness.hpp"

using namespace cli;

namespace {

struct Phase {
  const char* name;
  std::string wait;  // text on stderr after which the signal is sent; "" is as soon as the process handles signals
  Args overrides;
  int64_t steps = 6;
};

// Blocks until the process is `engine` and has its handler for `number`, or ended.
void wait_for_handler(Child& child, int number) {
  const fs::path process = fs::path("/proc") / std::to_string(child.pid());
  while (child.running()) {
    std::error_code gone;
    if (fs::read_symlink(process / "exe", gone).filename() != fs::path(ENGINE_COMMAND).filename()) continue;
    const std::string status = read(process / "status");
    std::smatch found;
    if (std::regex_search(status, found, std::regex(R"(SigCgt:\s*([0-9a-f]+))")) &&
        (std::stoull(found[1], nullptr, 16) >> (number - 1) & 1))
      return;
  }
}

void interrupt(const Phase& phase, int number) {
  INFO(phase.name << ", signal " << number);
  Scratch scratch;
  scratch.config();
  Args base = {"run", "config.toml", "train.steps=" + std::to_string(phase.steps)};
  base.insert(base.end(), phase.overrides.begin(), phase.overrides.end());
  Args whole = base, part = base;
  whole.insert(whole.end(), {"--out", "whole"});
  part.insert(part.end(), {"--out", "part"});
  REQUIRE(engine(scratch, whole).exit == 0);

  Result stopped;
  {
    Child child(scratch, part);
    if (phase.wait.empty()) {
      wait_for_handler(child, number);
    } else {
      REQUIRE(child.wait_for(phase.wait));
    }
    child.signal(number);
    stopped = child.wait();
  }
  INFO(stopped.err);
  // A run may have been quicker than the signal, but not in a way that these configurations allow.
  REQUIRE(stopped.exit == 75);
  CHECK(has(stopped.err, "resume with:  engine run part"));
  const Json state = cli::state(scratch / "part");
  CHECK(state.at("status") == "stopped");
  CHECK(state.at("exit_code") == 75);
  CHECK(state.at("step") < phase.steps);
  CHECK(
      fs::exists(scratch / "part" / "checkpoints" / state.at("last_checkpoint").get<std::string>() / "manifest.json"));
  CHECK(engine(scratch, {"ckpt", "verify", "part"}).exit == 0);

  const Result on = engine(scratch, {"run", "part"});
  INFO(on.err);
  REQUIRE(on.exit == 0);
  CHECK(numbers(scratch / "part") == numbers(scratch / "whole"));
  CHECK((tensors(scratch / "part", phase.steps) == tensors(scratch / "whole", phase.steps)));
}

const std::vector<Phase> phases = {
    {"start-up", "", {}},
    {"first step", "model llama", {"train.accumulate=60", "train.steps=2"}, 2},
    {"in the middle of accumulation", "step 1/", {"train.accumulate=60", "train.steps=3"}, 3},
    {"in the middle of accumulation, the last update made by this step",
     "step 1/",
     {"train.accumulate=60", "train.steps=3", "offload.optimizer=host", "offload.update_late=true"},
     3},
    {"evaluation", "step 2/", {"train.eval_every=2", "train.eval_batches=60"}},
    {"saving", "saved step-00000002", {"checkpoint.every=1"}},
};

}  // namespace

TEST_CASE("SIGINT, SIGTERM and SIGUSR1 at each phase", "[cli]") {
  const int signals[] = {SIGTERM, SIGINT, SIGUSR1};
  int next = 0;
  for (const Phase& phase : phases) interrupt(phase, signals[next++ % 3]);
}

TEST_CASE("every signal at every phase", "[cli][.slow]") {
  for (const Phase& phase : phases)
    for (const int number : {SIGINT, SIGTERM, SIGUSR1}) interrupt(phase, number);
}

TEST_CASE("a second signal leaves at once", "[cli]") {
  Scratch scratch;
  scratch.config();
  for (const int number : {SIGINT, SIGTERM}) {
    // An evaluation is finished before the run stops, and this one is long.
    const std::string run = "run-" + std::to_string(number);
    Child child(scratch, {"run", "config.toml", "--out", run, "train.eval_every=1", "train.eval_batches=1000000000",
                          "train.micro_batch=1", "data.validation=0.5", "model.num_hidden_layers=64"});
    REQUIRE(child.wait_for("model llama"));
    wait_for_handler(child, number);
    child.signal(number);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(child.running());
    child.signal(number);
    const Result result = child.wait();
    CHECK(result.exit == 128 + number);
    CHECK_FALSE(result.killed);
    CHECK(names(scratch / run / "checkpoints").empty());
    CHECK(state(scratch / run).at("status") == "running");
  }
}

TEST_CASE("nobody reads stderr: the run goes on, and a signal saves and ends it", "[cli][.slow]") {
  Scratch scratch;
  scratch.config();
  FullPipe pipe;
  Child child(scratch,
              {"run", "config.toml", "--out", "run", "train.steps=1000000", "train.eval_every=0", "log.every=1"},
              {.stalled = pipe.end()});
  REQUIRE(child.wait_for_path(checkpoint(scratch / "run", 8)));
  child.signal(SIGTERM);
  const Result result = child.wait();
  CHECK(result.exit == 75);
  CHECK_FALSE(result.killed);
  CHECK(state(scratch / "run").at("status") == "stopped");
}

TEST_CASE("under Slurm a second SIGTERM is no second request", "[cli]") {
  Scratch scratch;
  scratch.config();
  Child child(scratch, {"run", "config.toml", "--out", "run", "train.accumulate=2000", "train.steps=2"},
              {.more = {"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1"}});
  REQUIRE(child.wait_for("model llama"));
  wait_for_handler(child, SIGTERM);
  for (int k = 0; k < 20; ++k, std::this_thread::sleep_for(std::chrono::milliseconds(1))) child.signal(SIGTERM);
  const Result result = child.wait();
  INFO(result.err);
  CHECK(result.exit == 75);
  CHECK(state(scratch / "run").at("status") == "stopped");
}

TEST_CASE("SIGUSR1 twice is one request", "[cli]") {
  Scratch scratch;
  scratch.config();
  Child child(scratch, {"run", "config.toml", "--out", "run", "train.accumulate=2000", "train.steps=2"});
  REQUIRE(child.wait_for("model llama"));
  child.signal(SIGUSR1);
  child.signal(SIGUSR1);
  CHECK(child.wait().exit == 75);
}

TEST_CASE("--max-time saves and leaves with 75", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Result run = engine(scratch, {"run", "config.toml", "--out", "run", "--max-time", "0.2s", "train.steps=1000000",
                                      "checkpoint.every=0", "train.eval_every=0"});
  INFO(run.err);
  CHECK(run.exit == 75);
  CHECK(has(run.err, "stopped by --max-time"));
  const Json last = state(scratch / "run");
  CHECK(last.at("status") == "stopped");
  CHECK(fs::exists(checkpoint(scratch / "run", last.at("step").get<int64_t>()) / "manifest.json"));
}
