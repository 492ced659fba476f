// SPDX-License-Identifier: Apache-2.0
// The disk fails, or the process dies, at every single call: the older checkpoint stays valid.
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sample.hpp"
#include "session/checkpoint/checkpoint.hpp"
#include "session/file.hpp"
#include "session/run/run_dir.hpp"

using namespace eng;
using namespace eng::test;
namespace fs = std::filesystem;

namespace {

// The fault at the n-th disk call of a save.
enum class Fault { none, error, short_write, die };
struct FaultPlan {
  int at = -1;
  Fault fault = Fault::none;
  int error = ENOSPC;
  int seen = 0;
};
FaultPlan plan;
FileCalls real;

bool faulty() {
  if (plan.seen++ != plan.at) return false;
  if (plan.fault == Fault::die) _exit(77);
  errno = plan.error;
  return true;
}

// Replaces the disk calls for the life of the object.
struct Faults {
  explicit Faults(const FaultPlan& p) {
    real = file_calls();
    plan = p;
    file_calls().write = [](int fd, const void* data, size_t bytes) -> ssize_t {
      if (!faulty()) return real.write(fd, data, bytes);
      if (plan.fault == Fault::error) return -1;
      // A short write, then the error: what a filling disk does.
      plan.at = plan.seen;
      plan.fault = Fault::error;
      return real.write(fd, data, (bytes + 1) / 2);
    };
    file_calls().sync = [](int fd) { return faulty() ? -1 : real.sync(fd); };
    file_calls().rename = [](const char* a, const char* b) { return faulty() ? -1 : real.rename(a, b); };
  }
  ~Faults() { file_calls() = real; }
};

bool hidden_left(const fs::path& checkpoints) {
  for (const auto& e : fs::directory_iterator(checkpoints)) {
    if (e.path().filename().string()[0] == '.') return true;
  }
  return false;
}

// The newest good checkpoint holds all of `a` at step 1, or all of `b` at step `step_b`.
void check_one_or_other(const fs::path& dir, const Sample& a, const Sample& b, int64_t step_b, bool old_only) {
  remove_leftovers(dir);
  const Found found = find_latest(dir);
  REQUIRE(found.path);
  CHECK(found.refused.empty());
  Filled filled;
  const RunPoint point = load_checkpoint(*found.path, a.specs, filled.fill());
  const bool is_old = filled.bytes == [&] {
    Filled other;
    other.bytes = a.bytes;
    for (auto it = other.bytes.begin(); it != other.bytes.end();)
      it = it->second.empty() ? other.bytes.erase(it) : ++it;
    return other.bytes;
  }();
  if (is_old) {
    CHECK(point == a.point(1));
  } else {
    CHECK_FALSE(old_only);
    CHECK(point == b.point(step_b));
    check_equal(b, filled);
  }
}

// A mount name space for this process: as root, or as the root of a user name space of its own.
bool own_mounts() {
  if (unshare(CLONE_NEWNS) == 0) return true;
  const std::string uid = "0 " + std::to_string(getuid()) + " 1", gid = "0 " + std::to_string(getgid()) + " 1";
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  write_file("/proc/self/setgroups", "deny");
  write_file("/proc/self/uid_map", uid);
  write_file("/proc/self/gid_map", gid);
  return getuid() == 0;
}

int calls_of_a_save(int64_t step) {
  Scratch scratch;
  const Sample a(0), b(9);
  save_checkpoint(scratch.path(), a.point(1), a.specs, a.read());
  const Faults faults((FaultPlan()));
  save_checkpoint(scratch.path(), b.point(step), b.specs, b.read());
  return plan.seen;
}

}  // namespace

TEST_CASE("disk: an error at any call leaves the older checkpoint, and nothing incomplete", "[disk]") {
  const Sample a(0), b(9);
  const int64_t step = 2;
  const int calls = calls_of_a_save(step);
  REQUIRE(calls > 10);
  for (int error : {ENOSPC, EIO, EDQUOT}) {
    for (auto fault : {Fault::error, Fault::short_write}) {
      for (int at = 0; at < calls; ++at) {
        Scratch scratch;
        save_checkpoint(scratch.path(), a.point(1), a.specs, a.read());
        FaultPlan p;
        p.at = at;
        p.error = error;
        p.fault = fault;
        std::string text;
        {
          const Faults faults(p);
          text = refusal(Exit::disk, [&] { save_checkpoint(scratch.path(), b.point(step), b.specs, b.read()); });
        }
        INFO("call " << at << " of " << calls << ", error " << error << ", step " << step << ": " << text);
        CHECK_THAT(text, Catch::Contains(scratch.path().string()) && Catch::Contains(std::strerror(error)));
        CHECK_FALSE(hidden_left(scratch.path()));
        // Only the flush of the directory itself comes after the new name.
        check_one_or_other(scratch.path(), a, b, step, at < calls - 1);
      }
    }
  }
}

