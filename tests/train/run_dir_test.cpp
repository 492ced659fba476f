// SPDX-License-Identifier: Apache-2.0
#include "core/train/run_dir.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <nlohmann/json.hpp>
#include <regex>

#include "core/train/signals.hpp"
#include "tests/checkpoint/scratch.hpp"

using namespace eng;
using namespace eng::test;
namespace fs = std::filesystem;

namespace {

// Runs `body` in a child; its exit status as the shell would say it.
template <class Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("run directory: a new run has its layout", "[run_dir]") {
  Scratch scratch;
  fs::path path;
  {
    const RunDir run = RunDir::create(scratch / "runs", "llama-tiny");
    path = run.path();
    CHECK(path.parent_path() == scratch / "runs" / "llama-tiny");
    CHECK(std::regex_match(path.filename().string(), std::regex("\\d{8}-\\d{6}-[0-9a-f]{4}")));
    CHECK_FALSE(run.previous());
    CHECK(run.attempt() == 1);
    run.write_config("[run]\n", "[run]\n# from: default\n");
    run.write_plan("plan\n");
    RunIdentity identity;
    identity.version = "0.1.0";
    identity.command = "engine run \xff x.toml";
    identity.plugins = {{"adamw", "1.0", "ab"}};
    identity.seeds = {{"seed", 1}};
    run.write_identity(identity);
    run.log("started");
    RunState state;
    state.status = "stopped";
    state.step = 120;
    state.last_checkpoint = "step-00000120";
    state.exit_code = 75;
    run.write_state(state);
  }
  CHECK(read_file(path / "config.toml") == "[run]\n");
  CHECK(fs::is_directory(path / "checkpoints"));
  const auto state = nlohmann::json::parse(read_file(path / "state.json"));
  CHECK(state["status"] == "stopped");
  CHECK(state["step"] == 120);
  CHECK(state["last_checkpoint"] == "step-00000120");
  CHECK(state["exit_code"] == 75);
  CHECK(state["attempt"] == 1);
  CHECK(
      std::regex_match(state["updated"].get<std::string>(), std::regex("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ")));
  const auto identity = nlohmann::json::parse(read_file(path / "run.json"));
  CHECK(identity["plugins"][0]["id"] == "adamw");
  CHECK_THAT(read_file(path / "logs" / "rank-00000.log"), Catch::Contains("Z started\n"));

  const RunDir again = RunDir::open(path);
  REQUIRE(again.previous());
  CHECK(again.previous()->status == "stopped");
  CHECK(again.previous()->last_checkpoint == "step-00000120");
  CHECK(again.attempt() == 2);
  again.write_state(RunState());
  const auto running = nlohmann::json::parse(read_file(path / "state.json"));
  CHECK(running["attempt"] == 2);
  CHECK(running["exit_code"].is_null());
  CHECK(running["last_checkpoint"].is_null());
}

TEST_CASE("run directory: two runs of one second have two names", "[run_dir]") {
  Scratch scratch;
  const RunDir a = RunDir::create(scratch.path(), "x"), b = RunDir::create(scratch.path(), "x");
  CHECK(a.path() != b.path());
}

TEST_CASE("run directory: --out takes a new, an empty or a run's directory, nothing else", "[run_dir]") {
  Scratch scratch;
  { CHECK_FALSE(RunDir::at(scratch / "a" / "b").previous()); }
  { CHECK(RunDir::at(scratch / "a" / "b").previous()); }
  fs::create_directory(scratch / "empty");
  { CHECK_FALSE(RunDir::at(scratch / "empty").previous()); }
  fs::create_directory(scratch / "mine");
  write_file(scratch / "mine" / "thesis.tex", "x");
  CHECK_THAT(refusal(Exit::usage, [&] { RunDir::at(scratch / "mine"); }), Catch::Contains("neither empty nor a run"));
  CHECK(fs::exists(scratch / "mine" / "thesis.tex"));
  CHECK_FALSE(fs::exists(scratch / "mine" / "LOCK"));
  CHECK_THAT(refusal(Exit::usage, [&] { RunDir::open(scratch / "mine"); }), Catch::Contains("is not a run"));
  CHECK_THAT(refusal(Exit::disk, [&] { RunDir::at(scratch / "mine" / "thesis.tex" / "x"); }),
             Catch::Contains("cannot create directory"));
  for (const char* name : {"", "..", "a/b", ".hidden"}) {
    CHECK_THAT(refusal(Exit::usage, [&] { RunDir::create(scratch.path(), name); }), Catch::Contains("[run] name"));
  }
  // A start that died between its first two files.
  fs::create_directory(scratch / "early");
  write_file(scratch / "early" / "LOCK", "");
  CHECK_FALSE(RunDir::at(scratch / "early").previous());
  // state.json only tells people: damage to it does not stop a run.
  write_file(scratch / "a" / "b" / "state.json", "{\"status\": 3");
  CHECK(RunDir::open(scratch / "a" / "b").previous()->status == "unknown");
}

TEST_CASE("run directory: one process at a time, and the other is named", "[run_dir]") {
  Scratch scratch;
  {
    const RunDir run = RunDir::at(scratch / "r");
    const std::string mine = ":" + std::to_string(getpid());
    CHECK_THAT(refusal(Exit::usage, [&] { RunDir::open(scratch / "r"); }),
               Catch::Contains("in use by process") && Catch::EndsWith(mine));
    CHECK(in_child([&] {
            _exit(refusal(Exit::usage, [&] { RunDir::open(scratch / "r"); }).find("in use") != std::string::npos ? 7
                                                                                                                 : 8);
          }) == 7);
  }
  // A process that is killed leaves a file, not a lock.
  CHECK(in_child([&] {
          const RunDir run = RunDir::open(scratch / "r");
          raise(SIGKILL);
        }) == 128 + SIGKILL);
  CHECK_NOTHROW(RunDir::open(scratch / "r"));
}

TEST_CASE("signals: the first asks, the second leaves", "[signals]") {
  for (int first : {SIGINT, SIGTERM, SIGUSR1}) {
    CHECK(in_child([&] {
            const Signals signals;
            if (Signals::pending() != 0) _exit(1);
            raise(SIGHUP);
            if (Signals::pending() != 0) _exit(2);
            raise(first);
            _exit(Signals::pending() == first ? 42 : 3);
          }) == 42);
    for (int second : {SIGINT, SIGTERM}) {
      // A user signal is the scheduler's early warning: what follows it is the first request to stop.
      CHECK(in_child([&] {
              const Signals signals;
              raise(first);
              raise(second);
              _exit(Signals::pending() == first ? 42 : 3);
            }) == (first == SIGUSR1 ? 42 : 128 + second));
    }
    CHECK(in_child([&] {
            const Signals signals;
            raise(first);
            raise(SIGUSR1);
            _exit(Signals::pending() == first ? 42 : 3);
          }) == 42);
  }
  CHECK(in_child([] {
          signal(SIGTERM, SIG_DFL);  // the test program has a handler of its own
          { const Signals signals; }
          raise(SIGTERM);  // as before
        }) == 128 + SIGTERM);
  CHECK(Signals::name(SIGTERM) == "SIGTERM");
}
