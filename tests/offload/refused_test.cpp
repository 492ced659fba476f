// SPDX-License-Identifier: Apache-2.0
// Requests that cannot be met are refused before the first step, with what to change; and nothing is left in a
// directory.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <fstream>

#include "disks.hpp"

using namespace disks;
using Catch::Contains;

TEST_CASE("nvme: keys with values that cannot be") {
  const Folder folder;
  const std::string path = folder.path.string();
  CHECK_THAT(refusal_of_create({.paths = {}}).text, Contains("offload.nvme_paths is empty"));
  for (const int64_t block : {int64_t{1000}, int64_t{5000}, int64_t{-4096}, int64_t{1} << 31})
    CHECK_THAT(refusal_of_create({.paths = {path}, .block = block}).text,
               Contains("offload.nvme_block is " + std::to_string(block) + ": it must be") && Contains("4096"));
  for (const int64_t depth : {-1, 5000})
    CHECK_THAT(refusal_of_create({.paths = {path}, .depth = depth}).text,
               Contains("offload.nvme_depth is " + std::to_string(depth) + ": it must be from 1"));
}

TEST_CASE("nvme: directories that cannot be used") {
  const Folder folder;
  const std::string good = folder.path.string(), missing = good + "/missing", file = good + "/file";
  std::ofstream(file) << "x";
  const auto refused = [&](const std::string& path) {
    const Answer answer = refusal_of_create({.paths = {good, path}, .direct = false});
    CHECK(answer.status == ENG_INVALID);
    CHECK_THAT(answer.text, Contains("offload.nvme_paths") && Contains(path));
    return answer.text;
  };
  CHECK_THAT(refused(missing), Contains("No such file") && Contains("create the directory"));
  CHECK_THAT(refused(file), Contains("is not a directory"));
  CHECK_THAT(refused("/proc"), Contains("no file can be written") && Contains("name another directory"));
  const std::string closed = good + "/closed";
  fs::create_directory(closed);
  fs::permissions(closed, fs::perms(0555));
  if (geteuid() != 0) {
    CHECK_THAT(refused(closed), Contains("Permission denied") && Contains("change its permissions"));
  } else {
    CHECK(in_child([&] {  // as somebody else
      table();
      fs::permissions(good, fs::perms(0755));
      if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) return true;
      const std::string text = refusal_of_create({.paths = {closed}, .direct = false}).text;
      return text.find(closed + ": Permission denied; change its permissions") != std::string::npos;
    }));
  }
  fs::remove(file), fs::remove(closed);
  CHECK(fs::is_empty(folder.path));
}

TEST_CASE("nvme: a file system without O_DIRECT") {
  const Folder folder;
  CHECK(in_child([&] {
    if (!refuse_call(SYS_fcntl, EINVAL, 1, F_SETFL & ~F_GETFL)) return true;  // of the two only F_SETFL has this bit
    const Answer answer = refusal_of_create({.paths = {folder.path.string()}});
    if (answer.status != ENG_UNSUPPORTED || answer.text.find(folder.path.string()) != 0) return false;
    if (answer.text.find("set offload.nvme_direct = false") == std::string::npos) return false;
    return refusal_of_create({.paths = {folder.path.string()}, .direct = false}).status == ENG_OK;
  }));
}

TEST_CASE("nvme: more than there is") {
  const Folder folder;
  Tier tier({.paths = {folder.path.string(), folder.path.string()}, .direct = false});
  const auto free = [&] {
    struct statvfs about {};
    REQUIRE(statvfs(folder.path.c_str(), &about) == 0);
    return static_cast<uint64_t>(about.f_bavail) * about.f_frsize;
  };
  const uint64_t before = free();
  for (const uint64_t bytes : {uint64_t{1} << 50, uint64_t{1} << 61, uint64_t{1} << 63}) {
    const Answer answer = refusal_of_alloc(tier, bytes);
    CHECK(answer.status == ENG_NO_MEMORY);
    CHECK_THAT(answer.text, Contains(std::to_string(bytes)));
    if (bytes < uint64_t{1} << 62)
      CHECK_THAT(answer.text, Contains(folder.path.string()) && Contains(" bytes are free"));
    CHECK(open_files(folder.path).empty());
  }
  CHECK(fs::is_empty(folder.path));
  CHECK(static_cast<double>(free()) == Approx(static_cast<double>(before)).epsilon(0.05));
  CHECK(refusal_of_alloc(tier, 100000).status == ENG_OK);
}

