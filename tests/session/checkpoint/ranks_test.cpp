// SPDX-License-Identifier: Apache-2.0
// Many ranks save and load: any ranges from any others, and what goes wrong on one goes wrong on all.
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <random>
#include <set>

#include <sys/wait.h>
#include <unistd.h>

#include "sample.hpp"
#include "session/checkpoint/checkpoint.hpp"
#include "session/file.hpp"
#include "team.hpp"
#include "tests/sanitized.hpp"

using namespace eng;
using namespace eng::test;
namespace fs = std::filesystem;

namespace ranks_test {
namespace {

// The division of the elements of a tensor over the ranks.
enum class Hold { replicated, pieces, uneven, pairs, columns };

// A larger sample: tensors that pieces and parts cut in many places.
Sample large(unsigned salt = 0) {
  Sample s(salt);
  s.add("model.layers.0.weight", "parameter", ENG_F32, {31, 17}, salt);
  s.add("model.layers.0.weight", "exp_avg", ENG_BF16, {31, 17}, salt);
  s.add("model.layers.1.weight", "parameter", ENG_U8, {1009}, salt);
  s.add("model.layers.1.weight", "exp_avg", ENG_F32, {5, 12}, salt);
  return s;
}

std::vector<TensorShare> shares(const Sample& sample, Hold hold, const Peers& p) {
  std::vector<TensorShare> out = sample.specs;
  for (TensorShare& t : out) {
    const uint64_t all = element_count(t.shape, "");
    t.ranges.clear();
    if (hold == Hold::replicated || p.size == 1) {
      t.ranges = {{0, all}}, t.copies = p.size, t.copy = p.rank;
    } else if (hold == Hold::uneven) {  // rank 0 has nothing, the last one nearly all
      const uint64_t each = std::min<uint64_t>(3, all / p.size), first = p.rank ? (p.rank - 1) * each : 0;
      if (p.rank) t.ranges = {{first, p.rank + 1 == p.size ? all - first : each}};
    } else if (const uint32_t cut = p.size % 2 ? p.size : 2;
               hold == Hold::columns && t.shape.size() == 2 && all && t.shape[1] % cut == 0) {
      // By columns, and those of one part in pieces of 3 elements of the part.
      t.columns = {uint64_t(t.shape[1]) / cut, p.rank % cut, cut}, t.divided = true;
      for (uint64_t at = 3 * (p.rank / cut); at < all / cut; at += 3 * (p.size / cut))
        t.ranges.push_back({at, std::min<uint64_t>(3, all / cut - at)});
    } else {
      // Pieces of 5 elements a rank, as a sharded home holds them; in pairs, two ranks hold the same.
      const uint32_t parts = hold == Hold::pairs && p.size % 2 == 0 ? p.size / 2 : p.size, index = p.rank % parts;
      for (uint64_t at = 5 * index; at < all; at += 5 * parts)
        t.ranges.push_back({at, std::min<uint64_t>(5, all - at)});
      t.copies = p.size / parts;  // which of them this rank is, the saver finds out
    }
    std::erase_if(t.ranges, [](const Range& r) { return r.count == 0; });
  }
  return out;
}

// A rank's part, as bytes; reading anything else is an error.
Read read_own(const Sample& sample, const std::vector<TensorShare>& mine) {
  return [&sample, &mine](const TensorSpec& t, uint64_t first, uint64_t count, void* host) {
    bool held = false;
    for (const TensorShare& s : mine)
      if (s.name == t.name && s.role == t.role)
        s.each_range([&](const Range& r) { held = held || (r.first <= first && first + count <= r.end()); });
    if (!held) throw std::runtime_error("this rank does not hold it");
    sample.read()(t, first, count, host);
  };
}

void save(const fs::path& to, const Sample& sample, int64_t step, Hold hold, const Peers& p) {
  const auto mine = shares(sample, hold, p);
  save_checkpoint(to, sample.point(step), mine, read_own(sample, mine), {}, p);
}

// Each rank's ranges, and nothing else, are filled once with the right bytes.
void check_load(const fs::path& from, const Sample& sample, int64_t step, Hold hold, const Peers& p) {
  const auto mine = shares(sample, hold, p);
  Filled filled;
  if (!(load_checkpoint(from, mine, filled.fill(), {}, "", p) == sample.point(step))) throw Error(Exit::bug, "point");
  for (const TensorShare& t : mine) {
    const uint64_t size = dtype_size(t.dtype);
    std::vector<int> times(element_count(t.shape, ""));
    t.each_range([&](const Range& r) {
      for (uint64_t i = r.first; i < r.first + r.count; ++i) ++times[i];
      if (filled.bytes[Sample::key(t)].compare(r.first * size, r.count * size, sample.bytes.at(Sample::key(t)),
                                               r.first * size, r.count * size) != 0)
        throw Error(Exit::bug, "bytes of " + Sample::key(t));
    });
    if (!t.ranges.empty() && filled.times[Sample::key(t)] != times) throw Error(Exit::bug, "filled " + Sample::key(t));
    if (t.ranges.empty() && filled.times.count(Sample::key(t))) throw Error(Exit::bug, "not asked for");
  }
}

const Hold holds[] = {Hold::replicated, Hold::pieces, Hold::uneven, Hold::pairs, Hold::columns};

// A disk that fails, or a process that dies, at one call of one rank.
struct Fault {
  uint32_t rank = 0;
  int at = -1;
  int error = ENOSPC;
  bool die = false;
};
Fault fault;
FileCalls real;
std::atomic<int> calls = 0;

// The rank that writes this file; rank 0 writes the common files.
uint32_t owner(int fd) {
  const std::string path = fs::read_symlink("/proc/self/fd/" + std::to_string(fd));
  const size_t at = path.find("-0000");
  return path.ends_with(".safetensors") && at != std::string::npos ? uint32_t(path[path.size() - 13] - '0') : 0;
}

bool faulty(uint32_t rank) {
  if (rank != fault.rank || calls++ != fault.at) return false;
  if (fault.die) _exit(77);
  errno = fault.error;
  return true;
}

struct Faults {
  explicit Faults(const Fault& f) {
    real = file_calls();
    fault = f;
    calls = 0;
    file_calls().write = [](int fd, const void* data, size_t n) {
      return faulty(owner(fd)) ? ssize_t{-1} : real.write(fd, data, n);
    };
    file_calls().sync = [](int fd) { return faulty(owner(fd)) ? -1 : real.sync(fd); };
    file_calls().rename = [](const char* from, const char* to) { return faulty(0) ? -1 : real.rename(from, to); };
  }
  ~Faults() { file_calls() = real; }
};

std::vector<std::string> entries(const fs::path& folder) {
  std::vector<std::string> out;
  for (const auto& e : fs::directory_iterator(folder)) out.push_back(e.path().filename());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

#ifdef SANITIZED  // everything takes ten times as long, and finds the same wrong memory
constexpr int damages = 4;
constexpr uint32_t sizes[] = {1, 3};
#else
constexpr int damages = 12;
constexpr uint32_t sizes[] = {1, 2, 3, 4};
#endif

TEST_CASE("ranks: what any number of ranks with any sharding saves, any other number loads", "[ranks]") {
  const Sample sample = large();
  for (const uint32_t saving : sizes)
    for (const Hold saved : holds) {
      Scratch scratch;
      const auto done = ranks(saving, Exit::bug, [&](const Peers& p) { save(scratch.path(), sample, 7, saved, p); });
      REQUIRE(done == same_text(saving, "accepted"));
      const fs::path at = scratch / "step-00000007";
      CHECK(entries(scratch.path()) == std::vector<std::string>{"step-00000007"});
      CHECK(inspect_checkpoint(at, true).problem == "");
      for (const uint32_t loading : sizes)
        for (const Hold wanted : holds) {
          INFO(saving << " ranks, way " << int(saved) << ", to " << loading << " ranks, way " << int(wanted));
          CHECK(ranks(loading, Exit::bug, [&](const Peers& p) { check_load(at, sample, 7, wanted, p); }) ==
                same_text(loading, "accepted"));
        }
    }
}

TEST_CASE("ranks: everything is written once, and evenly if all ranks hold it", "[ranks]") {
  const Sample sample = large();
  uint64_t all = 0;
  for (const auto& [key, bytes] : sample.bytes) all += bytes.size();
  for (const Hold hold : holds) {
    uint64_t sum = 0;
    for (uint32_t r = 0; r < 4; ++r) {
      auto held = shares(sample, hold, {r, 4});
      for (TensorShare& t : held)
        if (t.copies == 2) t.copy = r / 2;
      const uint64_t mine = snapshot_bytes(held);
      if (hold == Hold::replicated) CHECK(std::abs(double(mine) - double(all) / 4) <= 8);
      sum += mine;
    }
    CHECK(sum == all);
  }
  // By one: the files have their well-known names and hold whole tensors.
  Scratch scratch;
  save(scratch.path(), sample, 1, Hold::replicated, {});
  CHECK(entries(scratch / "step-00000001") ==
        std::vector<std::string>{"manifest.json", "model-00000.safetensors", "optim-00000.safetensors"});
  for (const auto& t : read_manifest(scratch / "step-00000001").tensors) CHECK(t.ranges.size() == 1);
}

TEST_CASE("ranks: Saved is the same for all, and counts all files", "[ranks]") {
  Scratch scratch;
  const Sample sample = large();
  std::vector<Saved> saved(3);
  ranks(3, Exit::bug, [&](const Peers& p) {
    const auto mine = shares(sample, Hold::pieces, p);
    saved[p.rank] = save_checkpoint(scratch.path(), sample.point(1), mine, read_own(sample, mine), {}, p);
  });
  uint64_t bytes = 0;
  for (const auto& e : fs::directory_iterator(scratch / "step-00000001")) bytes += e.file_size();
  for (const Saved& s : saved) CHECK((s.bytes == bytes && s.path == scratch / "step-00000001"));
}

TEST_CASE("ranks: ranges that miss an element, or hold one twice, make no checkpoint", "[ranks]") {
  const Sample sample = large();
  for (const bool twice : {false, true}) {
    Scratch scratch;
    const auto texts = ranks(3, Exit::checkpoint, [&](const Peers& p) {
      auto mine = shares(sample, Hold::pieces, p);
      if (p.rank == 1) twice ? ++mine[0].ranges[0].count : --mine[0].ranges[0].count;
      save_checkpoint(scratch.path(), sample.point(1), mine, sample.read(), {}, p);
    });
    CHECK_THAT(texts[0],
               Catch::StartsWith("rank 0: ") && Catch::Contains("model.embed_tokens.weight") &&
                   Catch::Contains(twice ? "element 10 is in two ranges" : "elements 9 to 9 are in no range"));
    CHECK(texts == same_text(3, texts[0]));
    CHECK(fs::is_empty(scratch.path()));
  }
  // And ranks that do not mean the same tensors.
  Scratch scratch;
  const auto texts = ranks(2, Exit::bug, [&](const Peers& p) {
    auto mine = shares(sample, Hold::pieces, p);
    if (p.rank == 1) mine.pop_back();
    save_checkpoint(scratch.path(), sample.point(1), mine, sample.read(), {}, p);
  });
  CHECK(texts == same_text(2, "rank 0: not all ranks hold the same tensors"));
}

TEST_CASE("ranks: a disk error at any call of any of them fails all with its text", "[ranks]") {
  const Sample a = large(0), b = large(9);
  for (const bool asynchronous : {false, true})
    for (const uint32_t failing : {0u, 1u, 2u})
      for (int at = 0, reached = 1; reached; ++at) {
        Scratch scratch;
        save(scratch.path(), a, 1, Hold::replicated, {});
        Fault f;
        f.rank = failing, f.at = at, f.error = at % 2 ? ENOSPC : EIO;
        std::vector<std::string> texts;
        {
          const Faults faults(f);
          texts = ranks(3, Exit::disk, [&](const Peers& p) {
            const auto mine = shares(b, Hold::replicated, p);
            Saver saver(scratch.path(), 0, asynchronous, p);
            saver.begin(b.point(2), mine, read_own(b, mine));
            saver.finish();
          });
        }
        INFO("rank " << failing << ", call " << at << ", asynchronous " << asynchronous << ": " << texts[0]);
        if (texts[0] == "accepted") {  // it makes fewer calls
          CHECK(texts == same_text(3, "accepted"));
          CHECK(at >= (failing == 0 ? 9 : 4));
          reached = 0;
          continue;
        }
        CHECK(texts == same_text(3, texts[0]));
        CHECK_THAT(texts[0], Catch::StartsWith("rank " + std::to_string(failing) + ": cannot ") &&
                                 Catch::Contains(std::strerror(f.error)) && Catch::Contains(scratch.path().string()));
        for (const std::string& name : entries(scratch.path())) CHECK(name[0] != '.');
        CHECK(ranks(2, Exit::bug, [&](const Peers& p) {
                check_load(scratch / "step-00000001", a, 1, Hold::pieces, p);
              }) == same_text(2, "accepted"));
        // Only the flush of the folder comes after the new name.
        if (fs::exists(scratch / "step-00000002"))
          CHECK(inspect_checkpoint(scratch / "step-00000002", true).problem == "");
      }
}

TEST_CASE("ranks: a callback that throws on one fails all", "[ranks]") {
  const Sample a = large();
  for (const bool asynchronous : {false, true}) {
    Scratch scratch;
    const auto texts = ranks(3, Exit::bug, [&](const Peers& p) {
      const auto mine = shares(a, Hold::pieces, p);
      Saver saver(scratch.path(), 0, asynchronous, p);
      saver.begin(a.point(1), mine, [&](const TensorSpec& t, uint64_t first, uint64_t count, void* host) {
        if (p.rank == 2 && first > 20) throw Error(Exit::bug, "device lost");
        a.read()(t, first, count, host);
      });
      saver.finish();
    });
    CHECK(texts == same_text(3, "rank 2: device lost"));
    CHECK(fs::is_empty(scratch.path()));
  }
}

TEST_CASE("ranks: a rank that dies at any call leaves a complete checkpoint", "[ranks]") {
  const Sample a = large(0), b = large(9);
  for (const uint32_t failing : {0u, 1u})
    for (int at = 0, reached = 1; reached; ++at) {
      Scratch scratch;
      save(scratch.path(), a, 1, Hold::replicated, {});
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        Fault f;
        f.rank = failing, f.at = at, f.die = true;
        const Faults faults(f);
        ranks(2, Exit::bug, [&](const Peers& p) { save(scratch.path(), b, 2, Hold::replicated, p); });
        _exit(0);
      }
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      reached = WEXITSTATUS(status) == 77;
      INFO("rank " << failing << " died at call " << at);
      Found found;
      const auto texts = ranks(2, Exit::bug, [&](const Peers& p) {
        const Found mine = find_latest(scratch.path(), p);
        if (!mine.path || !mine.refused.empty()) throw Error(Exit::bug, "no whole checkpoint");
        if (p.rank == 0) found = mine;
        const bool old = mine.path->filename() == "step-00000001";
        check_load(*mine.path, old ? a : b, old ? 1 : 2, Hold::uneven, p);
      });
      CHECK(texts == same_text(2, "accepted"));
      if (!reached) CHECK(found.path == scratch / "step-00000002");
      // The next save removes the remains.
      ranks(2, Exit::bug, [&](const Peers& p) { save(scratch.path(), b, 3, Hold::pieces, p); });
      for (const std::string& name : entries(scratch.path())) CHECK(name[0] != '.');
    }
}

TEST_CASE("ranks: a flipped or missing byte in any file is refused on all", "[ranks][.slow]") {
  const Sample sample = large();
  Scratch scratch;
  ranks(3, Exit::bug, [&](const Peers& p) { save(scratch.path(), sample, 1, Hold::pieces, p); });
  const fs::path at = scratch / "step-00000001";
  const auto load = [&](Hold hold) {
    return ranks(3, Exit::checkpoint, [&](const Peers& p) { check_load(at, sample, 1, hold, p); });
  };
  std::mt19937 random(3);
  for (const std::string& name : entries(at)) {
    const std::string good = read_file(at / name);
    for (int i = 0; i < damages; ++i) {
      std::string bad = good;
      const size_t where = random() % good.size();
      if (i % 4)
        bad[where] = char(bad[where] ^ 1 << random() % 8);
      else
        bad.resize(where);
      write_file(at / name, bad);
      for (const Hold hold : {Hold::replicated, Hold::pieces, Hold::uneven}) {
        const auto texts = load(hold);
        INFO(name << " at " << where << ": " << texts[0]);
        CHECK_THAT(texts[0], Catch::StartsWith("rank ") && Catch::Contains(name));
        CHECK(texts == same_text(3, texts[0]));
      }
    }
    write_file(at / name, good);
  }
  CHECK(load(Hold::pieces) == same_text(3, "accepted"));
}

TEST_CASE("ranks: what no rank needs is read too", "[ranks]") {
  const Sample sample = large();
  Scratch scratch;
  ranks(3, Exit::bug, [&](const Peers& p) { save(scratch.path(), sample, 1, Hold::pieces, p); });
  const fs::path at = scratch / "step-00000001";
  const auto load = [&](uint32_t size) {
    return ranks(size, Exit::checkpoint, [&](const Peers& p) {
      auto mine = shares(sample, Hold::pieces, p);
      for (TensorShare& t : mine) t.ranges.clear();
      load_checkpoint(
          at, mine, [](auto&&...) { throw Error(Exit::bug, "filled"); }, {}, "", p);
    });
  };
  for (const uint32_t size : {1u, 2u}) CHECK(load(size) == same_text(size, "accepted"));
  std::string bad = read_file(at / "model-00002.safetensors");
  bad.back() = char(bad.back() ^ 1);
  write_file(at / "model-00002.safetensors", bad);
  for (const uint32_t size : {1u, 2u})
    for (const std::string& text : load(size)) CHECK_THAT(text, Catch::Contains("model-00002.safetensors"));
}

TEST_CASE("ranks: all choose the same newest checkpoint", "[ranks]") {
  const Sample sample = large();
  Scratch scratch;
  for (const int64_t step : {1, 2, 3})
    ranks(3, Exit::bug, [&](const Peers& p) { save(scratch.path(), sample, step, Hold::pieces, p); });
  std::string bad = read_file(scratch / "step-00000003/optim-00001.safetensors");
  bad.back() = char(bad.back() ^ 1);
  write_file(scratch / "step-00000003/optim-00001.safetensors", bad);
  fs::create_directories(scratch / "step-00000004");
  std::vector<Found> found(4);
  ranks(4, Exit::bug, [&](const Peers& p) { found[p.rank] = find_latest(scratch.path(), p); });
  for (const Found& f : found) {
    CHECK(f.path == scratch / "step-00000002");
    REQUIRE(f.refused.size() == 2);
    CHECK_THAT(f.refused[0].problem, Catch::Contains("never completed"));
    CHECK_THAT(f.refused[1].problem, Catch::Contains("optim-00001.safetensors"));
    CHECK(f.refused[1].problem == found[0].refused[1].problem);
  }
  // Broken communication does not count as damage.
  const Peers cut{0, 2,
                  [](const std::string&) -> std::vector<std::string> { throw Error(Exit::communication, "gone"); }};
  CHECK(refusal(Exit::communication, [&] { inspect_checkpoint(scratch / "step-00000002", true, cut); }) == "gone");
}

TEST_CASE("ranks: a checkpoint of more files than may be open", "[ranks]") {
  Sample sample;
  for (const char* role : {"parameter", "exp_avg"}) sample.add("wide", role, ENG_F32, {4000}, 0);
  Scratch scratch;
  const uint32_t size = 80;  // 160 files
  REQUIRE(ranks(size, Exit::bug, [&](const Peers& p) { save(scratch.path(), sample, 1, Hold::pieces, p); }) ==
          same_text(size, "accepted"));
  size_t before = entries("/proc/self/fd").size();
  const OpenCheckpoint open(scratch / "step-00000001");
  CHECK(open.manifest.files.size() > 128);
  CHECK(entries("/proc/self/fd").size() <= before + 1);
  check_load(scratch / "step-00000001", sample, 1, Hold::replicated, {});
}

}  // namespace ranks_test
