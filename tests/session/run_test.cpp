// SPDX-License-Identifier: Apache-2.0
// Runs in this process, without the command: two one after the other, and one that is resumed.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "session/checkpoint/manifest.hpp"
#include "tests/sanitized.hpp"
#include "tests/session/runs.hpp"

#ifdef SANITIZED
#include <sanitizer/allocator_interface.h>
#endif

using namespace eng;
using namespace eng::test;
using Catch::Matchers::Contains;

namespace {

// The text that goes to stdout and stderr while it lives.
class Output {
 public:
  explicit Output(std::filesystem::path file) : file_(std::move(file)) {
    std::fflush(nullptr);
    const int to = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    for (int k = 0; k < 2; ++k) before_[k] = ::dup(k + 1), ::dup2(to, k + 1);
    ::close(to);
  }
  ~Output() {
    std::fflush(nullptr);
    for (int k = 0; k < 2; ++k) ::dup2(before_[k], k + 1), ::close(before_[k]);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

 private:
  std::filesystem::path file_;
  int before_[2];
};

// Resources of a process that can leak.
struct Held {
  std::ptrdiff_t descriptors = 0, threads = 0;
  int64_t bytes = 0;  // resident; allocated, with a sanitizer
};

Held held() {
  namespace fs = std::filesystem;
  Held out;
  out.descriptors = std::distance(fs::directory_iterator("/proc/self/fd"), {});
  out.threads = std::distance(fs::directory_iterator("/proc/self/task"), {});
#ifdef SANITIZED  // what is resident holds back freed memory
  out.bytes = static_cast<int64_t>(__sanitizer_get_current_allocated_bytes());
#else
  std::ifstream in("/proc/self/statm");
  int64_t pages = 0;
  in >> pages >> pages;
  out.bytes = pages * ::sysconf(_SC_PAGESIZE);
#endif
  return out;
}

}  // namespace

TEST_CASE("session: a run and its second half, in one process and without output", "[session]") {
  const Folder folder;
  Heard whole, half, rest;
  RunEnd a, b, c;
  {
    const Output output(folder / "output");
    RunRequest request = folder.request("config.toml");
    request.out = folder / "whole";
    a = run(request, whole);
    request.out = folder / "half";
    half.stop_after = 2;
    b = run(request, half);
    c = run(folder.request("half"), rest);
  }
  CHECK(read_file(folder / "output").empty());
  CHECK(a.exit == Exit::done);
  CHECK(a.directory == folder / "whole");
  CHECK(a.held_out);
  CHECK(b.exit == Exit::stopped);
  CHECK(c.exit == Exit::done);
  const std::vector<std::string> events = {
      "started at 0", "evaluated 2", "saving", "saved step-00000002", "evaluated 4", "saving", "saved step-00000004"};
  CHECK(whole.events == events);
  REQUIRE(rest.events.size() > 1);
  CHECK(rest.events[0] == "started at 2 from a checkpoint");
  REQUIRE(whole.losses.size() == 4);
  half.losses.insert(half.losses.end(), rest.losses.begin(), rest.losses.end());
  CHECK(half.losses == whole.losses);
  const auto state = nlohmann::json::parse(read_file(folder / "half" / "state.json"));
  CHECK(state["status"] == "done");
  CHECK(state["attempt"] == 2);
  // The user's text stays; the resolved text names only the keys in it.
  CHECK(read_file(folder / "half" / "config.toml") == text);
  const auto hash = [&](const char* name) {
    return nlohmann::json::parse(read_file(folder / name / "run.json"))["config_hash"];
  };
  CHECK(hash("whole") != "");
}

TEST_CASE("session: a failure is thrown and recorded in state.json", "[session]") {
  const Folder folder;
  Heard heard;
  RunRequest request = folder.request("config.toml", {"optimizer.learning_rate=1e30", "train.grad_clip=0.0"});
  request.out = folder / "run";
  CHECK_THAT(refusal(Exit::numerics, [&] { run(request, heard); }), Contains("is not finite"));
  CHECK(nlohmann::json::parse(read_file(folder / "run" / "state.json"))["status"] == "failed");
  // Before a directory is made.
  request = folder.request("config.toml", {"train.stepz=3"});
  request.out = folder / "none";
  CHECK_THAT(refusal(Exit::usage, [&] { run(request, heard); }), Contains("stepz"));
  request = folder.request("config.toml");
  request.resume = "maybe";
  CHECK_THAT(refusal(Exit::usage, [&] { run(request, heard); }), Contains("maybe"));
  request.resume = "must", request.out = folder / "none";
  CHECK_THAT(refusal(Exit::checkpoint, [&] { run(request, heard); }), Contains("no checkpoint"));
  CHECK_FALSE(std::filesystem::exists(folder / "none"));
}

TEST_CASE("session: keys without effect are noted, and a damaged checkpoint is skipped", "[session]") {
  const Folder folder;
  Heard first, second;
  RunRequest request = folder.request("config.toml", {"data.validation=0.0", "zero.plugin=zero2"});
  request.out = folder / "run";
  run(request, first);
  REQUIRE(first.notes.size() == 2);
  CHECK_THAT(first.notes[0], Contains("zero.plugin has no effect"));
  CHECK_THAT(first.notes[1], Contains("train.eval_every has no effect"));
  write_file(folder / "run" / "checkpoints" / "step-00000004" / "manifest.json", "{");
  run(folder.request("run"), second);
  REQUIRE(second.events.size() > 1);
  CHECK(second.events[0] == "passed over step-00000004");
  CHECK(second.events[1] == "started at 2 from a checkpoint");
  CHECK(second.losses == std::vector<double>{first.losses[2], first.losses[3]});
}

TEST_CASE("session: the schedule counts updates, not steps, and a checkpoint knows both", "[session]") {
  const Folder folder;
  Heard first, second;
  RunRequest request = folder.request("config.toml", {"schedule.kind=linear", "schedule.min_learning_rate=1e-5"});
  request.out = folder / "run";
  run(request, first);
  const auto at = [&](const char* step) { return folder / "run" / "checkpoints" / step; };
  Manifest manifest = read_manifest(at("step-00000002"));
  CHECK(manifest.point.updates == 2);
  CHECK(read_manifest(at("step-00000004")).point.updates == 4);
  // As if one of the two had been skipped.
  manifest.point.updates = 1;
  write_file(at("step-00000002") / "manifest.json", manifest_text(manifest));
  request = folder.request("run");
  request.resume = "2";
  run(request, second);
  REQUIRE(first.rates.size() == 4);
  CHECK(first.rates[1] != first.rates[2]);
  CHECK(second.rates == std::vector<double>{first.rates[1], first.rates[2]});
  manifest = read_manifest(at("step-00000004"));
  CHECK(manifest.point.step == 4);
  CHECK(manifest.point.updates == 3);
}

TEST_CASE("session: rows of zeros behind a head change no loss and no checkpoint, and may change in a run",
          "[session]") {
  const Folder folder;
  Heard plain, padded;
  RunRequest request = folder.request("config.toml");
  request.out = folder / "plain";
  run(request, plain);
  request = folder.request("config.toml", {"device.pad_vocabulary=300"});
  request.out = folder / "padded";
  run(request, padded);
  REQUIRE(plain.losses.size() == 4);
  CHECK(padded.losses == plain.losses);
  CHECK_THAT(read_file(folder / "padded" / "plan.txt"), Contains("lm_head.weight has 300 rows in memory for 256 ids"));
  const auto weights = [&](const char* name) {
    std::string out;
    for (const auto& file : std::filesystem::directory_iterator(folder / name / "checkpoints" / "step-00000004"))
      if (file.path().extension() == ".safetensors") out += read_file(file.path());
    return out;
  };
  REQUIRE(!weights("plain").empty());
  CHECK(weights("padded") == weights("plain"));
  // From the second step on with other rows.
  for (const char* rows : {"1", "1000"}) {
    std::filesystem::remove_all(folder / "padded" / "checkpoints" / "step-00000004");
    Heard rest;
    run(folder.request("padded", {std::string("device.pad_vocabulary=") + rows}), rest);
    CHECK(rest.losses == std::vector<double>{plain.losses[2], plain.losses[3]});
    CHECK(weights("padded") == weights("plain"));
  }
}

// Runs that end, runs that are refused, and runs that are resumed, `rounds` times in one process.
static void check_no_leaks(int rounds) {
  const Folder folder;
  const auto round = [&] {
    Heard heard;
    RunRequest request = folder.request("config.toml", {"train.steps=1", "train.eval_every=0"});
    request.out = folder / "run";
    run(request, heard);
    run(folder.request("run", {"train.steps=2"}), heard);
    CHECK_THROWS(run(folder.request("run", {"train.seed=7"}), heard));
    CHECK_THROWS(run(folder.request("config.toml", {"model.hidden_size=17"}), heard));
    std::filesystem::remove_all(folder / "run");
  };
  for (int k = 0; k < 5; ++k) round();
  const Held before = held();
  for (int k = 0; k < rounds; ++k) round();
  const Held after = held();
  CHECK(after.descriptors == before.descriptors);
  CHECK(after.threads == before.threads);
  INFO("from " << before.bytes << " to " << after.bytes << " bytes in " << rounds << " rounds");
  CHECK(after.bytes - before.bytes < (4 << 20));
}

TEST_CASE("session: rounds of opening, running and closing leave nothing", "[session][.slow]") {
  check_no_leaks(10);
}

TEST_CASE("session: a thousand rounds of opening, running and closing leave nothing", "[session][.leaks]") {
  check_no_leaks(1000);
}