TEST_CASE("nvme: a small file system that fills up") {
  const Folder folder;
  const bool right = in_child([&] {
    const fs::path small = folder.path / "small";
    fs::create_directory(small);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", small.c_str(), "tmpfs", 0, "size=1m") != 0)
      return true;  // no right to do so: the other cases have to do
    const auto used = [&] {
      struct statvfs about {};
      if (statvfs(small.c_str(), &about) != 0) throw std::runtime_error("statvfs");
      return (about.f_blocks - about.f_bfree) * about.f_frsize;
    };
    Tier tier({.paths = {folder.path.string(), small.string()}, .block = 4096, .direct = false});
    {
      const Arena fits(tier, 1 << 20);
      if (used() < 512 << 10) return false;  // all of it is reserved
      const Answer answer = refusal_of_alloc(tier, (1 << 20) + 8192);
      if (answer.status != ENG_NO_MEMORY || answer.text.find(small.string()) == std::string::npos ||
          answer.text.find("no space for 528384 bytes of states, 524288 bytes are free") == std::string::npos)
        throw std::runtime_error(answer.text);
      if (open_files(folder.path).size() != 2 || used() != 512 << 10) return false;
    }
    // Each half would fit, both do not.
    Tier twice({.paths = {small.string(), small.string()}, .block = 4096, .direct = false});
    const Answer answer = refusal_of_alloc(twice, (1 << 20) + 4096);
    if (answer.text.find("no space for 1052672 bytes of states, 1048576 bytes are free") == std::string::npos)
      throw std::runtime_error(answer.text);
    return used() == 0 && refusal_of_alloc(twice, 1 << 20).status == ENG_OK;
  });
  CHECK(right);
}

TEST_CASE("nvme: a file system that says later that it is full") {
  const Folder folder;
  for (const int error : {ENOSPC, EFBIG, EDQUOT})
    CHECK(in_child([&] {
      if (!refuse_call(SYS_fallocate, error)) return true;
      Tier tier({.paths = {folder.path.string()}, .direct = false});
      const Answer answer = refusal_of_alloc(tier, 100000);
      if (answer.status != ENG_NO_MEMORY || answer.text.find(folder.path.string()) != 0) return false;
      const char* const says = error == ENOSPC  ? "no space for 102400 bytes of states, "
                               : error == EFBIG ? "102400 bytes are more than a file may have there"
                                                : "Disk quota exceeded";
      return answer.text.find(says) != std::string::npos && open_files(folder.path).empty();
    }));
}

TEST_CASE("nvme: the limit on a file's size") {
  const Folder folder;
  CHECK(in_child([&] {
    const rlimit limit{100000, 100000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    Tier tier({.paths = {folder.path.string()}, .direct = false});
    const Answer answer = refusal_of_alloc(tier, 100001);
    if (answer.status != ENG_NO_MEMORY || !open_files(folder.path).empty()) return false;
    return answer.text.find(folder.path.string() + ": a file of 102400 bytes is over the limit of 100000 bytes") == 0 &&
           answer.text.find("ulimit -f") != std::string::npos && refusal_of_alloc(tier, 90000).status == ENG_OK;
  }));
}

TEST_CASE("nvme: no directory shows a scratch file, nor does it outlive its process") {
  const Folder folder;
  int up[2];
  REQUIRE(pipe(up) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Tier tier({.paths = {folder.path.string()}, .direct = false});
    const Arena arena(tier, 1 << 20);
    const std::vector<char> bytes(1 << 20, 'b');
    const bool good =
        arena.write(0, bytes.data(), bytes.size()).status == ENG_OK && open_files(folder.path).size() == 1;
    if (write(up[1], good ? "y" : "n", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char answer = 0;
  REQUIRE(read(up[0], &answer, 1) == 1);
  CHECK(answer == 'y');
  CHECK(fs::is_empty(folder.path));
  kill(child, SIGKILL);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK(fs::is_empty(folder.path));
  close(up[0]), close(up[1]);
}
