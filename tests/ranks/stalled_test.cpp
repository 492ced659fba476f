// SPDX-License-Identifier: Apache-2.0
// Runs whose output nobody reads, or parts of which are stopped: signals, deaths and ends are handled all the same.
#include "training.hpp"

using namespace cli;

namespace {

// The process of a run whose program is `name`.
pid_t named(const fs::path& run, const std::string& name) {
  for (const pid_t pid : processes(run.string()))
    if (has(read(fs::path("/proc") / std::to_string(pid) / "comm"), name)) return pid;
  throw std::runtime_error("no " + name);
}

}  // namespace

TEST_CASE("nobody reads the command's output: a signal saves and ends the ranks", "[ranks][.slow]") {
  FullPipe pipe;
  Training training({"log.every=1"}, "2", {.stalled = pipe.end()});
  REQUIRE(training.child->wait_for_path(training.run / "checkpoints" / "step-00000005" / "manifest.json"));
  const auto begin = Clock::now();
  training.child->signal(SIGTERM);
  const Result result = training.child->wait();
  CHECK(result.exit == 75);
  CHECK(seconds_since(begin) < 20 * patience);
  CHECK(state(training.run).at("status") == "stopped");
  CHECK(all_gone(training.run.string(), 5));
}

TEST_CASE("nobody reads the command's output: a second signal ends all ranks, and a death is noticed",
          "[ranks][.slow]") {
  for (const bool dies : {false, true}) {
    FullPipe pipe;
    Training training({"log.every=1"}, "2", {.stalled = pipe.end()});
    REQUIRE(training.child->wait_for_path(training.run / "checkpoints" / "step-00000005" / "manifest.json"));
    const auto begin = Clock::now();
    kill(pid_of(training.run, 1), dies ? SIGKILL : SIGSTOP);
    if (!dies) {
      training.child->signal(SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      CHECK(training.child->running());
      training.child->signal(SIGINT);
    }
    CHECK(training.child->wait().exit == (dies ? 8 : 130));
    CHECK(seconds_since(begin) < 15 * patience);
    CHECK(all_gone(training.run.string(), 5));
  }
}

TEST_CASE("a stopped mpirun ends with the command, and so do the ranks", "[ranks]") {
  Training training;
  REQUIRE(training.child->wait_for("step 1/"));
  kill(named(training.run, "mpirun"), SIGSTOP);
  training.child->signal(SIGKILL);
  CHECK(training.child->wait().killed);
  CHECK(all_gone(training.run.string(), 5));
}

TEST_CASE("a second signal ends a stopped mpirun and its ranks", "[ranks]") {
  Training training;
  REQUIRE(training.child->wait_for("step 1/"));
  kill(named(training.run, "mpirun"), SIGSTOP);
  training.child->signal(SIGTERM);
  REQUIRE(training.child->wait_for("a second signal ends them at once"));
  training.child->signal(SIGTERM);
  CHECK(training.child->wait().exit == 143);
  CHECK(all_gone(training.run.string(), 5));
}

TEST_CASE("the time is up while rank 0 saves: the message says so", "[ranks][.slow]") {
  Scratch scratch;
  scratch.config();
  scratch.write("stall-at", "rename .tmp-step-00000004 1");
  Args words;  // the `engine` with killer/disk.cpp does not lie where those of the build tree are found from
  for (const std::string& plugin : names(ENGINE_PLUGIN_DIR))
    words.insert(words.end(), {"--plugin-path", std::string(ENGINE_PLUGIN_DIR) + "/" + plugin});
  words.insert(words.end(), {"run", "config.toml", "--out", "run", "--ranks", "2", "comm.timeout=10s"});
  const fs::path program = fs::path(ENGINE_PLUGIN_DIR).parent_path() / "tests" / "ranks" / "engine-killer";
  const Result result = engine(scratch, words, {.program = program.string()});
  INFO(result.err);
  CHECK(result.exit == 8);
  CHECK(has(result.err,
            "error: rank 1: rank 0 was still saving (naming the new, removing old checkpoints) "
            "step-00000004: communicator mpi: exchange number "));
  CHECK(has(result.err, "; rank 0 is not waiting"));
  CHECK(has(result.err, "raise comm.timeout (10 s)"));
}
