// SPDX-License-Identifier: Apache-2.0
// The played step of a plan that is small enough to compute by hand.
#include "session/planning/estimate.hpp"

#include <catch2/catch.hpp>

#include "core/trace/op.hpp"
#include "engine/ops_attention.h"
#include "engine/ops_fp8.h"
#include "session/planning/cost.hpp"
#include "tests/session/report/planned.hpp"

namespace estimate_test {

using namespace eng;

namespace {

const Op any{"test.any/1", 0, 1, nullptr}, fp8{ENG_OP_FP8_LINEAR, 2, 4, nullptr};

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

// Milliseconds of one action with these inputs and outputs on a described card.
struct OnCard {
  Target target;
  Machine machine;
  explicit OnCard(const char* card, uint64_t attention_workspace = uint64_t{512} << 20) {
    const Config config = planned::config_of("tiny", "none", {"precision.plugin=bf16"});
    target = make_target(config, planned::plugins(), find_card(card, ".", "x"), config.section("device"), nullptr, 1);
    target.attention_workspace = attention_workspace;
    machine = machine_of(config.section("comm"), target);
  }
  double ms(const Op& one, const std::vector<eng_desc>& in, const std::vector<eng_desc>& out, Attrs attrs = {},
            bool in_place = false) const {
    Plan plan;
    plan.arenas = {{"gpu", "device"}};
    plan.first_tier = 1;
    plan.buffers.resize(1 + in.size() + out.size());
    plan.calls.push_back({&one, in, out, attrs, 0, one.flops ? one.flops(in, out, attrs) : 0});
    Action action;
    Id buffer = 1;
    for (const eng_desc& desc : in) action.in.push_back({desc.dtype ? buffer++ : 0, 0, desc});
    for (const eng_desc& desc : out) action.out.push_back({in_place ? 1 : buffer++, 0, desc});
    return 1e3 * cost_of(plan, Topology(Ranks(World{}), 1), action, machine).seconds;
  }
  // 4 sequences of 2,048 tokens with 32 heads.
  double attention(int64_t size, bool backward) const {
    const eng_desc x = make_desc(ENG_BF16, {4, 2048, 32 * size}), lse = make_desc(ENG_F32, {4, 32, 2048});
    const Attrs attrs = {{{"heads", 32, 0}, {"kv_heads", 32, 0}, {"scale", 0, 0.125}}};
    return backward ? ms(op(ENG_OP_ATTENTION_GRAD), {x, x, x, x, x, lse}, {x, x, x}, attrs)
                    : ms(op(ENG_OP_ATTENTION), {x, x, x}, {x, lse}, attrs);
  }
};

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

// Measured: benchmarks/results/steps-h200.md, and the trace that it is from. 22 layers of heads of 64, 32 of heads of
// 128.
TEST_CASE("attention and the head take what they took on an H200") {
  const OnCard h200("h200"), roomy("h200", uint64_t{2} << 30);
  CHECK(h200.attention(64, false) == Approx(4.3 / 22).epsilon(0.05));
  CHECK(h200.attention(128, false) == Approx(9.5 / 32).epsilon(0.05));
  CHECK(h200.attention(64, true) == Approx(1.007).epsilon(0.12));  // by own kernels: the scores take 1.07 GB
  CHECK(h200.attention(128, true) == Approx(2.27).epsilon(0.12));
  CHECK(roomy.attention(64, true) == Approx(0.735).epsilon(0.05));
  const auto head = [&](int64_t width) {
    const eng_desc x = make_desc(ENG_BF16, {4, 2048, width}), w = make_desc(ENG_BF16, {32000, width});
    return h200.ms(op(ENG_OP_CROSS_ENTROPY_GRAD), {x, w, make_desc(ENG_I32, {4, 2048}), make_desc(ENG_F32, {8})},
                   {make_desc(ENG_F32, {1}), x, make_desc(ENG_F32, {32000, width})});
  };
  CHECK(head(2048) == Approx(4.8).epsilon(0.1));
  CHECK(head(4096) == Approx(10.2).epsilon(0.1));
  // The scores alone take 1 GiB: with its other scratch cuDNN needs more.
  const OnCard exact("h200", uint64_t{1} << 30);
  CHECK(exact.attention(64, true) == h200.attention(64, true));
  // Instructions that are not those of sm_90 reach more of the peak of an older card.
  const OnCard a100("a100-80g");
  CHECK(a100.attention(128, true) / h200.attention(128, true) == Approx(0.22 * 989 / (0.35 * 312)).epsilon(0.01));
}

TEST_CASE("Mamba's scan takes what its kernels issue on a card") {
  // u, delta, a_log, [B | C], d, dt_bias, gate; 4 x 1,024 tokens of 4,096 channels with 16 states.
  const auto ms = [](const OnCard& card, bool backward, int64_t states) {
    const eng_desc u = make_desc(ENG_BF16, {4, 1024, 4096}), bc = make_desc(ENG_BF16, {4, 1024, 2 * states});
    const eng_desc a = make_desc(ENG_F32, {4096, states}), d = make_desc(ENG_F32, {4096});
    const eng_desc kept = make_desc(ENG_F32, {4, 16, states, 4096});
    const Op scan{backward ? "eng.mamba.selective_scan_grad/1" : "eng.mamba.selective_scan/1", 7, 9, nullptr};
    return backward ? card.ms(scan, {u, u, u, a, bc, d, d, u, kept}, {u, u, a, bc, d, d, u})
                    : card.ms(scan, {u, u, a, bc, d, d, u}, {u, kept});
  };
  const OnCard h200("h200"), a100("a100-80g");
  const double count = 4 * 1024 * 4096, slots = 67e12 / 64;  // 4 for each 128 units that make 2 FLOPs
  CHECK(ms(h200, false, 16) == Approx(1e3 * count * 6.5 / slots / reached.scan).epsilon(0.01));
  CHECK(ms(h200, true, 16) == Approx(1e3 * count * 17 / slots / reached.scan).epsilon(0.01));
  CHECK(ms(h200, true, 64) == Approx(4 * ms(h200, true, 16)));
  CHECK(ms(a100, true, 16) > 1.5 * ms(h200, true, 16));
}

TEST_CASE("a reshape in place takes no time, and a product in fp8 that of rounding its factors, too") {
  const OnCard h100("h100-80g");
  const eng_desc rows = make_desc(ENG_BF16, {4096, 8192}), flat = make_desc(ENG_BF16, {4096 * 8192});
  const double once = 2 * 4096 * 8192 / (reached.memory * 3350e9) * 1e3;  // reads or writes it in 16 bits
  CHECK(h100.ms(op(ENG_OP_RESHAPE), {rows}, {flat}, {}, true) == 0);
  CHECK(h100.ms(op(ENG_OP_RESHAPE), {rows}, {flat}) == Approx(2 * once));
  const eng_desc w = make_desc(ENG_BF16, {8192, 8192}), y = make_desc(ENG_BF16, {4096, 8192});
  const double launch = 1e3 * reached.launch;  // of the kernel that finds the scales; no FLOPs are counted here
  const double current = h100.ms(fp8, {rows, w, eng_desc{}, eng_desc{}}, {y});
  CHECK(current == Approx(4 * once + launch + 2.5 * 3 * once));  // w is twice as large as x and y
  const double delayed = h100.ms(fp8, {rows, w, eng_desc{}, make_desc(ENG_F32, {3, 3})}, {y});
  CHECK(current - delayed == Approx(3 * once));
}

TEST_CASE("a card may say which part of its peaks it reaches") {
  const OnCard whole("h100-80g");
  Target limited = whole.target;
  limited.reach = 0.36;
  const Config config = planned::config_of("tiny", "none", {"precision.plugin=bf16"});
  const Machine slow = machine_of(config.section("comm"), limited);
  CHECK(slow.bf16 == Approx(0.36 * 989e12));
  CHECK(slow.fp8 == Approx(0.36 * 1979e12));
  CHECK(slow.exponentials == Approx(whole.machine.exponentials / 2));
  CHECK(slow.own_attention * slow.bf16 == Approx(whole.machine.own_attention * whole.machine.bf16));
}

}  // namespace estimate_test
