// SPDX-License-Identifier: Apache-2.0
// Several queues of a plan on threads of their own give what one queue gives.
#include <catch2/catch.hpp>

#include "core/base/error.hpp"
#include "core/execute/executor.hpp"
#include "core/memory/layout.hpp"
#include "core/plan/emitter.hpp"
#include "core/plan/waits.hpp"
#include "core/verify/verify.hpp"
#include "tests/plan/sketch.hpp"
#include "tests/plan/synthetic.hpp"

using namespace sketch;
using synthetic::below;
using synthetic::Random;

namespace {

constexpr int64_t size = 256;  // f32 elements of every buffer
const eng::Queue queues[] = {eng::Queue::compute, eng::Queue::host, eng::Queue::comm};

// Sums and fills of random parts of random buffers; `n_queues` = 1 keeps all of it on one queue.
eng::Plan sums(uint64_t seed, size_t n_queues, std::vector<eng::View>& kept) {
  Random random(seed);
  eng::Plan plan;
  plan.arenas.push_back({"reference", "device", 0, 0, 0});
  eng::Emitter emit(plan, {});
  const eng_desc whole = eng::make_desc(ENG_F32, {size});
  kept.clear();
  for (int k = 0; k < 4; ++k) kept.push_back(emit.persistent("kept", eng::Line::weights, whole, true));
  emit.label(eng::Phase::step, "sums");
  emit.begin_program("sums");
  for (uint32_t repeat : {1u, 2u, 1u}) {
    emit.begin_segment("part", repeat);
    std::vector<eng::View> pool = kept;
    for (int k = 0; k < 30; ++k) {
      const bool half = below(random, 2);
      const uint64_t first = half ? below(random, 2) * size / 2 : 0, n = half ? size / 2 : size;
      auto some = [&] { return eng::slice(pool[below(random, pool.size())], first, n); };
      if (below(random, 5) == 0) {
        eng::View fresh = emit.transient("fresh", eng::Line::activations, whole);
        emit.action(eng::op(ENG_OP_INIT_CONSTANT), {}, {fresh}, {{{"value", 0, 1.0 + k}, {"first", 0, 0}}});
        pool.push_back(fresh);
      } else {
        const eng::View a = some(), b = some(), c = below(random, 2) ? a : some();
        emit.action(eng::op(ENG_OP_ADD), {a, b}, {c});
      }
      auto& actions = plan.programs.back().segments.back().actions;
      actions.back().queue = queues[below(random, 3) % n_queues];
    }
  }
  eng::place_waits(plan);
  eng::place_buffers(plan);
  eng::verify(plan);
  return plan;
}

struct Run {
  explicit Run(const eng::Plan& plan)
      : kernels(registry(), "reference", section("device")),
        device(registry(), "reference", section("device")),
        executor(plan, device, kernels) {}
  std::vector<float> operator()(const std::vector<eng::View>& kept) {
    std::vector<float> all;
    for (size_t k = 0; k < kept.size(); ++k) {
      std::vector<float> start(size);
      for (size_t e = 0; e < start.size(); ++e) start[e] = 1e-3f * static_cast<float>(e + 100 * k);
      executor.upload(kept[k], start.data());
    }
    executor.run("sums");
    for (const eng::View& view : kept) {
      all.resize(all.size() + size);
      executor.download(all.data() + all.size() - size, view);
    }
    return all;
  }
  eng::Kernels kernels;
  eng::Device device;
  eng::Executor executor;
};

}  // namespace

namespace {

void compare_queues(uint64_t seeds, int runs) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    std::vector<eng::View> kept;
    const eng::Plan single = sums(seed, 1, kept);
    const std::vector<float> expected = Run(single)(kept);
    for (size_t n : {2u, 3u}) {
      const eng::Plan plan = sums(seed, n, kept);
      REQUIRE(plan.programs[0].segments[0].actions.size() == single.programs[0].segments[0].actions.size());
      Run run(plan);
      int wrong = 0;
      for (int k = 0; k < runs; ++k) wrong += run(kept) != expected;
      INFO("seed " << seed << ", " << n << " queues");
      CHECK(wrong == 0);
    }
  }
}

}  // namespace

TEST_CASE("a thousand runs of queues on threads give what one queue gives", "[.slow]") {
  compare_queues(10, 50);
}

