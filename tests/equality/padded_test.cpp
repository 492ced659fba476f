// SPDX-License-Identifier: Apache-2.0
// Rows of zeros behind the weight of a head ([device] pad_vocabulary): the bits of training are those without them.
#include <algorithm>

#include "all_equal.hpp"
#include "engine/ops.h"

using namespace equality;

namespace {

// 48 ids. 100 rows of 64 need more chunks of memory than 48 do, 64 do not; of 500 rows the zeros outweigh the rest.
constexpr int64_t multiples[] = {64, 100, 500};

Draw padded(Draw draw, int64_t multiple) {
  draw.pad_vocabulary = multiple;
  return draw;
}

// The rows of w in the calls of an op.
std::set<int64_t> rows_of(const eng::Plan& plan, const std::string& op) {
  std::set<int64_t> out;
  for (const eng::Call& call : plan.calls)
    if (call.op->id == op) out.insert(call.in[1].dims[0]);
  return out;
}

// Elements of all units.
uint64_t elements(const eng::Plan& plan) {
  uint64_t n = 0;
  for (const eng::Unit& unit : plan.units) n += unit.count;
  return n;
}

}  // namespace

TEST_CASE("padded heads: the same bits for each model, strategy and number of ranks", "[.slow]") {
  for (const char* model : {"llama", "llama-tied", "opt", "mamba", "odd", "odd-tied"})
    for (const uint32_t world : {1U, 2U}) {
      Group g;
      g.model = model, g.world = world, g.accumulate = 2, g.z_loss = g.model.starts_with("odd") ? 0 : 0.01;
      std::vector<Draw> draws = {{}};
      for (const char* strategy : {"none", "zero1", "zero2", "zero3"}) {
        if (world == 1 && !draws.back().strategy.starts_with("none")) break;
        Draw d;
        d.strategy = strategy, d.bucket = 1, d.recompute = "policy = 'full'";
        for (const int64_t multiple : multiples) draws.push_back(padded(d, multiple));
      }
      all_equal(g, draws);
    }
}

TEST_CASE("padded heads: the same bits for each precision and optimizer", "[.slow]") {
  for (const char* model : {"llama", "opt"})
    for (const char* precision : {"half-bf16", "bf16", "fp16\ninitial_scale_power = 30", "bf16_sr"})
      for (const char* optimizer :
           {"plugin = 'adamw'\nlearning_rate = 1e-2\nweight_decay = 0.1\n",
            "plugin = 'adamw8bit'\nlearning_rate = 1e-2\n", "plugin = 'muon'\nlearning_rate = 1e-2\n",
            "plugin = 'rows'\nlearning_rate = 1e-2\n"}) {
        Group g;
        g.model = model, g.precision = precision, g.optimizer = optimizer;
        if (g.precision == "bf16_sr" && g.optimizer.find("'adamw'") == std::string::npos)
          continue;  // no other rounds so
        Draw zero3;
        zero3.strategy = "zero3";
        all_equal(g, {{}, padded({}, 100), padded(zero3, 100)});
      }
}

TEST_CASE("padded heads: the same bits wherever states live", "[.slow]") {
  for (const char* model : {"llama", "llama-tied"})
    for (const uint32_t world : {1U, 2U}) {
      Group g;
      g.model = model, g.world = world, g.accumulate = 2;
      std::vector<Draw> draws = {{}};
      for (const char* offload :
           {"optimizer = 'host'\nmaster = 'host'\nupdate = 'host'\nratio = 0.5\n",
            "optimizer = 'shelf'\nmaster = 'shelf'\n",
            "optimizer = 'host'\ngradients = 'host'\nparameters = 'host'\nactivations = 'host'\n"}) {
        Draw d;
        d.strategy = world > 1 ? "zero3" : "none", d.offload = offload, d.bucket = 1;
        draws.push_back(d);
        for (const int64_t multiple : multiples) draws.push_back(padded(d, multiple));
      }
      all_equal(g, draws);
    }
}

TEST_CASE("padded heads: the same bits over strategies, tiers and recomputation") {
  for (const char* model : {"llama", "llama-tied", "opt"}) {
    Group g;
    g.model = model;
    Draw far;
    far.strategy = "zero3", far.bucket = 1, far.recompute = "policy = 'full'";
    far.offload = "optimizer = 'host'\ngradients = 'host'\nparameters = 'host'\nactivations = 'host'\n";
    all_equal(g, {{}, padded({}, 100), padded(far, 500)});
    g.world = 1;
    all_equal(g, {{}, padded({}, 100), padded(far, 500)});
  }
}

TEST_CASE("padded heads: frozen ones, those beside LoRA, and those of preferences with a reference") {
  Draw zero2;
  zero2.strategy = "zero2";
  Group g;
  const auto same = [&] { all_equal(g, {{}, padded({}, 100), padded(zero2, 100)}); };
  g.freeze = "'lm_head.weight'";
  same();
  g.freeze = "";
  g.transforms = "[[transforms]]\nplugin = 'lora'\nrank = 2\ntargets = ['*.q_proj']\n";
  same();
  g.transforms = "[loss]\nplugin = 'preference'\nkind = 'dpo'\n[reference]\nfrom = 'start'\n";
  same();
  const eng::Plan some = plan(g, padded({}, 100)).plans[0];
  CHECK(rows_of(some, ENG_OP_LABEL_LOGPROB) == std::set<int64_t>{100});
  CHECK(rows_of(some, ENG_OP_LABEL_LOGPROB_GRAD) == std::set<int64_t>{100});
}

TEST_CASE("padded heads: rows in memory are padded, and nothing else is larger") {
  Group g;
  g.world = 1;
  for (const char* model : {"llama", "llama-tied", "opt"}) {
    g.model = model;
    const eng::Plan plain = plan(g, {}).plans[0], some = plan(g, padded({}, 100)).plans[0];
    INFO(model);
    CHECK(rows_of(plain, ENG_OP_CROSS_ENTROPY_GRAD) == std::set<int64_t>{48});
    CHECK(rows_of(some, ENG_OP_CROSS_ENTROPY_GRAD) == std::set<int64_t>{100});
    CHECK(rows_of(some, ENG_OP_CROSS_ENTROPY) == std::set<int64_t>{100});
    CHECK(rows_of(some, ENG_OP_EMBEDDING) == std::set<int64_t>{48});
    CHECK(some.parameters == plain.parameters);
    CHECK(some.flops_per_step == plain.flops_per_step);
    CHECK(elements(some) - elements(plain) == (g.model == "opt" ? 0 : eng::chunk));
    REQUIRE(some.tensors.size() == plain.tensors.size());
    for (size_t t = 0; t < plain.tensors.size(); ++t) CHECK(eng::same(some.tensors[t].desc, plain.tensors[t].desc));
  }
}
