// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are damaged, disks that are full, data that changed: nothing good is lost or mixed with bad.
#include <sys/mount.h>

#include <fstream>
#include <regex>

#include "harness.hpp"

using namespace cli;

namespace {

// A run of 8 steps with checkpoints at 4 and 8.
fs::path finished_run(const Scratch& scratch) {
  scratch.config();
  const Result result = engine(scratch, {"run", "config.toml", "--out", "run"});
  INFO(result.err);
  REQUIRE(result.exit == 0);
  return scratch / "run";
}

void flip_bit(const fs::path& file, uint64_t at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(stream.get() ^ 4);
  stream.seekp(static_cast<std::streamoff>(at));
  stream.put(byte);
}

// Damages the newest checkpoint of a run: it is named, the one before is used, and the end is the same.
template <class Damage>
void survive(const char* what, Damage damage, const std::string& reason) {
  INFO(what);
  Scratch scratch;
  const fs::path run = finished_run(scratch);
  const auto lines = numbers(run);
  const auto end = tensors(run, 8);
  damage(checkpoint(run, 8));
  CHECK(engine(scratch, {"ckpt", "verify", "run"}).exit == 9);
  const Result eval = engine(scratch, {"eval", "run"});
  CHECK(eval.exit == 0);
  CHECK(has(eval.err, "step-00000008 is not used"));
  CHECK(has(eval.out, "eval step 4"));
  const Result on = engine(scratch, {"run", "run"});
  INFO(on.err);
  CHECK(on.exit == 0);
  CHECK(std::regex_search(on.err, std::regex("warning: \\S*step-00000008 is not used: .*" + reason)));
  CHECK(has(on.err, "resumes from step-00000004"));
  CHECK(numbers(run) == lines);
  CHECK((tensors(run, 8) == end));
}

}  // namespace

TEST_CASE("a damaged checkpoint is detected and the previous one is used", "[cli]") {
  survive(
      "truncated",
      [](const fs::path& at) {
        fs::resize_file(at / "optim-00000.safetensors", fs::file_size(at / "optim-00000.safetensors") - 1);
      },
      "optim-00000.safetensors");
  survive(
      "one flipped bit of a weight",
      [](const fs::path& at) {
        flip_bit(at / "model-00000.safetensors", fs::file_size(at / "model-00000.safetensors") - 1000);
      },
      "checksum");
  survive(
      "one flipped bit of the manifest", [](const fs::path& at) { flip_bit(at / "manifest.json", 300); }, "manifest");
  survive(
      "no manifest", [](const fs::path& at) { fs::remove(at / "manifest.json"); }, "manifest");
}

TEST_CASE("if all checkpoints are damaged, the run does not start again by itself", "[cli]") {
  Scratch scratch;
  const fs::path run = finished_run(scratch);
  for (const int step : {4, 8}) fs::resize_file(checkpoint(run, step) / "model-00000.safetensors", 100);
  const auto lines = read(run / "metrics.jsonl");
  const Result on = engine(scratch, {"run", "run"});
  CHECK(on.exit == 9);
  CHECK(has(on.err, "no checkpoint of run is usable"));
  CHECK(read(run / "metrics.jsonl") == lines);
}