TEST_CASE("queues on threads give what one queue gives") {
  compare_queues(5, 4);
  // The comparison does see a difference.
  std::vector<eng::View> kept;
  const eng::Plan one = sums(1, 1, kept), other = sums(2, 1, kept);
  CHECK(Run(one)(kept) != Run(other)(kept));
}

TEST_CASE("a failing action stops every queue and is named") {
  std::vector<eng::View> kept;
  eng::Plan plan;
  plan.arenas.push_back({"reference", "device", 0, 0, 0});
  eng::Emitter emit(plan, {});
  const eng::View rows = emit.persistent("rows", eng::Line::batch, eng::make_desc(ENG_F32, {2, 4}), true);
  const eng::View counters = emit.persistent("counters", eng::Line::step, eng::make_desc(ENG_I64, {ENG_C_COUNT}), true);
  const eng::View total = emit.persistent("total", eng::Line::step, eng::make_desc(ENG_F32, {4}), true);
  emit.label(eng::Phase::step, "rows");
  emit.begin_program("p");
  emit.begin_segment("s", 1);
  const eng::View row = emit.transient("row", eng::Line::batch, eng::make_desc(ENG_F32, {4}));
  emit.action(eng::op(ENG_OP_GET_ROW), {rows, counters}, {row});
  plan.programs[0].segments[0].actions.back().queue = eng::Queue::host;
  emit.action(eng::op(ENG_OP_ADD), {total, row}, {total});
  eng::place_waits(plan);
  eng::place_buffers(plan);
  eng::verify(plan);
  Run run(plan);
  int64_t micro[ENG_C_COUNT] = {};
  const float data[8] = {1, 2, 3, 4, 5, 6, 7, 8}, zero[4] = {};
  run.executor.upload(rows, data);
  run.executor.upload(total, zero);
  for (int64_t k : {0, 1}) {
    micro[ENG_C_MICRO] = k;
    run.executor.upload(counters, micro);
    CHECK(run.executor.run("p"));
  }
  float sum[4];
  run.executor.download(sum, total);
  CHECK(sum[3] == 12.0f);
  micro[ENG_C_MICRO] = 2;
  run.executor.upload(counters, micro);
  CHECK_THROWS_WITH(run.executor.run("p"),
                    Catch::Contains("eng.get_row/1 in rows") && Catch::Contains("micro-batch 2 of 2"));
  run.executor.download(sum, total);
  CHECK(sum[3] == 12.0f);  // the sum that waited did not run
  CHECK_THROWS_WITH(run.executor.run("q"), Catch::Contains("no program `q`"));
}

TEST_CASE("the first value that is not finite is located") {
  std::vector<eng::View> kept;
  const eng::Plan plan = sums(4, 3, kept);
  Run run(plan);
  run(kept);
  CHECK(run.executor.locate("sums") == "");
  std::vector<float> bad(size, 1.0f);
  bad[7] = INFINITY;
  for (const eng::View& view : kept) run.executor.upload(view, bad.data());
  CHECK_THAT(run.executor.locate("sums"), Catch::Contains("eng.add/1 in sums, output 0 f32"));
}

TEST_CASE("what a later repetition overflows is located") {
  eng::Plan plan;
  plan.arenas.push_back({"reference", "device", 0, 0, 0});
  eng::Emitter emit(plan, {});
  const eng::View x = emit.persistent("x", eng::Line::weights, eng::make_desc(ENG_F32, {4}), true);
  emit.label(eng::Phase::step, "double");
  emit.begin_program("p");
  emit.begin_segment("rest", 3);
  emit.action(eng::op(ENG_OP_ADD), {x, x}, {x});
  eng::place_waits(plan);
  eng::place_buffers(plan);
  eng::verify(plan);
  Run run(plan);
  for (float start : {1.0f, 1e38f}) {
    const float data[4] = {start, start, start, start};
    run.executor.upload(x, data);
    CHECK(run.executor.locate("p") == (start > 1 ? "eng.add/1 in double, output 0 f32 (4)" : ""));
  }
}

TEST_CASE("a step can be stopped before its last segment only") {
  std::vector<eng::View> kept;
  const eng::Plan plan = sums(4, 2, kept);  // segments: once, twice, once
  Run run(plan);
  static int asked = 0;
  asked = 0;
  CHECK(run.executor.run("sums", [] { return ++asked, false; }));
  CHECK(asked == 2);  // after the first segment, between the two repetitions
  CHECK_FALSE(run.executor.run("sums", [] { return true; }));
}
