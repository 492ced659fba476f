// SPDX-License-Identifier: Apache-2.0
// Written bytes come back, from any offset, length and address, and while the other direction is at work.
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <thread>

#include "disks.hpp"

using namespace disks;

namespace {

Given given(const Folder& folder, size_t paths, int64_t block, int64_t depth, bool direct) {
  Given out{.paths = {}, .block = block, .depth = depth, .direct = direct};
  for (size_t k = 0; k < paths; ++k) {
    out.paths.push_back((folder.path / std::to_string(k)).string());
    fs::create_directories(out.paths.back());
  }
  return out;
}

eng_tier_info described(const Given& keys) {
  const eng::Section section = disks::section(keys);
  const eng::Options options(section);
  eng_tier_info info{};
  info.struct_size = sizeof info;
  REQUIRE(table().describe(options.get(), &info, nullptr) == ENG_OK);
  return info;
}

uint64_t counted(const Given& keys, uint64_t bytes) {
  const eng::Section section = disks::section(keys);
  const eng::Options options(section);
  uint64_t out = 0;
  REQUIRE(table().host_bytes(options.get(), bytes, &out, nullptr) == ENG_OK);
  return out;
}

void try_layouts(int rounds) {
  const Folder folder;
  for (const bool direct : direct_choices(folder.path))
    for (const size_t paths : {1u, 3u})
      for (const int64_t block : {4096, 20480, 1 << 20})
        for (const int64_t depth : {1, 5}) {
          INFO("direct " << direct << ", paths " << paths << ", block " << block << ", depth " << depth);
          Tier tier(given(folder, paths, block, depth, direct));
          // Whole stripes; an end within a block; less than a block.
          CHECK(exercise(tier, block == 1 << 20 ? 2 << 20 : 245760, 1, rounds / 3) == "");
          CHECK(exercise(tier, 300123, 2, rounds) == "");
          CHECK(exercise(tier, 700, 3, rounds / 3) == "");
        }
  CHECK(open_files(folder.path).empty());
}

}  // namespace

TEST_CASE("nvme: random reads and writes") {
  try_layouts(12);
}

TEST_CASE("nvme: many random reads and writes", "[.slow]") {
  try_layouts(300);
}

TEST_CASE("nvme: an arena is zero until it is written") {
  const Folder folder;
  for (const bool direct : direct_choices(folder.path)) {
    Tier tier(given(folder, 2, 8192, 4, direct));
    const Arena arena(tier, 100000);
    std::vector<char> memory(100000, 'x');
    REQUIRE(arena.read(0, memory.data(), memory.size()).text == "accepted");
    CHECK(memory == std::vector<char>(100000));
    // Around a few bytes too.
    REQUIRE(arena.write(50001, "abc", 3).text == "accepted");
    REQUIRE(arena.read(0, memory.data(), memory.size()).text == "accepted");
    std::vector<char> want(100000);
    std::memcpy(want.data() + 50001, "abc", 3);
    CHECK(memory == want);
  }
}

TEST_CASE("nvme: an arena of no bytes, and what is outside of one") {
  const Folder folder;
  Tier tier(given(folder, 2, 0, 0, false));
  const Arena none(tier, 0), arena(tier, 10000);
  char byte = 0;
  CHECK(none.self != nullptr);
  CHECK(none.read(0, &byte, 0).status == ENG_OK);
  CHECK(none.read(0, &byte, 1).status == ENG_OUT_OF_RANGE);
  CHECK(arena.read(9999, &byte, 1).status == ENG_OK);
  const Answer answer = arena.write(9999, &byte, 2);
  CHECK(answer.status == ENG_OUT_OF_RANGE);
  CHECK(answer.text == "2 bytes from byte 9999 on are not all inside an arena of 10000 bytes");
  CHECK(arena.write(UINT64_MAX, &byte, 2).status == ENG_OUT_OF_RANGE);
}

