// SPDX-License-Identifier: Apache-2.0
// [offload] to files on disks, as people use it.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <regex>

#include "harness.hpp"

using namespace cli;

namespace {

Args joined(Args words, const Args& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A folder for scratch files, and the keys that use it. The page cache is used if its file system needs that.
struct Disk {
  explicit Disk(const Scratch& scratch) : path(scratch / "disk") {
    fs::create_directory(path);
    const fs::path probe = path / "probe";
    const int file = open(probe.c_str(), O_CREAT | O_RDWR | O_DIRECT, 0600);
    direct = file >= 0;
    if (direct) close(file);
    fs::remove(probe);
    if (!direct) WARN("no O_DIRECT in " << path << ": tested through the page cache");
  }
  Args keys(const Args& more = {}) const {
    return joined({"offload.nvme_paths=[\"" + path.string() + "\"]", "offload.nvme_block=16KiB",
                   std::string("offload.nvme_direct=") + (direct ? "true" : "false")},
                  more);
  }
  fs::path path;
  bool direct = true;
};

const Args everything = {"offload.optimizer=nvme", "offload.gradients=nvme", "offload.parameters=nvme",
                         "offload.activations=nvme"};

// A run that is training on storage, for many steps.
Args endless(const Disk& disk) {
  return joined({"run", "config.toml", "--out", "run", "train.steps=100000", "checkpoint.every=5", "checkpoint.keep=1"},
                disk.keys({"offload.optimizer=nvme"}));
}

// The scratch files of a process: they have no name.
std::vector<int> scratch_files(const Child& child, const Disk& disk) {
  std::vector<int> out;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(child.pid()) + "/fd")) {
    std::error_code none;
    const std::string target = fs::read_symlink(entry.path(), none).string();
    if (target.starts_with(disk.path.string())) out.push_back(std::stoi(entry.path().filename().string()));
  }
  return out;
}

}  // namespace

TEST_CASE("a run with states on disks has the numbers of one without, and each resumes the other", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Disk disk(scratch);
  const Args base = {"run", "config.toml", "precision.plugin=bf16", "checkpoint.every=4", "--out"};
  REQUIRE(engine(scratch, joined(base, {"plain"})).exit == 0);
  const auto same = [&](const char* name, const Args& more) {
    const Result result = engine(scratch, joined(joined(base, {name}), disk.keys(more)));
    INFO(name << result.err);
    REQUIRE(result.exit == 0);
    CHECK(column(scratch / name, "loss") == column(scratch / "plain", "loss"));
    CHECK(column(scratch / name, "grad_norm") == column(scratch / "plain", "grad_norm"));
    CHECK(engine(scratch, {"ckpt", "diff", name, "plain"}).exit == 0);
    CHECK(names(disk.path).empty());
  };
  same("all", everything);
  // One rank waits for its tiers, and for no other ranks.
  double tiers = 0;
  for (const Json& line : metrics(scratch / "all")) {
    CHECK(line.at("wait_seconds").at("comm") == 0);
    tiers += line.at("wait_seconds").at("offload").get<double>();
  }
  CHECK(tiers > 0);
  same("half", {"offload.optimizer=nvme", "offload.ratio=0.5", "offload.update=device", "zero.bucket=16KiB"});
  same("mixed", {"offload.optimizer=nvme", "offload.gradients=host", "checkpoint.asynchronous=true"});
  const Result on = engine(scratch, joined({"run", "all", "train.steps=12"}, {"offload.gradients=host"}));
  INFO(on.err);
  REQUIRE(on.exit == 0);
  REQUIRE(engine(scratch, joined({"run", "plain", "train.steps=12"}, disk.keys(everything))).exit == 0);
  CHECK(engine(scratch, {"ckpt", "diff", "all", "plain"}).exit == 0);
  const auto loss = [&](const Args& words) { return Json::parse(engine(scratch, words).out).at("loss"); };
  CHECK(loss({"eval", "all", "--json", "--batches", "2"}) == loss({"eval", "plain", "--json", "--batches", "2"}));
  CHECK(engine(scratch, {"generate", "half", "a", "--tokens", "8", "--seed", "3"}).out ==
        engine(scratch, {"generate", "mixed", "a", "--tokens", "8", "--seed", "3"}).out);
}