TEST_CASE("a full disk while saving keeps the previous checkpoint", "[cli]") {
  Scratch scratch;
  scratch.config();
  REQUIRE(engine(scratch, {"run", "config.toml", "--out", "run", "train.steps=4"}).exit == 0);
  const auto before = tensors(scratch / "run", 4);
  // No file may grow beyond what half of the weights take; the small files of a run stay below.
  const uint64_t half = fs::file_size(checkpoint(scratch / "run", 4) / "model-00000.safetensors") / 2;
  REQUIRE(half > 40'000);
  const Result full = engine(scratch, {"run", "run", "train.steps=8"}, {120, half});
  INFO(full.err);
  CHECK(full.exit == 10);
  CHECK_FALSE(full.killed);
  CHECK(has(full.err, "model-00000.safetensors"));
  CHECK(has(full.err, "free space on this file system"));
  CHECK(names(scratch / "run" / "checkpoints") == std::vector<std::string>{"step-00000004"});
  CHECK((tensors(scratch / "run", 4) == before));
  CHECK(state(scratch / "run").at("status") == "failed");
  CHECK(state(scratch / "run").at("exit_code") == 10);
  const Result on = engine(scratch, {"run", "run"});
  INFO(on.err);
  CHECK(on.exit == 0);
  CHECK(engine(scratch, {"run", "config.toml", "--out", "whole"}).exit == 0);
  CHECK(numbers(scratch / "run") == numbers(scratch / "whole"));
}

TEST_CASE("a disk without space keeps the previous checkpoint", "[cli]") {
  Scratch scratch;
  const std::string disk = (scratch / "disk").string();
  fs::create_directory(disk);
  if (mount("engine-test", disk.c_str(), "tmpfs", 0, "size=800k") != 0) {
    WARN("not run: mounting a small disk is not permitted here");
    return;
  }
  struct Unmount {
    std::string path;
    ~Unmount() { umount2(path.c_str(), MNT_DETACH); }
  } unmount{disk};
  scratch.config();
  // Seen before the first step.
  const Result refused = engine(scratch, {"run", "config.toml", "--out", "disk/run"});
  CHECK(refused.exit == 10);
  CHECK(std::regex_search(refused.err,
                          std::regex("2 checkpoints of .* need .* bytes\\), but \\S*/disk has .* bytes\\) free")));
  CHECK(names(disk).empty());
  REQUIRE(engine(scratch, {"run", "config.toml", "--out", "disk/run", "train.steps=4"}).exit == 0);
  CHECK(engine(scratch, {"run", "disk/run", "train.steps=8"}).exit == 10);
  // There is space for the next checkpoint when the run starts, but not when it is saved. On a busy machine the save
  // may come before the disk shrinks; then it starts again.
  fs::copy(scratch / "disk" / "run", scratch / "kept", fs::copy_options::recursive);
  Result full;
  for (int tries = 0; full.exit != 10 && tries < 20; ++tries) {
    REQUIRE(mount(nullptr, disk.c_str(), nullptr, MS_REMOUNT, "size=4m") == 0);
    fs::remove_all(scratch / "disk" / "run");
    fs::copy(scratch / "kept", scratch / "disk" / "run", fs::copy_options::recursive);
    Child child(scratch, {"run", "disk/run", "train.steps=8"});
    REQUIRE(child.wait_for("resumes from step-00000004"));
    mount(nullptr, disk.c_str(), nullptr, MS_REMOUNT, "size=800k");
    full = child.wait();
  }
  INFO(full.err);
  CHECK(full.exit == 10);
  CHECK(has(full.err, "No space left on device"));
  CHECK(has(full.err, "bytes"));
  CHECK(names(scratch / "disk" / "run" / "checkpoints") == std::vector<std::string>{"step-00000004"});
  CHECK(has(engine(scratch, {"eval", "disk/run"}).out, "eval step 4"));
  // Moved to a disk with space, it resumes as if nothing had happened.
  fs::copy(scratch / "disk" / "run", scratch / "moved", fs::copy_options::recursive);
  CHECK(engine(scratch, {"run", "moved"}).exit == 0);
  CHECK(engine(scratch, {"run", "config.toml", "--out", "whole"}).exit == 0);
  CHECK((tensors(scratch / "moved", 8) == tensors(scratch / "whole", 8)));
}

TEST_CASE("changed data is refused, and the run is unchanged", "[cli]") {
  Scratch scratch;
  const fs::path run = finished_run(scratch);
  const std::string text = read(scratch / "text.txt"), identity = read(run / "run.json"),
                    state = read(run / "state.json");
  scratch.write("text.txt", text + "more");
  const Result on = engine(scratch, {"run", "run", "train.steps=10"});
  INFO(on.err);
  CHECK(on.exit == 4);
  CHECK(has(on.err, "was written with other data"));
  CHECK(read(run / "run.json") == identity);
  CHECK(read(run / "state.json") == state);
  scratch.write("text.txt", text);
  CHECK(engine(scratch, {"run", "run", "train.steps=10"}).exit == 0);
}

TEST_CASE("a checkpoint of another model is refused, and the run is unchanged", "[cli]") {
  Scratch scratch;
  const fs::path run = finished_run(scratch);
  const std::string config = read(run / "config.resolved.toml");
  const Args words = {"run", "config.toml", "--out", "run", "train.steps=10", "model.intermediate_size=96"};
  CHECK(engine(scratch, words).exit == 2);  // a resumed run keeps its model
  CHECK(read(run / "config.resolved.toml") == config);
  Args insists = words;
  insists.insert(insists.end(), {"--allow-change", "model.intermediate_size"});
  const Result on = engine(scratch, insists);
  CHECK(on.exit == 9);
  CHECK(has(on.err, "gate_proj"));
  CHECK(read(run / "config.resolved.toml") == config);
}

TEST_CASE("a run's configuration that was cut off is refused, and not completed with defaults", "[cli]") {
  Scratch scratch;
  scratch.config();
  good(scratch, {"run", "config.toml", "--out", "run", "train.steps=2", "precision.plugin=bf16"});
  const fs::path file = scratch / "run" / "config.resolved.toml";
  const std::string whole = read(file);
  for (const char* before : {"\n[precision]", "\n[zero]", "\n[resolved]", "\ndefaults = ", "\n]\n"}) {
    INFO(before);
    const size_t at = whole.rfind(before);
    REQUIRE(at != whole.npos);
    std::ofstream(file, std::ios::binary) << whole.substr(0, at + 1);
    for (const Args& words : {Args{"run", "run", "train.steps=4"}, Args{"eval", "run"}, Args{"generate", "run", "a"}})
      CHECK(engine(scratch, words).exit == 2);
    CHECK(engine(scratch, {"check", "config.toml", "model.from=run"}).exit == 2);
  }
  std::ofstream(file, std::ios::binary) << whole;
  good(scratch, {"run", "run", "train.steps=4"});
}

TEST_CASE("files of a start that died at once are not an obstacle", "[cli]") {
  Scratch scratch;
  scratch.config();
  for (const char* left : {"LOCK", "checkpoints", "logs"}) {
    fs::create_directories(scratch / "run");
    if (std::string(left) == "LOCK")
      scratch.write("run/LOCK", "host:1\n");
    else
      fs::create_directory(scratch / "run" / left);
  }
  scratch.write("run/state.json.tmp", "{");
  const Result run = engine(scratch, {"run", "config.toml", "--out", "run", "train.steps=1"});
  INFO(run.err);
  CHECK(run.exit == 0);
  // Killed after state.json and before its configuration was there.
  fs::create_directories(scratch / "later");
  scratch.write("later/state.json", "{}");
  const Result alone = engine(scratch, {"run", "later"});
  CHECK(alone.exit == 2);
  CHECK(has(alone.err, "start it with its configuration: engine run CONFIG --out later"));
  CHECK(engine(scratch, {"run", "config.toml", "--out", "later", "train.steps=1"}).exit == 0);
}