TEST_CASE("nvme: a read and a write share blocks") {
  const Folder folder;
  for (const bool direct : direct_choices(folder.path))
    for (const uint64_t length : {700u, 4096u * 5 + 700u}) {
      Tier tier(given(folder, 2, 8192, 3, direct));
      // Even segments are read and never change meanwhile; odd ones are written.
      const uint64_t segments = 24;
      const Arena arena(tier, segments * length);
      const auto pattern = [&](uint64_t segment, uint64_t version) {
        std::vector<char> bytes(length);
        std::mt19937 random(static_cast<uint32_t>(segment * 1000 + version));
        for (char& c : bytes) c = static_cast<char>(random());
        return bytes;
      };
      for (uint64_t s = 0; s < segments; ++s)
        REQUIRE(arena.write(s * length, pattern(s, 0).data(), length).text == "accepted");
      std::vector<uint64_t> versions(segments);
      std::string wrong_write, wrong_read;
      std::atomic<bool> done{false};
      int reads = 0;
      std::thread writer([&] {
        std::mt19937 random(1);
        for (uint64_t k = 1; k <= 250 && wrong_write.empty(); ++k) {
          const uint64_t s = random() % (segments / 2) * 2 + 1;
          const Answer answer = arena.write(s * length, pattern(s, k).data(), length);
          if (answer.status != ENG_OK) wrong_write = answer.text;
          versions[s] = k;
        }
        done = true;
      });
      std::mt19937 random(2);
      std::vector<char> memory(length);
      for (; !done; ++reads) {
        const uint64_t s = random() % (segments / 2) * 2;
        const Answer answer = arena.read(s * length, memory.data(), length);
        if (answer.status != ENG_OK) wrong_read = answer.text;
        if (memory != pattern(s, 0)) wrong_read = "segment " + std::to_string(s) + " changed";
        if (!wrong_read.empty()) break;
      }
      writer.join();
      CHECK(wrong_write == "");
      CHECK(wrong_read == "");
      CHECK(reads > 0);
      for (uint64_t s = 0; s < segments; ++s) {
        REQUIRE(arena.read(s * length, memory.data(), length).text == "accepted");
        CHECK(memory == pattern(s, versions[s]));
      }
    }
}

TEST_CASE("nvme: two arenas of a tier, used by several threads one after the other") {
  const Folder folder;
  Tier tier(given(folder, 1, 16384, 4, false));
  const Arena a(tier, 100000), b(tier, 50000);
  const std::vector<char> of_a(100000, 'a'), of_b(50000, 'b');
  std::vector<char> memory(100000);
  std::thread([&] { a.write(0, of_a.data(), of_a.size()); }).join();
  std::thread([&] { b.write(0, of_b.data(), of_b.size()); }).join();
  std::thread([&] { a.read(0, memory.data(), memory.size()); }).join();
  CHECK(memory == of_a);
  memory.resize(50000);
  CHECK(b.read(0, memory.data(), memory.size()).text == "accepted");
  CHECK(memory == of_b);
}

TEST_CASE("nvme: what is described") {
  const Folder folder;
  const auto usable = [&] {
    struct statvfs about {};
    REQUIRE(statvfs(folder.path.c_str(), &about) == 0);
    return static_cast<double>(about.f_bavail) * static_cast<double>(about.f_frsize);
  };
  const double one = static_cast<double>(described(given(folder, 1, 0, 0, true)).total_bytes);
  CHECK(one == Approx(usable()).epsilon(0.05));
  // Two directories of one file system do not have it twice.
  CHECK(static_cast<double>(described(given(folder, 2, 0, 0, true)).total_bytes) == Approx(usable()).epsilon(0.05));
  // Another file system limits both.
  Given mixed = given(folder, 1, 0, 0, true);
  mixed.paths.push_back("/dev/shm");
  struct statvfs shared {};
  struct stat here {
  }, there{};
  REQUIRE(stat(folder.path.c_str(), &here) == 0);
  if (statvfs("/dev/shm", &shared) == 0 && stat("/dev/shm", &there) == 0 && here.st_dev != there.st_dev) {
    const double other = static_cast<double>(shared.f_bavail) * static_cast<double>(shared.f_frsize);
    CHECK(static_cast<double>(described(mixed).total_bytes) == Approx(2 * std::min(usable(), other)).epsilon(0.05));
  }
  // A plan for another machine.
  CHECK(described({.paths = {"/nonexistent/folder"}}).total_bytes == 0);
  CHECK(described({.paths = {"/nonexistent/folder"}}).flags == 0);

  const eng::Section section = disks::section(given(folder, 1, 0, 0, true))
                                   .with("nvme_read_bandwidth", eng::Value(int64_t{5000000000}))
                                   .with("nvme_write_bandwidth", eng::Value(int64_t{3000000000}));
  const eng::Options options(section);
  eng_tier_info info{};
  info.struct_size = sizeof info;
  REQUIRE(table().describe(options.get(), &info, nullptr) == ENG_OK);
  CHECK(info.read_bandwidth == 5e9);
  CHECK(info.write_bandwidth == 3e9);
}

TEST_CASE("nvme: the host memory that it counts") {
  const Folder folder;
  const uint64_t blocks = 1 << 20, arena = blocks * 4096;
  const Given direct = given(folder, 1, 1 << 20, 16, true), cached = given(folder, 1, 1 << 20, 16, false);
  CHECK(counted(cached, arena) - counted(cached, 0) == 4 * blocks);
  CHECK(counted(cached, 1) - counted(cached, 0) == 4096);
  CHECK(counted(direct, 0) - counted(cached, 0) == 2 * 16 * (1 << 20));
  CHECK(counted(cached, 0) < (64 << 10) + 400000);  // and code
}