TEST_CASE("disk: a process that dies at any call leaves a complete checkpoint", "[disk]") {
  const Sample a(0), b(9);
  const int64_t step = 2;
  const int calls = calls_of_a_save(step);
  for (int at = 0; at < calls; ++at) {
    Scratch scratch;
    save_checkpoint(scratch.path(), a.point(1), a.specs, a.read());
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      FaultPlan p;
      p.at = at;
      p.fault = Fault::die;
      const Faults faults(p);
      save_checkpoint(scratch.path(), b.point(step), b.specs, b.read());
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WEXITSTATUS(status) == 77);
    INFO("died at call " << at << " of " << calls << ", step " << step);
    check_one_or_other(scratch.path(), a, b, step, false);
    // The next process saves over the remains.
    save_checkpoint(scratch.path(), b.point(3), b.specs, b.read());
    CHECK_FALSE(hidden_left(scratch.path()));
    CHECK(find_latest(scratch.path()).path == scratch / "step-00000003");
  }
}

TEST_CASE("disk: the kernel's own limit on a file's size", "[disk]") {
  // Real short writes from the kernel, on any machine: a child may write files of 200 bytes at most.
  Scratch scratch;
  const Sample a(0), b(9);
  save_checkpoint(scratch.path(), a.point(1), a.specs, a.read());
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{200, 200};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    const std::string text =
        refusal(Exit::disk, [&] { save_checkpoint(scratch.path(), b.point(2), b.specs, b.read()); });
    _exit(text.find("File too large") != std::string::npos && text.find("model-00000") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
  CHECK_FALSE(hidden_left(scratch.path()));
  check_one_or_other(scratch.path(), a, b, 2, true);
}

TEST_CASE("disk: a device without space", "[disk]") {
  FileWriter file("/dev/full");
  const std::string text = refusal(Exit::disk, [&] { file.write("x", 1); });
  CHECK_THAT(text, Catch::Contains("/dev/full") && Catch::Contains("No space left") && Catch::Contains(" free"));
}

TEST_CASE("disk: a full file system", "[disk]") {
  Scratch scratch;
  const fs::path small = scratch / "small";
  fs::create_directory(small);
  const pid_t child = fork();  // mounts in a separate name space, which ends with it
  REQUIRE(child >= 0);
  if (child == 0) {
    if (!own_mounts()) _exit(3);
    mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (mount("tmpfs", small.c_str(), "tmpfs", 0, "size=64k") != 0) _exit(3);
    const Sample a(0);
    Sample b(9);
    b.add("big", "parameter", ENG_F32, {64, 1024}, 1);
    try {
      save_checkpoint(small, a.point(1), a.specs, a.read());
      const std::string text = refusal(Exit::disk, [&] { save_checkpoint(small, b.point(2), b.specs, b.read()); });
      const bool said = text.find("No space left") != std::string::npos && text.find("needs 26") != std::string::npos;
      const auto found = find_latest(small);
      _exit(!said ? 1 : hidden_left(small) || found.path != small / "step-00000001" || !found.refused.empty() ? 2 : 0);
    } catch (const std::exception&) {
      _exit(4);
    }
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WEXITSTATUS(status) == 3) {
    WARN("no right to mount a file system here; /dev/full, RLIMIT_FSIZE and the injected errors were tested instead");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("disk: a directory without write permission", "[disk]") {
  Scratch scratch;
  write_file(scratch / "file", "x");
  const Sample a;
  CHECK_THAT(refusal(Exit::disk, [&] { save_checkpoint(scratch / "file" / "c", a.point(1), a.specs, a.read()); }),
             Catch::Contains("cannot create directory"));
}

TEST_CASE("disk: a callback that throws leaves nothing", "[disk]") {
  Scratch scratch;
  const Sample a;
  const Read lost = [&](const TensorSpec& t, uint64_t first, uint64_t count, void* host) {
    if (t.name == a.specs[2].name) throw Error(Exit::bug, "device lost");
    a.read()(t, first, count, host);
  };
  CHECK(refusal(Exit::bug, [&] { save_checkpoint(scratch.path(), a.point(1), a.specs, lost); }) == "device lost");
  CHECK(fs::is_empty(scratch.path()));
}

TEST_CASE("disk: write_atomic replaces or leaves", "[disk]") {
  Scratch scratch;
  write_atomic(scratch / "f", "old");
  for (int at = 0; at < 3; ++at) {
    {
      FaultPlan p;
      p.at = at;
      p.fault = Fault::error;
      const Faults faults(p);
      CHECK(refusal(Exit::disk, [&] { write_atomic(scratch / "f", "new"); }) != "accepted");
    }
    CHECK(read_file(scratch / "f") == "old");
    CHECK_FALSE(fs::exists(scratch / "f.tmp"));
  }
  write_atomic(scratch / "f", "new");
  CHECK(read_file(scratch / "f") == "new");
}
