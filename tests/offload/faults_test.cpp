// SPDX-License-Identifier: Apache-2.0
// Faults of disks and systems: they are found, named, and end with the ranges that they concern.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>

#include "disks.hpp"

using namespace disks;
using Catch::Contains;

namespace {

// Another process at work in a scratch file, which only its descriptors lead to.
struct Intruder {
  explicit Intruder(int of) : fd(open(("/proc/self/fd/" + std::to_string(of)).c_str(), O_RDWR | O_CLOEXEC)) {
    REQUIRE(fd >= 0);
  }
  ~Intruder() { close(fd); }
  void put(int64_t offset, const std::string& bytes) const {
    REQUIRE(pwrite(fd, bytes.data(), bytes.size(), offset) == static_cast<ssize_t>(bytes.size()));
    REQUIRE(fdatasync(fd) == 0);
  }
  std::string get(int64_t offset, size_t count) const {
    std::string bytes(count, 0);
    REQUIRE(pread(fd, bytes.data(), count, offset) == static_cast<ssize_t>(count));
    return bytes;
  }
  void flip(int64_t offset) const {
    std::string byte = get(offset, 1);
    byte[0] = static_cast<char>(byte[0] ^ 4);
    put(offset, byte);
  }
  int fd;
};

constexpr uint64_t size = 100000;

std::vector<char> some_bytes() {
  std::vector<char> bytes(size);
  for (size_t k = 0; k < size; ++k) bytes[k] = static_cast<char>(k * 7 / 3);
  return bytes;
}

struct Filled {
  explicit Filled(bool direct) : tier({.paths = {folder.path.string()}, .block = 8192, .depth = 4, .direct = direct}) {}
  void fill() { REQUIRE(arena.write(0, bytes.data(), size).text == "accepted"); }
  Intruder intruder() {
    const std::vector<int> found = open_files(folder.path);
    REQUIRE(found.size() == 1);
    return Intruder(found[0]);
  }
  Answer read(uint64_t from, uint64_t count) {
    memory.assign(count, 'x');
    const Answer answer = arena.read(from, memory.data(), count);
    if (answer.status == ENG_OK)
      CHECK(std::equal(memory.begin(), memory.end(), bytes.begin() + static_cast<std::ptrdiff_t>(from)));
    return answer;
  }
  Folder folder;
  Tier tier;
  Arena arena{tier, size};
  std::vector<char> bytes = some_bytes(), memory;
};

}  // namespace

TEST_CASE("nvme: a flipped bit") {
  const Folder probe;
  for (const bool direct : direct_choices(probe.path)) {
    Filled f(direct);
    f.fill();
    CHECK(f.read(0, size).text == "accepted");
    f.intruder().flip(40961);
    const Answer answer = f.read(0, size);
    CHECK(answer.status == ENG_DATA_LOSS);
    CHECK_THAT(answer.text, Contains(f.folder.path.string() + "/") && Contains(", byte 40960: ") &&
                                Contains("the checksum of 4096 bytes differs") && Contains("another process"));
    // A part of the block, read or kept by a write.
    CHECK_THAT(f.read(41000, 10).text, Contains("byte 40960: the checksum"));
    CHECK_THAT(f.arena.write(41000, "abc", 3).text, Contains("byte 40960: the checksum"));
    // Everything else is as before; what is written anew is good.
    CHECK(f.read(0, 40960).text == "accepted");
    CHECK(f.read(45056, size - 45056).text == "accepted");
    REQUIRE(f.arena.write(40960, f.bytes.data() + 40960, 4096).text == "accepted");
    CHECK(f.read(0, size).text == "accepted");
  }
}

TEST_CASE("nvme: blocks that changed places, and one that was never written") {
  const Folder probe;
  for (const bool direct : direct_choices(probe.path)) {
    Filled f(direct);
    {
      const Intruder intruder = f.intruder();
      intruder.put(20000, "x");
      std::vector<char> memory(size);
      CHECK_THAT(f.arena.read(0, memory.data(), size).text,
                 Contains(", byte 16384: 4096 bytes were never written, but are not zero"));
    }
    f.fill();
    const Intruder intruder = f.intruder();
    const std::string first = intruder.get(0, 4096), second = intruder.get(4096, 4096);
    intruder.put(0, second), intruder.put(4096, first);
    CHECK_THAT(f.read(0, size).text, Contains(", byte 0: the checksum"));
    CHECK_THAT(f.read(4096, 4096).text, Contains(", byte 4096: the checksum"));
    // A block that the disk lost and shows as zeros.
    f.fill();
    intruder.put(8192, std::string(4096, '\0'));
    CHECK_THAT(f.read(0, size).text, Contains(", byte 8192: the checksum"));
  }
}