TEST_CASE("the plan lists what is on disks, and the process takes no more memory than that", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Disk disk(scratch);
  const Args words = joined({"config.toml", "--json"}, disk.keys(everything));
  const Result result = engine(scratch, joined({"plan"}, words));
  INFO(result.err);
  REQUIRE(result.exit == 0);
  const Json plan = Json::parse(result.out).at("ranks").at(0);
  uint64_t stored = 0;
  for (const Json& arena : plan.at("arenas"))
    if (arena.at("kind") == "storage") stored += arena.at("total").get<uint64_t>();
  CHECK(stored > 0);
  CHECK(plan.at("nvme_bytes") == stored);
  CHECK(has(engine(scratch, joined({"plan", "config.toml"}, disk.keys(everything))).out, "storage's tables"));
#ifndef SANITIZED  // which takes more
  const Args run = {"run", "config.toml", "--out", "run", "checkpoint.asynchronous=true", "checkpoint.every=4"};
  const Result asynchronous =
      engine(scratch, joined({"plan", "--json", "config.toml", run[4], run[5]}, disk.keys(everything)));
  const auto planned = Json::parse(asynchronous.out).at("ranks").at(0).at("host_peak_bytes").get<double>();
  REQUIRE(engine(scratch, joined(run, disk.keys(everything))).exit == 0);
  const double measured = column(scratch / "run", "host_peak_bytes").back();
  INFO("planned " << planned << ", measured " << measured);
  CHECK(std::abs(measured - planned) < std::max(planned * 0.01, 1048576.0));
#endif
}

TEST_CASE("what cannot be on disks is refused before the run", "[cli][.slow]") {
  Scratch scratch;
  scratch.config();
  const Disk disk(scratch);
  const auto refused = [&](const Args& more, int exit, const std::string& text) {
    const Result result = engine(scratch, joined({"run", "config.toml", "--out", "run", "train.steps=1"}, more));
    INFO(result.err);
    CHECK(result.exit == exit);
    CHECK(has(result.err, text));
    CHECK(names(disk.path).empty());
  };
  refused({"offload.optimizer=nvme"}, 2, "needs `nvme_paths`");
  refused({"offload.nvme_depth=4"}, 2, "no state is on \"nvme\"");
  // A folder of disks alone says only what there is.
  CHECK(engine(scratch, {"check", "config.toml", "offload.nvme_paths=[\"" + disk.path.string() + "\"]"}).exit == 0);
  refused({"offload.optimizer=nvme", "offload.nvme_paths=[\"disk\"]"}, 2, "is not absolute");
  refused({"offload.ratio=0.5"}, 2, "remove `ratio`");
  refused(joined(disk.keys({"offload.optimizer=nvme"}), {"offload.nvme_block=1000"}), 2, "nvme_block");
  refused(joined(disk.keys({"offload.optimizer=nvme"}), {"offload.nvme_paths=[\"/no/such\"]"}), 10, "/no/such");
#ifndef SANITIZED  // it plans a model of a terabyte
  const std::string large = "model.hidden_size=16384";
  refused(joined(disk.keys({"offload.optimizer=nvme", "offload.gradients=nvme", "offload.parameters=nvme"}),
                 {"model.intermediate_size=2097152", large, "model.num_hidden_layers=8"}),
          10, "of storage");
#endif
  Limits small;
  small.file_bytes = 65536;
  const Result limited =
      engine(scratch, joined({"run", "config.toml", "--out", "run", "train.steps=1"}, disk.keys(everything)), small);
  INFO(limited.err);
  CHECK(limited.exit == 10);
  CHECK(has(limited.err, "ulimit -f"));
  // `check` says the same, and takes nothing.
  const auto checked = [&](const Args& more, const Limits& limits, int exit, const std::string& text) {
    const Result result =
        engine(scratch, joined({"check", "config.toml"}, joined(disk.keys(everything), more)), limits);
    INFO(result.out << result.err);
    CHECK(result.exit == exit);
    CHECK(has(exit ? result.err : result.out, text));
    CHECK(names(disk.path).empty());
  };
  checked({}, {}, 0, "reserved and given back");
  checked({}, small, 10, "ulimit -f");
  checked({"offload.nvme_paths=[\"/no/such\"]"}, {}, 10, "create the directory");
  checked({"offload.nvme_paths=[\"" + (scratch / "text.txt").string() + "\"]"}, {}, 10, "is not a directory");
}

TEST_CASE("a run that is killed leaves nothing on its disks, and goes on from its checkpoint", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Disk disk(scratch);
  Child child(scratch, endless(disk));
  REQUIRE(child.wait_for_path(checkpoint(scratch / "run", 5)));
  CHECK(scratch_files(child, disk).size() == 1);
  CHECK(names(disk.path).empty());
  child.signal(SIGKILL);
  CHECK(child.wait().killed);
  CHECK(names(disk.path).empty());
  const std::string newest = names(scratch / "run" / "checkpoints").back();
  REQUIRE(newest.starts_with("step-"));
  const Result on = engine(scratch, {"run", "run", "train.steps=" + std::to_string(std::stoll(newest.substr(5)) + 2)});
  INFO(on.err);
  CHECK(on.exit == 0);
  CHECK(names(disk.path).empty());
}

