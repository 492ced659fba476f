// SPDX-License-Identifier: Apache-2.0
// A save of many ranges takes little memory for each, with those of all ranks and with older checkpoints.
#include <malloc.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>

#include "sample.hpp"
#include "session/checkpoint/parts.hpp"
#include "session/checkpoint/saver.hpp"
#include "tests/sanitized.hpp"

namespace {
std::atomic<int64_t> live = 0, most = 0;
}  // namespace

// A sanitizer has its own.
#ifndef SANITIZED
void* operator new(size_t bytes) {
  void* const out = std::malloc(bytes);
  if (!out) throw std::bad_alloc();
  const int64_t now = live += static_cast<int64_t>(::malloc_usable_size(out));
  for (int64_t before = most; before < now && !most.compare_exchange_weak(before, now);) {
  }
  return out;
}
void operator delete(void* memory) noexcept {
  live -= static_cast<int64_t>(::malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  operator delete(memory);
}
#endif

using namespace eng;
using namespace eng::test;
namespace fs = std::filesystem;

namespace save_memory_test {
namespace {

// Bytes that `work` takes at most beyond what was there.
template <class Work>
int64_t taken(Work work) {
  const int64_t before = live;
  most = before;
  work();
  return most - before;
}

}  // namespace

TEST_CASE("saver: a save takes little for each range", "[saver]") {
  constexpr uint64_t tensors = 20, of_each = 1000, ranges = tensors * of_each;
  std::vector<TensorShare> specs;
  for (uint64_t k = 0; k < tensors; ++k) {
    TensorShare& t = specs.emplace_back(
        TensorShare{{"layers." + std::to_string(k) + ".weight", "parameter", ENG_U8, {int64_t(2 * of_each)}}});
    for (uint64_t r = 0; r < of_each; ++r) t.ranges.push_back({2 * r, 2});
  }
  const Read read = [](const TensorSpec&, uint64_t, uint64_t count, void* to) { std::memset(to, 7, count); };
  Scratch scratch;
  Saver saver(scratch.path(), 2, false);
  std::vector<char> staging(4096);
  RunPoint point;
  int64_t begun = 0, rest = 0;  // bytes
  for (const int64_t step : {1, 2, 3}) {
    point.step = step;
    begun = taken([&] { saver.begin(point, specs, read, staging); });
    rest = taken([&] { saver.finish(); });
  }
  CHECK(list_checkpoints(scratch.path()).size() == 2);
  WARN(begun / int64_t(ranges) << " bytes for a range of this rank before it writes, then " << rest / int64_t(ranges));
  CHECK(begun < int64_t(700 * ranges));
  CHECK(rest < int64_t(100 * ranges));  // the text of all parts; the manifest has 160 bytes for each
}

TEST_CASE("parts: the manifest is that of all ranges together", "[checkpoint]") {
  const Columns left{3, 0, 2}, right{3, 1, 2};
  const auto sum = [](const char* text) { return Checksum::of(text); };
  const TensorSpec w{"w", "parameter", ENG_F32, {2, 6}}, m{"w", "exp_avg", ENG_BF16, {12}},
      none{"none", "exp_avg", ENG_F32, {0}};
  Manifest whole, a, b;
  whole.point.step = 3;
  a.files = {{"model-00000.safetensors", 100, sum("x")}, {"optim-00000.safetensors", 90, sum("y")}};
  b.files = {{"model-00001.safetensors", 80, sum("z")}};
  a.tensors = {{w, {{{0, 6}, "model-00000.safetensors", "w[:,0:3]", sum("1"), left}}},
               {m, {{{0, 12}, "optim-00000.safetensors", "w.exp_avg", sum("2")}}},
               {none, {{{0, 0}, "optim-00000.safetensors", "none.exp_avg", sum("")}}}};
  b.tensors = {{w,
                {{{4, 2}, "model-00001.safetensors", "w[:,3:6][4:6]", sum("4"), right},
                 {{0, 4}, "model-00001.safetensors", "w[:,3:6][0:4]", sum("3"), right}}},
               {m, {}},
               {none, {}}};
  whole.files = {a.files[0], a.files[1], b.files[0]};
  whole.tensors = a.tensors;
  whole.tensors[0].ranges.insert(whole.tensors[0].ranges.end(), b.tensors[0].ranges.begin(), b.tensors[0].ranges.end());
  Scratch scratch;
  const fs::path file = scratch / "manifest.json";
  const uint64_t bytes = write_manifest(file, whole.point, a.tensors, {part_text(a), part_text(b)});
  check_manifest(whole, "here");  // sorts the ranges
  CHECK(read_file(file) == manifest_text(whole));
  CHECK(bytes == fs::file_size(file) + 270);
  const auto refused = [&](Exit exit, const std::string& one, const std::string& other) {
    return refusal(exit, [&] { write_manifest(file, whole.point, a.tensors, {one, other}); });
  };
  CHECK_THAT(refused(Exit::checkpoint, part_text(a), part_text(a)), Catch::Contains("listed twice"));
  CHECK_THAT(refused(Exit::bug, part_text(a), part_text(b).substr(0, 150)), Catch::Contains("part"));
  b.tensors[0].ranges.pop_back();
  CHECK_THAT(refused(Exit::checkpoint, part_text(a), part_text(b)), Catch::Contains("elements 0 to 3 are in no range"));
  b.tensors[0].shape = {2, 5};
  CHECK_THAT(refused(Exit::bug, part_text(a), part_text(b)), Catch::Contains("the same tensors"));
}

}  // namespace save_memory_test
