// SPDX-License-Identifier: Apache-2.0
#include "session/run/run_dir.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <nlohmann/json.hpp>
#include <regex>

#include "child.hpp"
#include "tests/session/checkpoint/scratch.hpp"

using namespace eng;
using namespace eng::test;
namespace fs = std::filesystem;

TEST_CASE("run directory: a new run has its layout", "[run_dir]") {
  Scratch scratch;
  fs::path path;
  {
    const RunDir run = RunDir::create(scratch / "runs", "llama-tiny");
    path = run.path();
    CHECK(path.parent_path() == scratch / "runs" / "llama-tiny");
    CHECK(std::regex_match(path.filename().string(), std::regex("\\d{8}-\\d{6}-[0-9a-f]{4}")));
    CHECK(run.attempt() == 1);
    run.write("config.toml", "[run]\n");
    run.log("started");
    run.write_state("stopped", 120, "step-00000120", 75);
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
  CHECK_THAT(read_file(path / "logs" / "rank-00000.log"), Catch::Contains("Z started\n"));

  const RunDir again = RunDir::open(path);
  CHECK(again.attempt() == 2);
  again.write_state("running", 0, "", 0);
  const auto running = nlohmann::json::parse(read_file(path / "state.json"));
  CHECK(running["attempt"] == 2);
  CHECK(running["exit_code"].is_null());
  CHECK(running["last_checkpoint"].is_null());
}

TEST_CASE("run directory: the newest finished checkpoint is the last one of a run that has ended", "[run_dir]") {
  for (const char* status : {"running", "failed", "stopped"}) {
    Scratch scratch;
    const RunDir run = RunDir::create(scratch / "runs", "llama-tiny");
    run.write_state(status, 69, "step-00000066", 8);
    for (const char* name : {"step-00000066", "step-00000069"}) {
      fs::create_directories(run.path() / "checkpoints" / name);
      std::ofstream(run.path() / "checkpoints" / name / "manifest.json") << "{}";
    }
    fs::create_directories(run.path() / "checkpoints" / "step-00000072");  // never finished
    CHECK(settle(run.path(), 8) == "step-00000069");
    const auto state = nlohmann::json::parse(read_file(run.path() / "state.json"));
    const bool stopped = std::string(status) == "stopped";  // by itself: what it wrote stands
    CHECK(state["status"] == (stopped ? "stopped" : "failed"));
    CHECK(state["last_checkpoint"] == (stopped ? "step-00000066" : "step-00000069"));
  }
}

TEST_CASE("run directory: two runs in the same second have different names", "[run_dir]") {
  Scratch scratch;
  const RunDir a = RunDir::create(scratch.path(), "x"), b = RunDir::create(scratch.path(), "x");
  CHECK(a.path() != b.path());
}

TEST_CASE("run directory: --out takes only a new directory, an empty one, or a run", "[run_dir]") {
  Scratch scratch;
  { CHECK(RunDir::at(scratch / "a" / "b").attempt() == 1); }
  { CHECK(RunDir::at(scratch / "a" / "b").attempt() == 2); }
  fs::create_directory(scratch / "empty");
  { CHECK(RunDir::at(scratch / "empty").attempt() == 1); }
  fs::create_directory(scratch / "mine");
  write_file(scratch / "mine" / "thesis.tex", "x");
  CHECK_THAT(refusal(Exit::usage, [&] { RunDir::at(scratch / "mine"); }), Catch::Contains("neither empty nor a run"));
  CHECK(fs::exists(scratch / "mine" / "thesis.tex"));
  CHECK_FALSE(fs::exists(scratch / "mine" / "LOCK"));
  CHECK_THAT(refusal(Exit::usage, [&] { RunDir::open(scratch / "mine"); }), Catch::Contains("is not a run"));
  CHECK_THAT(refusal(Exit::disk, [&] { RunDir::at(scratch / "mine" / "thesis.tex" / "x"); }),
             Catch::Contains("cannot create directory"));
  // A start that died between its first two files.
  fs::create_directory(scratch / "early");
  write_file(scratch / "early" / "LOCK", "");
  CHECK(RunDir::at(scratch / "early").attempt() == 1);
  // state.json is only informative: damage to it does not stop a run.
  write_file(scratch / "a" / "b" / "state.json", "{\"status\": 3");
  CHECK(RunDir::open(scratch / "a" / "b").attempt() == 2);
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

TEST_CASE("run directory: removing LOCK lets no second process in", "[run_dir]") {
  Scratch scratch;
  const RunDir run = RunDir::at(scratch / "r");
  fs::remove(run.path() / "LOCK");
  CHECK_THAT(refusal(Exit::usage, [&] { RunDir::open(scratch / "r"); }), Catch::Contains("in use by process"));
}

TEST_CASE("run directory: links in a new one are refused, and nothing is written through them", "[run_dir]") {
  for (const char* name : {"LOCK", "state.json.tmp", "checkpoints", "logs"}) {
    INFO(name);
    Scratch scratch;
    fs::create_directories(scratch / "new");
    fs::create_directories(scratch / "folder");
    write_file(scratch / "file", "mine");
    const bool folder = name[0] == 'c' || name[0] == 'l';
    fs::create_symlink(scratch / (folder ? "folder" : "file"), scratch / "new" / name);
    CHECK_THAT(refusal(Exit::usage, [&] { RunDir::at(scratch / "new"); }), Catch::Contains("neither empty nor a run"));
    CHECK(read_file(scratch / "file") == "mine");
    CHECK(fs::is_empty(scratch / "folder"));
  }
}

TEST_CASE("run directory: linked folders in a run are not followed", "[run_dir]") {
  for (const std::string name : {"checkpoints", "logs"}) {
    INFO(name);
    Scratch scratch;
    { RunDir::at(scratch / "r"); }
    fs::rename(scratch / "r" / name, scratch / "elsewhere");
    for (const bool dangling : {false, true}) {
      fs::create_directory_symlink(scratch / (dangling ? "nowhere" : "elsewhere"), scratch / "r" / name);
      const auto before = std::distance(fs::directory_iterator(scratch / "elsewhere"), fs::directory_iterator());
      CHECK_THAT(refusal(Exit::disk, [&] { RunDir::open(scratch / "r"); }),
                 Catch::Contains(name + " is a symbolic link"));
      log_line(scratch / "r", 7, "a line");
      CHECK(before == std::distance(fs::directory_iterator(scratch / "elsewhere"), fs::directory_iterator()));
      CHECK_FALSE(fs::exists(scratch / "nowhere"));
      fs::remove(scratch / "r" / name);
    }
    write_file(scratch / "r" / name, "a file");
    CHECK_THAT(refusal(Exit::disk, [&] { RunDir::open(scratch / "r"); }), Catch::Contains("Not a directory"));
  }
}

TEST_CASE("run directory: a line of metrics is read up to a limit", "[run_dir]") {
  Scratch scratch;
  const auto read = [&](const std::string& text) {
    write_file(scratch / "lines", text);
    std::ifstream in(scratch / "lines", std::ios::binary);
    std::string line, all;
    for (;;) {
      const LineEnd end = read_line(*in.rdbuf(), line);
      all += line.substr(0, 3) + (end == LineEnd::newline ? ";" : end == LineEnd::file ? "." : "!");
      if (end != LineEnd::newline) return all;
    }
  };
  CHECK(read("") == ".");
  CHECK(read("a\n\nb") == "a;;b.");
  CHECK(read("a\n" + std::string(longest_metrics_line, 'x') + "\nb\n") == "a;xxx!");
  CHECK(read(std::string(longest_metrics_line - 1, 'x') + "\nb\n") == "xxx;b;.");
}

TEST_CASE("run directory: links and FIFOs in place of its files neither mislead nor block", "[run_dir]") {
  Scratch scratch;
  { RunDir::at(scratch / "r"); }
  write_file(scratch / "file", "mine");
  const auto replace = [&](const char* name, bool fifo) {
    const fs::path path = scratch / "r" / name;
    fs::remove(path);
    if (fifo)
      REQUIRE(mkfifo(path.c_str(), 0644) == 0);
    else
      fs::create_symlink(scratch / "file", path);
  };
  for (const bool fifo : {true, false}) {
    INFO(fifo);
    replace("LOCK", fifo);
    CHECK_THAT(refusal(Exit::disk, [&] { RunDir::open(scratch / "r"); }), Catch::Contains("LOCK"));
    fs::remove(scratch / "r" / "LOCK");
    replace("logs/rank-00000.log", fifo);
    CHECK_THAT(refusal(Exit::disk, [&] { RunDir::open(scratch / "r"); }), Catch::Contains("rank-00000.log"));
    log_line(scratch / "r", 0, "text");  // gives up
    fs::remove(scratch / "r" / "logs/rank-00000.log");
    const RunDir run = RunDir::open(scratch / "r");
    replace("metrics.jsonl", fifo);
    CHECK_THAT(refusal(Exit::disk, [&] { MetricsFile(run.metrics(), 0); }), Catch::Contains("metrics.jsonl"));
    fs::remove(scratch / "r" / "metrics.jsonl");
    replace("state.json.tmp", fifo);
    CHECK_THAT(refusal(Exit::disk, [&] { run.write_state("running", 0, "", 0); }), Catch::Contains("state.json.tmp"));
    CHECK_NOTHROW(run.write_state("running", 0, "", 0));  // it was removed
    replace("run.json", true);
    CHECK(read_run_json(scratch / "r").is_null());
  }
  CHECK(read_file(scratch / "file") == "mine");
}

TEST_CASE("run directory: what is written later goes where it was moved", "[run_dir]") {
  Scratch scratch;
  const RunDir run = RunDir::at(scratch / "r");
  CHECK(run.folder().place() == HeldFolder::Place::same);
  fs::rename(scratch / "r", scratch / "s");
  CHECK(run.folder().place() == HeldFolder::Place::moved);
  fs::create_directory(scratch / "r");  // somebody else's
  CHECK(run.folder().place() == HeldFolder::Place::moved);
  CHECK(run.folder().found() == fs::canonical(scratch / "s"));
  run.write_state("stopped", 3, "", 75);
  run.log("here");
  CHECK(nlohmann::json::parse(read_file(scratch / "s" / "state.json"))["step"] == 3);
  CHECK_THAT(read_file(scratch / "s" / "logs" / "rank-00000.log"), Catch::Contains("here"));
  CHECK(fs::is_empty(scratch / "r"));
  const std::string inside = run.folder().inside().string();
  CHECK(name_held("cannot write " + inside + "/x: full") ==
        "cannot write " + fs::canonical(scratch / "s").string() + "/x: full");
  fs::remove_all(scratch / "s");
  CHECK(run.folder().place() == HeldFolder::Place::removed);
  CHECK_THAT(refusal(Exit::disk, [&] { run.write_state("stopped", 3, "", 75); }), Catch::Contains("state.json.tmp"));
  CHECK(fs::is_empty(scratch / "r"));
}
