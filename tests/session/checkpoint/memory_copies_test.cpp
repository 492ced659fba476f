// SPDX-License-Identifier: Apache-2.0
// [checkpoint] memory_every: parts of checkpoints in memory, sent to another host, and saved from there.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "sample.hpp"
#include "session/checkpoint/memory_copies.hpp"
#include "team.hpp"

using namespace eng;
using namespace eng::test;
namespace fs = std::filesystem;

namespace memory_copies_test {
namespace {

uint64_t files_bytes(const fs::path& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += (entry.file_size() + 4095) / 4096 * 4096;
  return bytes;
}

std::vector<TensorShare> shares(const Sample& sample, const Peers& p) {
  auto out = sample.specs;
  for (TensorShare& t : out) t.copies = p.size, t.copy = p.rank;
  return out;
}

void same_bytes(const fs::path& checkpoint, const Sample& sample, int64_t step) {
  std::map<std::string, std::string> got;
  const RunPoint point = load_checkpoint(checkpoint, sample.specs,
                                         [&](const TensorSpec& t, uint64_t first, uint64_t count, const void* from) {
                                           const uint64_t size = dtype_size(t.dtype);
                                           std::string& to = got[Sample::key(t)];
                                           to.resize(sample.bytes.at(Sample::key(t)).size());
                                           std::memcpy(to.data() + first * size, from, count * size);
                                         });
  CHECK(point == sample.point(step));
  for (const auto& [key, bytes] : got) CHECK(bytes == sample.bytes.at(key));
}

bool soon(const std::function<bool()>& condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return condition();
}

// Two folders that are not on one file system, as those of two hosts.
struct Hosts {
  Scratch scratch;
  const std::string name = "engine-test-" + std::to_string(::getpid());
  const fs::path memory[2] = {"/dev/shm/" + name, "/var/tmp/" + name};
  Hosts() {
    for (const fs::path& one : memory) fs::create_directory(one);
  }
  ~Hosts() {
    for (const fs::path& one : memory) fs::remove_all(one);
  }
  fs::path of(uint32_t rank) const { return copies_folder(memory[rank], "/a/run", 1); }
  bool two() const {
    struct stat a {
    }, b{};
    return ::stat(memory[0].c_str(), &a) == 0 && ::stat(memory[1].c_str(), &b) == 0 && a.st_dev != b.st_dev;
  }
};

}  // namespace

TEST_CASE("the parts of a step are in memory, and become a checkpoint", "[checkpoint]") {
  Scratch scratch;
  const Sample sample;
  const fs::path folder = copies_folder(scratch.path(), "a/run/", 2);
  CHECK(folder == copies_folder(scratch.path(), fs::absolute("a/run"), 2));
  CHECK(folder != copies_folder(scratch.path(), "b/run", 2));
  CHECK(newest_in_memory(folder, -1) == -1);
  const uint64_t planned = memory_copy_bytes(sample.specs, false);
  const fs::path before = copies_folder(scratch.path(), "a/run", 1);  // of an earlier attempt
  MemoryCopies(before, {}, {}, 0).take(sample.point(50), sample.specs, sample.read());
  CHECK(newest_in_memory(before, -1) == 50);
  MemoryCopies copies(folder, {}, {}, planned);
  CHECK_FALSE(fs::exists(before));
  for (const int64_t step : {3, 6, 9}) {
    CHECK(copies.take(sample.point(step), sample.specs, sample.read()) == "");
    CHECK(newest_in_memory(folder, -1) == step);
    CHECK(newest_in_memory(folder, step) == -1);
    CHECK(files_bytes(folder) <= planned);
  }
  CHECK_FALSE(fs::exists(folder / "step-00000003"));  // the last two are there
  CHECK(fs::exists(folder / "step-00000006"));
  // A rank was killed while it wrote the last one.
  fs::remove(folder / "step-00000009" / "part-00000-of-00001.json");
  REQUIRE(newest_in_memory(folder, -1) == 6);
  const fs::path checkpoints = scratch.path() / "checkpoints";
  fs::create_directory(checkpoints);
  save_from_memory(folder, 6, checkpoints, {}, true);
  same_bytes(checkpoints / "step-00000006", sample, 6);
  CHECK(inspect_checkpoint(checkpoints / "step-00000006", true).problem.empty());
  // A damaged part is refused, and leaves nothing behind.
  fs::remove_all(checkpoints / "step-00000006");
  fs::resize_file(folder / "step-00000006" / "model-00000.safetensors", 100);
  CHECK(refusal(Exit::checkpoint, [&] { save_from_memory(folder, 6, checkpoints, {}, true); }).find("has 100 bytes") !=
        std::string::npos);
  CHECK(fs::is_empty(checkpoints));
  // Others may not have put it there.
  ::chmod(folder.parent_path().c_str(), 0777);
  CHECK(newest_in_memory(folder, -1) == -1);
  copies.remove();
  CHECK_FALSE(fs::exists(folder.parent_path()));
}

TEST_CASE("a file system in memory that is too small is refused before the first step", "[checkpoint]") {
  Scratch scratch;
  const std::string why = refusal(
      Exit::host_memory, [&] { MemoryCopies(copies_folder(scratch.path(), "run", 1), {}, {}, uint64_t{1} << 60); });
  CHECK(why.find("bytes left, and the parts of the 1 ranks here take 1152921504606846976") != std::string::npos);
}

TEST_CASE("each of two hosts has the parts of both", "[checkpoint]") {
  const Hosts hosts;
  if (!hosts.two()) {
    WARN("skipped: /dev/shm and /var/tmp are one file system");
    return;
  }
  const Sample sample;
  const auto said = ranks(2, Exit::communication, [&](const Peers& peers) {
    const fs::path folder = hosts.of(peers.rank);
    MemoryCopies copies(folder, peers, {peers.rank, 2}, memory_copy_bytes(sample.specs, true));
    CHECK(copies.kept_by().starts_with(peers.rank ? "rank 0 on " : "rank 1 on "));
    for (const int64_t step : {1, 2, 3}) {
      CHECK(copies.take(sample.point(step), shares(sample, peers), sample.read()) == "");
      // All of it is on each host alone.
      CHECK(soon([&] { return newest_in_memory(folder, -1) == step; }));
      CHECK(soon([&] { return !copies.sending(); }));
      peers.agree([] { return ""; });
    }
    CHECK(files_bytes(folder) <= memory_copy_bytes(sample.specs, true));
    CHECK(fs::exists(folder / "step-00000002"));
    CHECK_FALSE(fs::exists(folder / "step-00000001"));
    // Both hosts write one checkpoint.
    const fs::path checkpoints = hosts.scratch.path() / "checkpoints";
    peers.lead([&] { return fs::create_directory(checkpoints), ""; });
    CHECK(newest_in_memory(folder, 1, peers) == 3);
    save_from_memory(folder, 3, checkpoints, peers, true);
  });
  CHECK(said == same_text(2, "accepted"));
  same_bytes(hosts.scratch.path() / "checkpoints" / "step-00000003", sample, 3);
  // One host is lost. The other one has all of it.
  fs::remove_all(hosts.of(0));
  fs::remove_all(hosts.scratch.path() / "checkpoints" / "step-00000003");
  REQUIRE(newest_in_memory(hosts.of(1), -1) == 3);
  save_from_memory(hosts.of(1), 3, hosts.scratch.path() / "checkpoints", {}, true);
  same_bytes(hosts.scratch.path() / "checkpoints" / "step-00000003", sample, 3);
}

TEST_CASE("a host that is gone is told once, and the others keep their own parts", "[checkpoint]") {
  const Hosts hosts;
  if (!hosts.two()) {
    WARN("skipped: /dev/shm and /var/tmp are one file system");
    return;
  }
  const Sample sample;
  std::vector<std::string> told(2);
  const auto said = ranks(2, Exit::communication, [&](const Peers& peers) {
    const fs::path folder = hosts.of(peers.rank);
    MemoryCopies copies(folder, peers, {peers.rank, 2}, 0);
    // The folder of rank 1 takes no more files.
    if (peers.rank) fs::remove_all(folder), std::ofstream(folder) << "x";
    peers.agree([] { return ""; });
    for (int64_t step = 1; step <= 40 && told[peers.rank].empty(); ++step) {
      const std::string text = copies.take(sample.point(step), shares(sample, peers), sample.read());
      if (text.find("left out") == std::string::npos) told[peers.rank] = text;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  CHECK(said == same_text(2, "accepted"));
  CHECK(told[0].find("checkpoint.memory_every: rank ") == 0);
  CHECK(told[0] == told[1]);
}

}  // namespace memory_copies_test
