// SPDX-License-Identifier: Apache-2.0
// The played step of a plan that is small enough to compute by hand.
#include "session/planning/estimate.hpp"

#include <catch2/catch.hpp>

#include "core/trace/op.hpp"

namespace estimate_test {

using namespace eng;

namespace {

const Op any{"test.any/1", 0, 1, nullptr};

// Three pieces of 1,000,000 bytes come from a disk, are computed with in 500,000,000 FLOPs each, and go back. The third
// one takes the memory of the first. Before that, one action of 250,000,000 FLOPs runs three times.
Plan three_pieces() {
  const auto bytes = [](int64_t n) { return make_desc(ENG_U8, {n}); };
  Plan plan;
  plan.arenas = {{"cpu", "device"}, {"disk", "storage"}};
  plan.first_tier = 1;
  plan.buffers.resize(2);
  plan.buffers[1].arena = 1;
  plan.labels.push_back({Phase::update, ""});
  const View memory{1, 0, bytes(1'000'000)}, disk{2, 0, bytes(1'000'000)};
  const auto call = [&](double flops, uint32_t storage) {
    plan.calls.push_back({&any, {memory.desc}, {memory.desc}, {}, 0, flops});
    plan.calls.back().storage = storage;
    return static_cast<uint32_t>(plan.calls.size() - 1);
  };
  const uint32_t copy = call(0, 1), update = call(5e8, 0), pass = call(2.5e8, 0);
  const auto action = [](uint32_t of, Queue queue, const View& in, const View& out, std::vector<uint32_t> waits) {
    Action a;
    a.call = of, a.queue = queue, a.in = {in}, a.out = {out}, a.waits = std::move(waits);
    return a;
  };
  const auto read = [&](std::vector<uint32_t> waits) { return action(copy, Queue::read, disk, memory, waits); };
  const auto compute = [&](uint32_t waits) { return action(update, Queue::compute, memory, memory, {waits}); };
  const auto write = [&](uint32_t waits) { return action(copy, Queue::write, memory, disk, {waits}); };
  plan.programs = {{"train", {{"first", 3, {action(pass, Queue::compute, memory, memory, {})}}, {"update", 1, {}}}}};
  plan.programs[0].segments[1].actions = {read({}), read({}),  compute(0), write(2), compute(1),
                                          write(4), read({3}), compute(6), write(7)};
  return plan;
}

StepTimes played(double read, double write) {
  Machine machine;
  machine.flops = 1e9, machine.storage_read = read, machine.storage_write = write;
  return step_times(three_pieces(), machine);
}

}  // namespace

TEST_CASE("a step is played as by hand: queues in order, waits, directions of a disk beside each other") {
  // Reads: 0 to 1, 1 to 2, and after the first write 2 to 3. Computed: 1 to 1.5, 2 to 2.5, 3 to 3.5. Writes: 1.5 to 2,
  // 2.5 to 3, 3.5 to 4. Before: 0.75.
  const StepTimes fast = played(1e6, 2e6);
  CHECK(fast.step == Approx(4.75));
  CHECK(fast.flops == Approx(2.25));
  CHECK(fast.storage == Approx(2.5));
  CHECK(fast.bound() == BoundBy::storage);
  // Writes of 2 seconds: 1.5 to 3.5, 3.5 to 5.5, 5.5 to 7.5. The third read waits for the first.
  CHECK(played(1e6, 5e5).step == Approx(8.25));
  // Reads of 4 seconds: to 4, 8, 12; then compute and write.
  CHECK(played(2.5e5, 2e6).step == Approx(13.75));
  // The second and third piece are read while others are computed with: only the first read and the last write show.
  CHECK(played(1e7, 1e7).storage == Approx(0.2));
  CHECK(played(1e15, 1e15).step == Approx(2.25));
}

}  // namespace estimate_test
