// SPDX-License-Identifier: Apache-2.0
// A plan with collectives on a queue of their own, run out of an arena.
#include <thread>

#include "core/execute/executor.hpp"
#include "core/memory/layout.hpp"
#include "core/plan/emitter.hpp"
#include "core/plan/waits.hpp"
#include "core/verify/verify.hpp"
#include "rank.hpp"
#include "session/train/trace_events.hpp"

namespace rank {
namespace {

constexpr int64_t m = 1000;  // elements of a shard
constexpr int rounds = 3, repeats = 2;

struct Sums {
  eng::Plan plan;
  eng::View shard, total, other;

  // Per round: gather the shards, add to all of it a number that only this rank has, hand each rank its part, fold,
  // and add that to the shard and to a total. On the compute queue: more sums, to have something beside.
  Sums(const eng::World& world, bool overlap) {
    const int64_t n = world.size;
    const auto f32 = [](int64_t count) { return eng::make_desc(ENG_F32, {count}); };
    const eng::Attrs group{{{"group", 1, 0}, {"members", n, 0}}};
    plan.arenas.push_back({subject.device, "device", 0, 0, 0});
    eng::Emitter emit(plan, {});
    shard = emit.persistent("shard", eng::Line::weights, f32(m), true);
    total = emit.persistent("total", eng::Line::weights, f32(m), true);
    other = emit.persistent("other", eng::Line::weights, f32(m), true);
    emit.label(eng::Phase::step, "sums");
    emit.begin_program("sums");
    for (int s = 0; s < 2; ++s) {
      emit.begin_segment("part", repeats);
      const auto move = [&](const char* op, const eng::View& in, const eng::View& out) {
        emit.action(eng::op(op), {in}, {out}, group);
        if (overlap) plan.programs[0].segments.back().actions.back().queue = eng::Queue::comm;
      };
      for (int k = 0; k < rounds; ++k) {
        const eng::View whole = emit.transient("whole", eng::Line::gradients, f32(n * m)),
                        own = emit.transient("own", eng::Line::gradients, f32(n * m)),
                        parts = emit.transient("parts", eng::Line::gradients, f32(n * m)),
                        sum = emit.transient("sum", eng::Line::gradients, f32(m));
        move(ENG_OP_ALL_GATHER, shard, whole);
        for (int e = 0; e < 4; ++e) emit.action(eng::op(ENG_OP_ADD), {other, other}, {other});
        emit.action(eng::op(ENG_OP_INIT_CONSTANT), {}, {own}, {{{"value", 0, 1.0 + world.rank}, {"first", 0, 0}}});
        emit.action(eng::op(ENG_OP_ADD), {whole, own}, {whole});
        move(ENG_OP_ALL_TO_ALL, whole, parts);
        emit.action(eng::op(ENG_OP_FOLD), {parts}, {sum}, {{{"rows", n, 0}}});
        emit.action(eng::op(ENG_OP_ADD), {total, sum}, {total});
        emit.action(eng::op(ENG_OP_ADD), {shard, sum}, {shard});
      }
    }
    eng::place_waits(plan);
    eng::place_buffers(plan);
    eng::verify(plan);
  }
};

struct Run {
  Sums sums;
  eng::Kernels kernels;
  eng::Device device;
  eng::Executor executor;
  Run(eng::Communicator& comm, bool overlap)
      : sums(comm.world(), overlap),
        kernels(registry(), subject.device, eng::Section("device", {})),
        device(registry(), subject.device, eng::Section("device", {})),
        executor(sums.plan, device, kernels, &comm) {}

  static float start(uint32_t rank, int64_t e) { return static_cast<float>((e * 5 + rank * 3) % 17); }
  void fill(uint32_t rank) {
    std::vector<float> values(m);
    for (int64_t e = 0; e < m; ++e) values[static_cast<size_t>(e)] = start(rank, e);
    executor.upload(sums.shard, values.data());
    std::fill(values.begin(), values.end(), 0.0f);
    executor.upload(sums.total, values.data());
    executor.upload(sums.other, values.data());
  }
};

}  // namespace

void executor(eng::Communicator& comm) {
  const eng::World& world = comm.world();
  for (const bool overlap : {false, true}) {
    Run run(comm, overlap);
    eng::Trace trace(1, 1, eng::executed_actions(run.sums.plan.programs[0]));
    for (int step = 0; step < 3; ++step) {
      run.fill(world.rank);
      run.executor.record(trace.of(step));
      EXPECT(run.executor.run("sums"));
      EXPECT(overlap || run.executor.waited(false) == 0);
      EXPECT(run.executor.waited(true) == 0);
      std::vector<float> shard(m), total(m);
      run.executor.download(shard.data(), run.sums.shard);
      run.executor.download(total.data(), run.sums.total);
      const float n = static_cast<float>(world.size);
      for (int64_t e = 0; e < m; ++e) {
        float s = Run::start(world.rank, e), t = 0;
        for (int k = 0; k < 2 * repeats * rounds; ++k) {
          const float sum = n * s + n * (n + 1) / 2;
          t += sum, s += sum;
          if (s > 1e6f) break;
        }
        if (s > 1e6f) continue;  // beyond what is exact
        EXPECT(shard[static_cast<size_t>(e)] == s);
        EXPECT(total[static_cast<size_t>(e)] == t);
      }
    }
    const auto events = trace.events();
    EXPECT(events.size() == eng::executed_actions(run.sums.plan.programs[0]));
    size_t collectives = 0, on_queue = 0;
    for (const auto& e : events) {
      EXPECT(e.step == 1);
      EXPECT(e.reached <= e.begin && e.begin <= e.end);
      collectives += run.sums.plan.calls[e.call].op->collective;
      on_queue += e.queue == eng::Queue::comm;
    }
    EXPECT(collectives == 2 * 2 * repeats * rounds);
    EXPECT(on_queue == (overlap ? collectives : 0));
    EXPECT(run.executor.locate("sums") == "");
  }
}

// Rank 1 comes too late: rank 0 fails by name, and its other queues do not hang.
void executor_late(eng::Communicator& comm) {
  Run run(comm, true);
  run.fill(comm.world().rank);
  run.executor.run("sums");
  if (comm.world().rank == 1) EXPECT(!told(comm).empty());
  std::string text;
  try {
    run.executor.run("sums");
  } catch (const eng::Error& e) {
    EXPECT(e.exit() == eng::Exit::communication);
    text = e.what();
  }
  EXPECT(text.find("communicator mpi, eng.all_gather/1 in sums: ") == 0);
  EXPECT(text.find("eng.all_gather number 25 of group 1 (all 2 ranks): waited 1") != std::string::npos);
  EXPECT(text.find("rank 1 is not waiting; it was last in eng.all_to_all number 24") != std::string::npos);
  if (comm.world().rank == 0) {
    EXPECT(run.executor.waited(false) > deadline - 1);
    comm.abort(text);
  }
}

}  // namespace rank
