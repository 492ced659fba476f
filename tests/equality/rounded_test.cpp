// SPDX-License-Identifier: Apache-2.0
// bf16_sr: what is kept in bf16 and rounded stochastically has one result, however it is divided and whenever it is
// moved.
#include <catch2/catch.hpp>

#include <algorithm>

#include "draw.hpp"
#include "engine/ops.h"
#include "tests/sanitized.hpp"

namespace rounded_test {

using namespace equality;

namespace {

Group group(const std::string& more, const char* model, uint32_t world) {
  Group g;
  g.precision = "bf16_sr" + more, g.model = model, g.world = world, g.accumulate = 2;
  return g;
}

const std::string sgd = "plugin = 'sgd'\nlearning_rate = 1e-2\nmomentum = 0.9\nnesterov = true\nweight_decay = 0.1\n";

std::vector<Draw> draws() {
  Draw a, b, c, d, e;
  a.strategy = "zero1", a.bucket = 1;
  b.strategy = "zero2", b.overlap = false, b.recompute = "policy = 'full'";
  c.strategy = "zero3", c.bucket = 1, c.prefetch = 0, c.live_limit = 1;
  d.strategy = "zero3", d.prefetch = 2, d.recompute = "every = 2";
  e.strategy = "two_level", e.bucket = 3 * 4096 * 4;
#ifdef SANITIZED
  return {b, c};
#endif
  return {a, b, c, d, e};
}

bool alike(const Group& g) {
  const Result first = train(g, plan(g, {}), {1, false});
  REQUIRE(first.complaint == "");
  uint64_t seed = 3;
  for (const Draw& d : draws()) {
    INFO(describe(g) << "; " << describe(d));
    CHECK(difference(first, train(g, plan(g, d), {++seed, seed % 2 == 0})) == "");
  }
  return true;
}

int64_t attr(const eng::Call& call, const char* key) {
  return call.attrs.i(key, -1);
}

}  // namespace

TEST_CASE("bf16_sr: one result for every strategy, bucket, prefetch, overlap and recompute", "[.slow]") {
  CHECK(alike(group("", "llama-tied", 2)));
  CHECK(alike(group("\ngradients = 'bf16'", "mamba", 3)));
  Group g = group("", "opt", 4);
  g.optimizer = sgd, g.reduce_per_step = true;
  CHECK(alike(g));
  g = group("\ngradients = 'bf16'", "llama", 2);
  g.freeze = "'model.layers.0.*'";
  CHECK(alike(g));
}

TEST_CASE("bf16_sr: a shard that counts its elements from 0, and an update that forgets its number, are seen") {
  const Group g = group("", "llama", 2);
  Draw d;
  d.strategy = "zero2";
  const Result right = train(g, plan(g, {}), {1, false});
  for (const char* key : {"first", "stream"}) {
    Planned wrong = plan(g, d);
    CHECK(difference(right, train(g, wrong, {2, false})) == "");
    int changed = 0;
    for (eng::Plan& p : wrong.plans)
      for (eng::Call& call : p.calls)
        if (call.op->id == std::string(ENG_OP_ADAMW))
          for (auto& a : call.attrs.list)
            if (a.key == key && a.i > 0) a.i = 0, ++changed;
    REQUIRE(changed > 0);
    CHECK(difference(right, train(g, wrong, {2, false})) != "");
  }
}

TEST_CASE("bf16_sr: what is kept has 16 bits, without masters") {
  for (const bool narrow : {false, true})
    for (const uint32_t world : {1u, 2u})
      for (const char* strategy : {"none", "zero2", "zero3"}) {
        const Group g = group(narrow ? "\ngradients = 'bf16'" : "", "mamba", world);
        Draw d;
        d.strategy = strategy;
        INFO(describe(g) << "; " << describe(d));
        const eng::Plan p = plan(g, d).plans[0];
        std::map<eng::Line, uint64_t> bytes;
        for (const eng::Buffer& b : p.buffers) {
          CHECK(!b.name.starts_with("master"));
          if (b.name.starts_with("weight ") || b.name.starts_with("exp_avg") || b.name.starts_with("gradient "))
            bytes[b.line] += b.bytes;
        }
        // Elements of the units by type; those that stay f32 have 4 bytes for each of the four.
        uint64_t rounded = 0, wide = 0;
        for (const eng::Unit& u : p.units) (u.flags & ENG_PARAM_FP32 ? wide : rounded) += u.count;
        REQUIRE(wide > 0);
        const uint64_t parts = std::string(strategy) == "none" ? 1 : world, weights = strategy[4] == '3' ? parts : 1;
        CHECK(bytes[eng::Line::weights] == (2 * rounded + 4 * wide) / weights);
        CHECK(bytes[eng::Line::optimizer] == (4 * rounded + 8 * wide) / parts);
        // Every strategy sums gradients in parts.
        CHECK(bytes[eng::Line::gradients] == ((narrow ? 2 : 4) * rounded + 4 * wide) / world);
        // A parameter of its own for every rounded update; a wide unit is updated as a whole.
        CHECK(types(p, ENG_OP_ADAMW, eng::Phase::update) == Types{{ENG_BF16, ENG_BF16}, {ENG_F32, ENG_F32}});
        for (const eng::Call& call : p.calls)
          if (call.op->id == std::string(ENG_OP_ADAMW) && call.in[0].dtype == ENG_BF16) {
            CHECK(attr(call, "first") % 4096 == 0);
            CHECK(attr(call, "stream") >= 0);
            CHECK(attr(call, "seed") == 1);
          }
        CHECK(types(p, ENG_OP_CAST, eng::Phase::update).empty());
        CHECK(types(p, ENG_OP_CAST, eng::Phase::publish).empty());
      }
}

}  // namespace rounded_test