TEST_CASE("nvme: a file that is cut") {
  const Folder probe;
  for (const bool direct : direct_choices(probe.path)) {
    Filled f(direct);
    f.fill();
    const Intruder intruder = f.intruder();
    for (const int64_t length : {30000, 8192, 0}) {
      REQUIRE(ftruncate(intruder.fd, length) == 0);
      const Answer answer = f.read(0, size);
      CHECK(answer.status == ENG_DATA_LOSS);
      CHECK_THAT(answer.text, Contains(f.folder.path.string() + "/") &&
                                  Contains(": ends at byte " + std::to_string(length) + " of 102400"));
      CHECK_THAT(f.read(40000, 1).text, Contains("ends at byte"));
      CHECK_THAT(f.arena.write(40000, "abc", 3).text, Contains("ends at byte"));
      CHECK(f.read(0, static_cast<uint64_t>(length) / 4096 * 4096).text == "accepted");
    }
    // Its blocks are known to have been written: what is written whole is good again, and only that.
    REQUIRE(f.arena.write(0, f.bytes.data(), 98304).text == "accepted");
    CHECK(f.read(0, 98304).text == "accepted");
    CHECK_THAT(f.read(98304, 5).text, Contains("ends at byte 98304 of 102400"));
  }
}

TEST_CASE("nvme: a system without io_uring") {
  const Folder folder;
  for (const bool direct : direct_choices(folder.path))
    for (const int error : {EPERM, ENOSYS, ENOMEM})
      CHECK(in_child([&] {
        if (!refuse_call(SYS_io_uring_setup, error)) return true;
        Tier tier({.paths = {folder.path.string()}, .block = 8192, .depth = 4, .direct = direct});
        Tier another({.paths = {folder.path.string()}, .direct = direct});
        const std::string wrong = exercise(tier, 300123, 1, 40);
        if (wrong != "") throw std::runtime_error(wrong);
        // It is said once.
        return logged().size() == 1 && logged()[0].find("no io_uring") != std::string::npos;
      }));
}

TEST_CASE("nvme: io_uring that fails later on") {
  const Folder folder;
  CHECK(in_child([&] {
    Tier tier({.paths = {folder.path.string()}, .block = 8192, .depth = 4, .direct = false});
    Arena arena(tier, size);
    std::vector<char> bytes = some_bytes(), memory(size);
    if (!refuse_call(SYS_io_uring_enter, EPERM)) return true;
    const Answer write = arena.write(0, bytes.data(), size), read = arena.read(0, memory.data(), size);
    // Before the system permitted io_uring at all, nothing fails.
    if (!logged().empty()) return true;
    if (write.text.find(": cannot write 8192 bytes: Operation not permitted") == std::string::npos) return false;
    if (read.text.find(": cannot read 8192 bytes: Operation not permitted") == std::string::npos) return false;
    // From then on without it.
    if (arena.write(0, bytes.data(), size).status != ENG_OK) return false;
    return arena.read(0, memory.data(), size).status == ENG_OK && memory == bytes && exercise(tier, 50000, 1, 50) == "";
  }));
}

TEST_CASE("nvme: files with a name for a moment, of zeros that are written, of unknown alignment") {
  const Folder folder;
  for (const bool direct : direct_choices(folder.path))
    CHECK(in_child([&] {
      // As on file systems that have neither O_TMPFILE nor fallocate, under a system that does not tell alignments.
      const auto unnamed = static_cast<uint32_t>(O_TMPFILE & ~O_DIRECTORY);
      if (!refuse_call(SYS_openat, EOPNOTSUPP, 2, unnamed) || !refuse_call(SYS_fallocate, EOPNOTSUPP) ||
          !refuse_call(SYS_statx, ENOSYS))
        return true;
      Tier tier({.paths = {folder.path.string(), folder.path.string()}, .block = 8192, .depth = 4, .direct = direct});
      const Arena arena(tier, 3000000);
      const std::vector<int> files = open_files(folder.path);
      if (files.size() != 2 || !fs::is_empty(folder.path)) return false;
      for (const int fd : files) {
        struct stat about {};
        if (fstat(fd, &about) != 0 || about.st_nlink != 0 || about.st_size < 1490000) return false;
        if (about.st_blocks * 512 < about.st_size) return false;  // reserved
      }
      const std::string wrong = exercise(tier, 300123, 1, 40);
      if (wrong != "") throw std::runtime_error(wrong);
      return true;
    }));
}

