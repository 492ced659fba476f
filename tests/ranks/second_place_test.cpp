// SPDX-License-Identifier: Apache-2.0
// checkpoint.second: copies of checkpoints, and runs that go on from them.
#include <sys/mount.h>

#include <fstream>

#include "tests/ranks/names.hpp"
#include "training.hpp"

using namespace cli;

namespace {

constexpr const char* key = "checkpoint.second=\"other\"";

Args words(const std::string& out, const Args& more = {}) {
  Args all = {"run", "config.toml", "--out", out, "checkpoint.every=2", "checkpoint.keep=2", "train.eval_every=0", key};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Changes a byte in the middle of a file.
void damage(const fs::path& file) {
  std::string bytes = read(file);
  bytes[bytes.size() - 7] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
}

void same_end(const Scratch& scratch, const fs::path& a, const fs::path& b) {
  CHECK(numbers(a) == numbers(b));
  const Result diff = engine(scratch, {"ckpt", "diff", checkpoint(a, 8).string(), checkpoint(b, 8).string()});
  INFO(diff.out << diff.err);
  CHECK(diff.exit == 0);
}

}  // namespace

TEST_CASE("checkpoints are copied to a second place, which is a run", "[ranks]") {
  Scratch scratch;
  scratch.config();
  const Result result = good(scratch, words("run"));
  CHECK_FALSE(has(result.err, "not copied"));  // a slow machine may wait for a copy, with an alert
  const fs::path other = scratch / "other" / "run";
  CHECK(names(other / "checkpoints") == names(scratch / "run" / "checkpoints"));
  CHECK(names(other / "checkpoints") == std::vector<std::string>{name_of(6), name_of(8)});
  CHECK(tensors(other, 8) == tensors(scratch / "run", 8));
  good(scratch, {"ckpt", "verify", other.string()});
  CHECK(has(good(scratch, {"plan", "config.toml", key}).out, "for [checkpoint] second, on rank 0"));
  // The first place is lost.
  fs::remove_all(scratch / "run");
  const Result itself = engine(scratch, {"run", other.string(), "train.steps=10"});
  CHECK(itself.exit == 2);
  CHECK(has(itself.err, "is the run itself"));
  const Result on = good(scratch, {"run", other.string(), "train.steps=10", "--unset", "checkpoint.second"});
  CHECK(has(on.err, "resumes from " + name_of(8)));
  CHECK(state(other).at("step") == 10);
}

TEST_CASE("a run resumes from the newest checkpoint of both places", "[ranks][.slow]") {
  Scratch scratch;
  scratch.config();
  good(scratch, {"run", "config.toml", "--out", "whole", "checkpoint.every=2", "checkpoint.keep=2",
                 "train.eval_every=0", "--ranks", "2"});
  for (const std::string how : {"gone", "damaged", "all gone"}) {
    INFO(how);
    const fs::path run = scratch / how, other = scratch / "other" / how;
    good(scratch, words(how, {"train.steps=6", "--ranks", "2"}));
    const fs::path newest = run / "checkpoints" / name_of(6);
    if (how == "damaged")
      damage(newest / "model-00001.safetensors");
    else if (how == "gone")
      fs::remove_all(newest);
    else
      for (const int step : {4, 6}) fs::remove_all(run / "checkpoints" / name_of(step));
    const Result on = good(scratch, {"run", how, "train.steps=8", "--ranks", "2"});
    INFO(on.err);
    CHECK(has(on.err, "the newest usable checkpoint is in the second place: "));
    CHECK(has(on.err, "resumes from " + name_of(6)));
    same_end(scratch, run, scratch / "whole");
    CHECK(names(other / "checkpoints") == std::vector<std::string>{name_of(6), name_of(8)});
    good(scratch, {"ckpt", "verify", how});
  }
  // A damaged copy is passed over, and so is one that this run did not make.
  good(scratch, words("bad", {"train.steps=6"}));
  const fs::path copy = scratch / "other" / "bad" / "checkpoints" / name_of(6);
  damage(copy / "model-00000.safetensors");
  fs::remove_all(scratch / "bad" / "checkpoints" / name_of(6));
  Result on = good(scratch, {"run", "bad", "train.steps=8"});
  CHECK(has(on.err, "resumes from " + name_of(4)));
  CHECK(has(on.err, copy.string()));
}

TEST_CASE("later copies of a run that goes on from an earlier step are set aside", "[ranks][.slow]") {
  Scratch scratch;
  scratch.config();
  good(scratch, words("run"));
  good(scratch, {"run", "run", "--resume", "6", "train.steps=7", "checkpoint.every=0"});
  const fs::path copies = scratch / "other" / "run" / "checkpoints";
  CHECK(names(copies) == std::vector<std::string>{"aside-" + name_of(8), name_of(6), name_of(7)});
  const Result on = good(scratch, {"run", "run", "train.steps=8"});
  CHECK(has(on.err, "resumes from " + name_of(7)));
}

TEST_CASE("a second place gets a step that was made again while it was away", "[ranks][.slow]") {
  Scratch scratch;
  scratch.config();
  good(scratch, words("run"));
  const fs::path other = scratch / "other", away = scratch / "away";
  const auto old = tensors(other / "run", 8);
  fs::rename(other, away);
  scratch.write("other", "");
  const Result result = good(scratch, {"run", "run", "--resume", "6", "train.steps=8", "optimizer.learning_rate=0.5"});
  CHECK(has(result.err, "not copied"));
  fs::remove(other);
  fs::rename(away, other);
  REQUIRE(tensors(scratch / "run", 8) != old);
  good(scratch, {"run", "run", "train.steps=8"});
  CHECK(tensors(other / "run", 8) == tensors(scratch / "run", 8));
}

TEST_CASE("another run's copies are not touched", "[ranks]") {
  Scratch scratch;
  scratch.config();
  good(scratch, words("run"));
  fs::remove_all(scratch / "run");
  const Result result = engine(scratch, words("run"));
  INFO(result.err);
  CHECK(result.exit == 2);
  CHECK(has(result.err, "it is of another run"));
  CHECK(names(scratch / "other" / "run" / "checkpoints") == std::vector<std::string>{name_of(6), name_of(8)});
}

TEST_CASE("a second place that fails is told, and training goes on", "[ranks][.slow]") {
  Scratch scratch;
  scratch.config();
  const auto told = [&](const std::string& run, const std::string& text, const Limits& limits = {}) {
    const Result result = engine(scratch, words(run), limits);
    INFO(run << "\n" << result.err);
    CHECK(result.exit == 0);
    CHECK(has(result.err, text));
    CHECK(has(result.err, "training goes on"));
    CHECK(has(result.err, "checkpoints were not copied to "));
    CHECK(has(read(scratch / run / "logs" / "rank-00000.log"), text));
    CHECK(state(scratch / run).at("status") == "done");
    good(scratch, {"ckpt", "verify", run});
  };
  // Missing, and not to be made: a file is in the way.
  scratch.write("other", "");
  told("missing", "cannot create directory");
  fs::remove(scratch / "other");
  // Nothing that was written can be read back.
  const fs::path other = scratch / "other";
  told("unreadable", "Input/output error",
       {.more = {std::string("LD_PRELOAD=") + FAULTY_DISK, "DISK_FOLDER=" + other.string(), "DISK_FAULT=eio 1 0"}});
  CHECK(names(other / "unreadable" / "checkpoints").empty());
  fs::remove_all(other);
  fs::create_directory(other);
  if (mount("none", other.c_str(), "tmpfs", 0, "size=256k") != 0) {
    WARN("no right to mount a small file system: the test of a full one is left out");
    return;
  }
  told("full", "No space left on device");
  CHECK(names(other / "full" / "checkpoints").empty());
  umount(other.c_str());
}
