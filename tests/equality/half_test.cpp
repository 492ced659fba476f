// SPDX-License-Identifier: Apache-2.0
// A precision policy of a third party: 16-bit weights and sums over ranks. Every strategy gives the same bits with it.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "draw.hpp"
#include "engine/ops.h"
#include "tests/sanitized.hpp"

using namespace equality;

namespace {

// The types of the weights that the updates write beside the master; 0 for an update that writes none.
std::set<int32_t> weights(const eng::Plan& plan, const char* op) {
  std::set<int32_t> out;
  for (const eng::Call& call : plan.calls)
    if (call.op->id == std::string(op)) {
      const int32_t last = call.out.back().dtype;
      out.insert(last == ENG_F32 ? 0 : last);
    }
  return out;
}

Group half(const std::string& precision = "half-bf16") {
  Group g;
  g.precision = precision;
  return g;
}

}  // namespace

TEST_CASE("16-bit weights and sums over ranks: one result for every strategy", "[.slow]") {
  uint64_t seed = 7;
#ifdef SANITIZED
  constexpr int ways = 1;  // all of them take minutes with a sanitizer, which does not look for wrong bits
#else
  constexpr int ways = 3;
#endif
  for (const char* precision : {"half-bf16", "half-f16"})
    for (const char* model : {"llama", "llama-tied", "mamba"})
      for (int way = 0; way < ways; ++way) {
        Group g = half(precision);
        g.model = model;
        g.world = 2 + static_cast<uint32_t>(way % 2) * 2;
        g.accumulate = 1 + way;
        g.reduce_per_step = way == 2;
        const Result first = train(g, plan(g, {}), {1, false});
        REQUIRE(first.complaint == "");
        for (const char* strategy : {"zero1", "zero2", "zero3", "two_level"}) {
          Draw d;
          d.strategy = strategy, d.bucket = way == 1 ? 1 : d.bucket, d.prefetch = way, d.overlap = way != 2;
          INFO(describe(g) << "; " << describe(d));
          CHECK(difference(first, train(g, plan(g, d), {++seed, seed % 2 == 0})) == "");
        }
        Group wide = g;
        wide.precision = "fp32";
        CHECK(difference(first, train(wide, plan(wide, {}), {1, false})) != "");
      }
}

TEST_CASE("one rank rounds as several do, and recomputation changes nothing") {
  for (const char* model : {"llama", "opt"}) {
    Group g = half();
    g.model = model, g.world = 1, g.accumulate = 2;
    const Planned plain = plan(g, {});
    Draw d;
    d.recompute = "policy = 'full'";
    const Result first = train(g, plain, {1, false});
    CHECK(difference(first, train(g, plan(g, d), {2, true})) == "");
    Group wide = g;
    wide.precision = "fp32";
    CHECK(difference(first, train(wide, plan(wide, {}), {1, false})) != "");
    // Fresh gradients are rounded, then added in f32.
    const std::pair<int32_t, int32_t> narrow{ENG_F32, ENG_BF16}, widen{ENG_BF16, ENG_F32};
    CHECK(types(plain.plans[0], ENG_OP_CAST, eng::Phase::reduce) == Types{narrow, widen});
  }
}