TEST_CASE("nvme: a disk that refuses") {
  const Folder folder;
  for (const bool whole : {true, false})
    CHECK(in_child([&] {
      Tier tier({.paths = {folder.path.string()}, .block = 8192, .depth = 4, .direct = false});
      Arena arena(tier, size);
      std::vector<char> bytes = some_bytes(), memory(size);
      if (arena.write(0, bytes.data(), size).status != ENG_OK) return false;
      // The file is opened again, for reading alone: each write is refused.
      const int fd = open_files(folder.path).at(0), flags = O_RDONLY | O_CLOEXEC;
      const int weak = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), flags), strong = dup(fd);
      if (weak < 0 || dup2(weak, fd) != fd) return false;
      const Answer answer = whole ? arena.write(0, bytes.data(), 98304) : arena.write(1, bytes.data(), 5);
      if (answer.status != ENG_UNAVAILABLE || answer.text.find(folder.path.string()) == std::string::npos) return false;
      if (answer.text.find("byte 0: cannot write") == std::string::npos) throw std::runtime_error(answer.text);
      if (arena.read(40960, memory.data(), 4096).status != ENG_OK) return false;
      if (dup2(strong, fd) != fd || arena.write(0, bytes.data(), size).status != ENG_OK) return false;
      return arena.read(0, memory.data(), size).status == ENG_OK && memory == bytes;
    }));
}

TEST_CASE("nvme: a directory that is removed while its files are in use") {
  Folder folder;
  for (const bool direct : direct_choices(folder.path)) {
    const std::string path = (folder.path / "gone").string();
    fs::create_directory(path);
    Tier tier({.paths = {path}, .block = 8192, .depth = 4, .direct = direct});
    const Arena arena(tier, size);
    const std::vector<char> bytes = some_bytes();
    std::vector<char> memory(size);
    REQUIRE(arena.write(0, bytes.data(), size).text == "accepted");
    REQUIRE(fs::remove_all(path) == 1);  // it was empty
    // A file without a name cannot be removed.
    CHECK(arena.read(0, memory.data(), size).text == "accepted");
    CHECK(memory == bytes);
    CHECK(arena.write(5000, bytes.data(), 20000).text == "accepted");
    CHECK(arena.read(5000, memory.data(), 20000).text == "accepted");
    CHECK(std::equal(bytes.begin(), bytes.begin() + 20000, memory.begin()));
    // A later call is told.
    const Answer answer = refusal_of_alloc(tier, size);
    CHECK(answer.status == ENG_INVALID);
    CHECK_THAT(answer.text, Contains("offload.nvme_paths: " + path) && Contains("create the directory"));
    CHECK_THAT(refusal_of_create({.paths = {path}, .direct = direct}).text, Contains(path));
  }
}

TEST_CASE("nvme: a user who may lock 8 MiB of memory, or none") {
  const Folder folder;
  fs::permissions(folder.path, fs::perms(0777));
  for (const bool direct : direct_choices(folder.path))
    for (const rlim_t bytes : {rlim_t{8} << 20, rlim_t{0}})
      CHECK(in_child([&] {
        table();
        const rlimit limit{bytes, bytes};
        if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return false;
        if (geteuid() == 0 && (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0)) return true;
        // Blocks and requests of 16 MiB for each direction: more than may be locked.
        Tier tier({.paths = {folder.path.string()}, .block = 1 << 20, .depth = 16, .direct = direct});
        const std::string wrong = exercise(tier, 3 << 20, 1, 40);
        if (wrong != "") throw std::runtime_error(wrong);
        return open_files(folder.path).empty();
      }));
}
