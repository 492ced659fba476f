// SPDX-License-Identifier: Apache-2.0
// Asynchronous checkpoints.
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>

#include "sample.hpp"
#include "session/checkpoint/checkpoint.hpp"
#include "session/file.hpp"
#include "team.hpp"

using namespace eng;
using namespace eng::test;
namespace fs = std::filesystem;

namespace saver_test {
namespace {

FileCalls real;
std::atomic<bool> held = false;  // writes wait
std::atomic<int> broken = -1;    // writes of a model file fail after this many

// A disk that is slow until it is let go.
struct SlowDisk {
  SlowDisk() {
    real = file_calls();
    held = true;
    file_calls().write = [](int fd, const void* data, size_t n) -> ssize_t {
      while (held) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (broken >= 0 && broken-- == 0) {
        errno = ENOSPC;
        return -1;
      }
      return real.write(fd, data, n);
    };
  }
  ~SlowDisk() {
    held = false;
    broken = -1;
    file_calls() = real;
  }
};

std::vector<TensorShare> shares(const Sample& sample, const Peers& p) {
  auto out = sample.specs;
  for (TensorShare& t : out) t.copies = p.size, t.copy = p.rank;
  return out;
}

template <class Condition>
bool soon(Condition condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

}  // namespace

TEST_CASE("saver: training continues while it writes, and later changes are not saved", "[saver]") {
  for (const uint32_t size : {1u, 3u}) {
    Scratch scratch;
    const Sample a(0), b(9);
    std::atomic<uint32_t> waited = 0;
    SlowDisk disk;
    const auto texts = ranks(size, Exit::bug, [&](const Peers& p) {
      bool later = false;  // the weights have changed
      const auto mine = shares(a, p);
      Saver saver(scratch.path(), 0, true, p);
      saver.begin(a.point(4), mine, [&](const TensorSpec& t, uint64_t first, uint64_t count, void* host) {
        (later ? b : a).read()(t, first, count, host);
      });
      later = true;
      for (int step = 0; step < 3; ++step)
        if (saver.poll()) throw Error(Exit::bug, "done before anything is written");
      if (fs::exists(scratch / "step-00000004")) throw Error(Exit::bug, "named too early");
      if (++waited == size) held = false;
      std::optional<Saved> saved;
      if (!soon([&] { return (saved = saver.poll()).has_value(); })) throw Error(Exit::bug, "never done");
      if (saved->path != scratch / "step-00000004") throw Error(Exit::bug, "path");
      if (saver.poll() || saver.finish()) throw Error(Exit::bug, "twice");
    });
    CHECK(texts == same_text(size, "accepted"));
    Filled filled;
    CHECK(load_checkpoint(scratch / "step-00000004", a.specs, filled.fill()) == a.point(4));
    check_equal(a, filled);
  }
}

TEST_CASE("saver: an error is reported at a later step on all ranks, and the next save works", "[saver]") {
  Scratch scratch;
  const Sample a(0);
  save_checkpoint(scratch.path(), a.point(1), a.specs, a.read());
  SlowDisk disk;
  broken = 2;
  std::atomic<uint32_t> begun = 0;
  std::vector<std::string> again(2);
  const auto texts = ranks(2, Exit::disk, [&](const Peers& p) {
    const auto mine = shares(a, p);
    Saver saver(scratch.path(), 0, true, p);
    saver.begin(a.point(2), mine, a.read());
    if (saver.poll()) throw Error(Exit::bug, "done before anything is written");
    if (++begun == 2) held = false;
    try {
      soon([&] { return saver.poll().has_value(); });
    } catch (const Error&) {
      saver.begin(a.point(3), mine, a.read());
      if (!saver.finish()) throw Error(Exit::bug, "not saved");
      throw;
    }
  });
  CHECK_THAT(texts[0], Catch::Contains("rank ") && Catch::Contains("No space left"));
  CHECK(texts[1] == texts[0]);
  CHECK_FALSE(fs::exists(scratch / "step-00000002"));
  CHECK(find_latest(scratch.path()).path == scratch / "step-00000003");
}

TEST_CASE("saver: an abandoned save leaves nothing", "[saver]") {
  Scratch scratch;
  const Sample a(0);
  SlowDisk disk;
  ranks(2, Exit::bug, [&](const Peers& p) {
    const auto mine = shares(a, p);
    Saver saver(scratch.path(), 0, true, p);
    saver.begin(a.point(2), mine, a.read());
    if (p.rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      held = false;
    }
  });
  CHECK(fs::is_empty(scratch.path()));
}

TEST_CASE("saver: the newest are kept, and the snapshot has the announced size", "[saver]") {
  Scratch scratch;
  const Sample a(0);
  Saver saver(scratch.path(), 2, true);
  uint64_t copied = 0;
  for (const int64_t step : {1, 2, 3, 4}) {
    copied = 0;
    saver.begin(a.point(step), a.specs, [&](const TensorSpec& t, uint64_t first, uint64_t count, void* host) {
      copied += count * dtype_size(t.dtype);
      a.read()(t, first, count, host);
    });
    saver.finish();
  }
  CHECK(copied == snapshot_bytes(a.specs));
  CHECK(list_checkpoints(scratch.path()).size() == 2);
  CHECK(find_latest(scratch.path()).path == scratch / "step-00000004");
}

TEST_CASE("saver: a rank that waits too long says that rank 0 was saving, and which key to raise", "[saver]") {
  Scratch scratch;
  const Sample sample(0);
  Team team(2, 0.5);
  static std::atomic<bool> told;  // by rank 1
  told = false;
  real = file_calls();
  file_calls().rename = [](const char* from, const char* to) {
    soon([] { return told.load(); });
    return real.rename(from, to);
  };
  std::string text, help;
  const auto work = [&](uint32_t rank) {
    try {
      const Peers p = team.peers(rank);
      const auto mine = shares(sample, p);
      Saver saver(scratch.path(), 0, false, p);
      saver.begin(sample.point(4), mine, sample.read());
      saver.finish();
    } catch (const Error& e) {
      if (rank == 1) text = e.what(), help = e.help();
    }
    if (rank == 1) told = true;
  };
  std::thread first(work, 0), second(work, 1);
  first.join(), second.join();
  file_calls() = real;
  CHECK(text == "rank 0 was still saving (naming the new, removing old checkpoints) step-00000004: not all ranks came");
  CHECK(help.find("raise comm.timeout (0.5 s)") == 0);
}

}  // namespace saver_test