TEST_CASE("what moves between ranks is narrow, and nothing is converted twice") {
  const std::pair<int32_t, int32_t> narrow{ENG_F32, ENG_BF16}, widen{ENG_BF16, ENG_F32}, same{ENG_BF16, ENG_BF16};
  for (const char* strategy : {"none", "zero1", "zero2", "zero3"}) {
    Draw d;
    d.strategy = strategy;
    const eng::Plan p = plan(half(), d).plans[0];
    INFO(strategy);
    CHECK(types(p, ENG_OP_ALL_TO_ALL, eng::Phase::reduce) == Types{same});
    CHECK(types(p, ENG_OP_FOLD, eng::Phase::reduce) == Types{widen});  // the sum is made in f32
    CHECK(types(p, ENG_OP_CAST, eng::Phase::reduce) == Types{narrow});
    CHECK(types(p, ENG_OP_ADD, eng::Phase::reduce).empty());  // one micro-batch: stored
    // Compute reads f32, so every use has a lease.
    CHECK(types(p, ENG_OP_CAST, eng::Phase::gather) == Types{widen});
    CHECK(types(p, ENG_OP_CAST, eng::Phase::gather, "eval") == Types{widen});
    const std::string s = strategy;
    CHECK(types(p, ENG_OP_ALL_GATHER, eng::Phase::publish) == (s == "zero1" || s == "zero2" ? Types{same} : Types{}));
    // The update writes this rank's part of the weight, in the same pass.
    CHECK(types(p, ENG_OP_CAST, eng::Phase::publish).empty());
    CHECK(types(p, ENG_OP_CAST, eng::Phase::update).empty());
    CHECK(weights(p, ENG_OP_ADAMW) == std::set<int32_t>{ENG_BF16});
    CHECK(types(p, ENG_OP_CAST, eng::Phase::publish, "publish") == Types{narrow});
  }
}

// The policy casts what an optimizer leaves to the engine, and all weights once, before the first step.
TEST_CASE("a weight that the update writes has the bits of one that is cast from the master", "[.slow]") {
  const std::tuple<const char*, const char*> optimizers[] = {
      {"plugin = 'adamw'\nlearning_rate = 1e-2\nweight_decay = 0.1\n", ENG_OP_ADAMW},
      {"plugin = 'sgd'\nlearning_rate = 1e-2\n", ENG_OP_SGD},
      {"plugin = 'sgd'\nlearning_rate = 1e-2\nmomentum = 0.9\n", ENG_OP_SGD},
      {"plugin = 'muon'\nlearning_rate = 1e-2\n", "eng.muon.apply/1"},
      {"plugin = 'adamw8bit'\nlearning_rate = 1e-2\n", "eng.adamw8bit.update/1"},
      {"plugin = 'rows'\nlearning_rate = 1e-2\n", nullptr}};  // leaves the weight to the engine
  for (const char* precision : {"half-bf16", "half-f16"})
    for (const auto& [optimizer, op] : optimizers) {
      Group g = half(precision);
      g.optimizer = optimizer;
      const int32_t dtype = g.precision == "half-bf16" ? ENG_BF16 : ENG_F16;
      const std::pair<int32_t, int32_t> narrow{ENG_F32, dtype};
      const Planned none = plan(g, {});
      const Result first = train(g, none, {1, false});
      REQUIRE(first.complaint == "");
      for (const char* strategy : {"none", "zero2", "zero3"}) {
        Draw d;
        d.strategy = strategy;
        INFO(describe(g) << "; " << describe(d));
        const Planned planned = plan(g, d);
        CHECK(types(planned.plans[0], ENG_OP_CAST, eng::Phase::publish) == (op ? Types{} : Types{narrow}));
        if (op) CHECK(weights(planned.plans[0], op).count(dtype) == 1);
        CHECK(difference(first, train(g, planned, {3, true})) == "");
      }
    }
}

TEST_CASE("a policy's own state: one result for every strategy, and the same on all ranks") {
  Group g = half("dither");
  g.accumulate = 2;
  for (const char* model : {"llama", "mamba"}) {
    g.model = model;
    const Planned none = plan(g, {});
    const Result first = train(g, none, {1, false});
    REQUIRE(first.complaint == "");
    const auto count = std::find_if(first.tensors.begin(), first.tensors.end(),
                                    [](const auto& t) { return t.first == "policy precision.dither.count"; });
    REQUIRE(count != first.tensors.end());
    CHECK(count->second == std::vector<float>{float(g.steps)});
    for (const char* strategy : {"zero1", "zero2", "zero3", "two_level"}) {
      Draw d;
      d.strategy = strategy, d.bucket = 1;
      INFO(describe(g) << "; " << describe(d));
      CHECK(difference(first, train(g, plan(g, d), {3, true})) == "");
    }
  }
}