#ifndef SANITIZED  // what is preloaded would come before the sanitizer
TEST_CASE("a disk that fails while a run trains", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Disk disk(scratch);
  const auto faulty = [&](const std::string& fault) {
    Limits limits;
    limits.more = {std::string("LD_PRELOAD=") + FAULTY_DISK, "DISK_FOLDER=" + disk.path.string(),
                   "DISK_FAULT=" + fault};
    return limits;
  };
  const Args run = joined({"run", "config.toml", "checkpoint.every=2", "--out"}, {});
  const auto words = [&](const char* out) { return joined(joined(run, {out}), disk.keys(everything)); };
  const Result whole = engine(scratch, words("whole"), faulty("eio 1000000000 0"));
  INFO(whole.err);
  REQUIRE(whole.exit == 0);

  const Result failed = engine(scratch, words("run"), faulty("eio 2000 0"));
  INFO(failed.err);
  REQUIRE(failed.exit == 10);
  CHECK(
      std::regex_search(failed.err, std::regex("error: step [0-9]+: tier nvme, (read|write) [a-z_]+ [a-z0-9_.]+ in ")));
  CHECK(has(failed.err, "Input/output error"));
  CHECK(has(failed.err, disk.path.string()));
  CHECK(names(disk.path).empty());
  REQUIRE(engine(scratch, {"ckpt", "verify", "run"}).exit == 0);
  REQUIRE(engine(scratch, {"run", "run"}).exit == 0);
  CHECK(engine(scratch, {"ckpt", "diff", "run", "whole"}).exit == 0);

  // Fewer bytes than asked for are no error: the rest is asked for again.
  REQUIRE(engine(scratch, words("short"), faulty("short 700 0")).exit == 0);
  CHECK(engine(scratch, {"ckpt", "diff", "short", "whole"}).exit == 0);

  const Result killed = engine(scratch, words("killed"), faulty("kill 2500 0"));
  CHECK(killed.killed);
  CHECK(names(disk.path).empty());
  REQUIRE(engine(scratch, {"run", "killed"}).exit == 0);
  CHECK(engine(scratch, {"ckpt", "diff", "killed", "whole"}).exit == 0);
}
#endif

TEST_CASE("a plan that is too large for memory is proposed with disks, if they are named", "[cli][.slow]") {
  Scratch scratch;
  scratch.config();
  const Disk disk(scratch);
  const Args base = {"plan",
                     "config.toml",
                     "model.hidden_size=512",
                     "model.intermediate_size=2048",
                     "train.micro_batch=1",
                     "zero.bucket=64KiB"};
  const Json plain = Json::parse(engine(scratch, joined(base, {"--json"})).out);
  const Json least =
      Json::parse(engine(scratch, joined(joined(base, {"--json", "offload.optimizer=nvme"}), disk.keys())).out);
  const auto peak = [](const Json& plan) { return plan.at("ranks").at(0).at("host_peak_bytes").get<uint64_t>(); };
  INFO(peak(plain) << " " << peak(least));
  REQUIRE(peak(least) < peak(plain));
  const std::string between = std::to_string((peak(plain) + peak(least)) / 2) + "B";
  const Result without = engine(scratch, joined(base, {"--fit", between}));
  CHECK_FALSE(has(without.out, "offload"));
  const Args named = {"offload.nvme_paths=[\"" + disk.path.string() + "\"]"};
  const Result with = engine(scratch, joined(joined(base, {"--fit", between}), named));
  INFO(with.out << with.err);
  CHECK(has(with.out, "offload.optimizer=nvme"));
  CHECK_FALSE(has(with.err, "zero.bucket has no effect"));
  CHECK(has(with.out, " on disks"));
}

TEST_CASE("bytes that change on the disk stop the run, which names what and where", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Disk disk(scratch);
  const bool truncate = GENERATE(false, true);
  Child child(scratch, endless(disk));
  REQUIRE(child.wait_for_path(checkpoint(scratch / "run", 5)));
  const auto files = scratch_files(child, disk);
  REQUIRE(files.size() == 1);
  const std::string path = "/proc/" + std::to_string(child.pid()) + "/fd/" + std::to_string(files[0]);
  if (truncate) {
    REQUIRE(::truncate(path.c_str(), 4096) == 0);
  } else {
    const int file = open(path.c_str(), O_RDWR);
    REQUIRE(file >= 0);
    // Bytes that are written after this are whole again, so not only once.
    for (int round = 0; round < 40000 && child.running(); ++round) {
      for (off_t at = 100; at < 65536; at += 4096) {
        char byte = 0;
        if (pread(file, &byte, 1, at) == 1) byte = static_cast<char>(byte ^ 4), (void)!pwrite(file, &byte, 1, at);
      }
      usleep(static_cast<useconds_t>(500 + 37 * (round % 50)));
    }
    close(file);
  }
  const Result result = child.wait();
  INFO(result.err);
  CHECK(result.exit == 10);
  // In a step, or when a checkpoint is read.
  CHECK(std::regex_search(result.err, std::regex("error: (step [0-9]+: )?tier nvme, read [a-z_]+ [a-z0-9_.]+")));
  CHECK(has(result.err, disk.path.string()));
  if (!truncate) CHECK(has(result.err, "checksum"));
  CHECK(names(disk.path).empty());
  CHECK(engine(scratch, {"ckpt", "verify", "run"}).exit == 0);
}
