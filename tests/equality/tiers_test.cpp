// SPDX-License-Identifier: Apache-2.0
// States in memory of a tier: the same bits as on the device, and the memory that was asked for.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <algorithm>

#include "core/verify/verify.hpp"
#include "draw.hpp"
#include "engine/ops.h"

using namespace equality;

namespace {

const char* const offloads[] = {
    "optimizer = 'host'\n",
    "optimizer = 'host'\nupdate = 'device'\n",
    "optimizer = 'host'\nmaster = 'none'\n",
    "master = 'host'\n",
    "gradients = 'host'\n",
    "parameters = 'host'\n",
    "optimizer = 'host'\ngradients = 'host'\n",
    "optimizer = 'host'\nupdate = 'device'\ngradients = 'host'\nparameters = 'host'\n",
    "optimizer = 'host'\ngradients = 'host'\nparameters = 'host'\n",
    "activations = 'host'\n",
    "optimizer = 'shelf'\n",  // a third party's
    "optimizer = 'host'\nmaster = 'shelf'\ngradients = 'shelf'\nactivations = 'host'\n",
    "optimizer = 'host'\nparameters = 'host'\nactivations = 'host'\n",
    // Storage.
    "optimizer = 'drawer'\n",
    "optimizer = 'drawer'\nupdate = 'device'\n",
    "gradients = 'drawer'\n",
    "optimizer = 'drawer'\nupdate = 'device'\ngradients = 'drawer'\nparameters = 'drawer'\n",
    "optimizer = 'drawer'\nmaster = 'host'\nparameters = 'drawer'\nactivations = 'drawer'\n",
    "optimizer = 'drawer'\ngradients = 'host'\nparameters = 'drawer'\n",
    "optimizer = 'press'\ngradients = 'press'\n",  // another third party's, which compresses
    "optimizer = 'press'\nupdate = 'device'\nparameters = 'press'\nactivations = 'press'\n",
    // Some here, some there.
    "optimizer = 'host'\nratio = 0.5\n",
    "optimizer = 'host'\nupdate = 'device'\nratio = 0.5\n",
    "optimizer = 'drawer'\nratio = 0.4\ngradients = 'drawer'\n",
    "optimizer = 'drawer'\nratio = 0\n",
    // Some pieces updated here, some there.
    "optimizer = 'host'\nupdate = 'both'\nhost_share = 0.5\n",
    "optimizer = 'host'\nupdate = 'both'\nhost_share = 0.7\nratio = 0.7\ngradients = 'host'\n",
    "optimizer = 'drawer'\nupdate = 'both'\nhost_share = 0.4\nparameters = 'host'\n",
};
// Updates that the next step makes.
const char* const late[] = {
    "optimizer = 'host'\nupdate_late = true\n",
    "optimizer = 'host'\ngradients = 'host'\nupdate_late = true\n",
    "optimizer = 'host'\nupdate = 'both'\nhost_share = 0.5\nupdate_late = true\n",
    "optimizer = 'host'\nratio = 0.5\nparameters = 'host'\nupdate_late = true\n",
    "optimizer = 'drawer'\ngradients = 'drawer'\nactivations = 'host'\nupdate_late = true\n",
    "optimizer = 'host'\nmaster = 'none'\nparameters = 'drawer'\nupdate_late = true\n",
};
// With a ratio, which the pieces of a unit share.
const char* const split[] = {
    "optimizer = 'host'\n",
    "optimizer = 'host'\nupdate = 'device'\ngradients = 'host'\n",
    "optimizer = 'drawer'\nparameters = 'host'\n",
    "optimizer = 'host'\nmaster = 'none'\nparameters = 'drawer'\n",
    "optimizer = 'host'\nmaster = 'drawer'\nupdate = 'device'\n",
    "optimizer = 'drawer'\ngradients = 'drawer'\nparameters = 'drawer'\nactivations = 'host'\n",
    "master = 'host'\n",
};
// With a share of the host, which the pieces of a unit share.
const char* const shared[] = {
    "optimizer = 'host'\n",
    "optimizer = 'host'\ngradients = 'host'\nratio = 0.6\n",
    "optimizer = 'drawer'\nparameters = 'host'\n",
    "optimizer = 'host'\nmaster = 'none'\nparameters = 'drawer'\n",
    "optimizer = 'host'\nmaster = 'drawer'\n",
};
const char* const recomputes[] = {"", "policy = 'full'", "every = 2"};

// Every `step`-th offload from the `shift`-th on, each with another strategy.
void same(const Group& g, size_t shift, size_t step = 1) {
  const Result first = train(g, plan(g, {}), {1, false});
  REQUIRE(first.complaint == "");
  for (size_t k = shift % step; k < std::size(offloads); k += step) {
    Draw d;
    d.offload = offloads[k];
    d.strategy = g.world == 1 ? "none" : every_strategy[(k + shift) % 5];
    d.bucket = k % 2 ? uint64_t{64} << 20 : uint64_t{g.world} * eng::chunk * 4;
    d.prefetch = static_cast<int64_t>(k % 3), d.recompute = recomputes[(k + shift) % 3];
    if (k % 3 == 2 && g.world > 1) d.live_limit = 1.5;
    INFO(describe(g) << "; " << describe(d));
    CHECK(difference(first, train(g, plan(g, d), {shift + k, k % 2 == 0})) == "");
  }
}

// True if a state of the optimizer is partly on the device and partly on a tier.
bool cut(const eng::Plan& plan) {
  std::set<std::string> here, there;
  for (const eng::Buffer& b : plan.buffers)
    if (b.persistent && b.line == eng::Line::optimizer) (b.arena ? there : here).insert(b.name);
  return std::any_of(here.begin(), here.end(), [&](const std::string& name) { return there.count(name) > 0; });
}

// Each ratio, in the smallest pieces.
void same_for_ratios(const Group& g, size_t shift) {
  const bool whole = g.optimizer.find("muon") != std::string::npos;
  const Result first = train(g, plan(g, {}), {1, false});
  REQUIRE(first.complaint == "");
  for (const double ratio : {0.0, 0.3, 0.5, 1.0}) {
    const std::string what = split[shift % std::size(split)];
    Draw d;
    d.offload = what + fmt::format("ratio = {}\n", ratio);
    d.strategy = g.world == 1 ? "none" : every_strategy[shift % 5];
    d.bucket = 1, d.prefetch = static_cast<int64_t>(shift % 3), d.observe = shift % 2;
    if (shift % 3 == 2 && g.world > 1) d.live_limit = 1.5;
    INFO(describe(g) << "; " << describe(d));
    const Planned planned = plan(g, d);
    CHECK(cut(planned.plans[0]) == (ratio > 0 && ratio < 1 && !whole && what.starts_with("optimizer")));
    CHECK(difference(first, train(g, planned, {shift, shift % 2 == 0})) == "");
    ++shift;
  }
}

// Each part of the pieces updated on the host, in the smallest pieces.
void same_for_shares(const Group& g, size_t shift) {
  const Result first = train(g, plan(g, {}), {1, false});
  REQUIRE(first.complaint == "");
  for (const double share : {0.0, 0.3, 0.5, 1.0}) {
    Draw d;
    d.offload = shared[shift % std::size(shared)] + fmt::format("update = 'both'\nhost_share = {}\n", share);
    d.strategy = g.world == 1 ? "none" : every_strategy[shift % 5];
    d.bucket = 1, d.prefetch = static_cast<int64_t>(shift % 3), d.observe = shift % 2;
    INFO(describe(g) << "; " << describe(d));
    CHECK(difference(first, train(g, plan(g, d), {shift, shift % 2 == 0})) == "");
    ++shift;
  }
}

// Each with every strategy; what the last step has left is done now and then.
void same_for_late(const Group& g, size_t shift, size_t strategies) {
  const Result first = train(g, plan(g, {}), {1, false});
  REQUIRE(first.complaint == "");
  for (size_t k = 0; k < std::size(late); ++k)
    for (size_t s = 0; s < (g.world == 1 ? 1 : strategies); ++s) {
      Draw d;
      d.offload = late[k];
      d.strategy = g.world == 1 ? "none" : every_strategy[(k + s + shift) % 5];
      d.bucket = k % 2 ? uint64_t{64} << 20 : 1;
      d.prefetch = static_cast<int64_t>((k + s) % 3), d.recompute = recomputes[(k + shift) % 3];
      INFO(describe(g) << "; " << describe(d));
      CHECK(difference(first, train(g, plan(g, d), {shift + k, k % 2 == 0})) == "");
    }
}

Group group(const char* model, const char* precision, uint32_t world, const char* optimizer = nullptr) {
  Group g;
  g.model = model, g.precision = precision, g.world = world, g.accumulate = 2;
  if (optimizer) g.optimizer = optimizer;
  return g;
}

// Bytes of persistent buffers in an arena.
uint64_t kept(const eng::Plan& plan, eng::Line line, uint32_t arena) {
  uint64_t out = 0;
  for (const eng::Buffer& b : plan.buffers)
    if (b.persistent && b.line == line && b.arena == arena) out += b.bytes;
  return out;
}

}  // namespace

TEST_CASE("states in host memory give the same bits", "[.slow]") {
  same(group("llama", "fp32", 2), 0, 4);
  same(group("opt", "bf16", 1), 1, 4);
  same(group("mamba", "bf16", 2), 2, 4);
  same(group("llama-tied", "bf16_sr", 2), 3, 4);
}

TEST_CASE("any ratio gives the same bits") {
  same_for_ratios(group("llama", "fp32", 2), 0);
  same_for_ratios(group("opt", "bf16", 1), 3);
  same_for_ratios(group("llama-tied", "bf16_sr", 2), 6);
}

TEST_CASE("an update that the next step makes gives the same bits") {
  same_for_late(group("llama", "fp32", 2), 0, 1);
  same_for_late(group("llama-tied", "bf16_sr", 1), 1, 1);
}

TEST_CASE("an update that the next step makes gives the same bits, with all strategies, clipped, skipped or neither",
          "[.slow]") {
  for (const double clip : {0.0, 0.5})
    for (const char* format : {"fp32", "bf16", "bf16_sr", "fp16\ninitial_scale_power = 30"})
      for (const uint32_t world : {1u, 2u}) {
        Group g = group(world == 1 ? "opt" : "llama-tied", format, world);
        g.grad_clip = clip, g.accumulate = world;
        same_for_late(g, world, 5);
      }
  Group skips = group("llama", "fp16", 2);
  skips.overflows[1] = {1, 1};
  same_for_late(skips, 0, 5);
  same_for_late(group("odd-tied", "half-bf16", 3), 1, 5);
  same_for_late(group("llama", "bf16", 2, "plugin = 'muon'\nlearning_rate = 1e-2\n"), 2, 5);
  same_for_late(group("mamba", "bf16", 2, "plugin = 'adamw8bit'\nlearning_rate = 1e-2\n"), 0, 5);
  Group frozen = group("llama", "bf16", 2);
  frozen.freeze = "'model.layers.0.*'";
  same_for_late(frozen, 1, 5);
  Group once = group("llama", "bf16", 2);
  once.reduce_per_step = true;
  same_for_late(once, 3, 5);
}

TEST_CASE("any share of the host in the update gives the same bits") {
  same_for_shares(group("llama", "fp32", 2), 0);
  same_for_shares(group("opt", "bf16", 1), 2);
  same_for_shares(group("llama", "bf16", 2, "plugin = 'muon'\nlearning_rate = 1e-2\n"), 1);
}

TEST_CASE("any share of the host in the update gives the same bits, with other optimizers and formats", "[.slow]") {
  for (size_t shift = 0; shift < 20; shift += 4) {
    same_for_shares(group("mamba", "bf16", 2), shift);
    same_for_shares(group("llama-tied", "bf16_sr", 2), shift + 1);
    same_for_shares(group("opt", "fp16\ninitial_scale_power = 30", 2), shift + 2);
    same_for_shares(group("llama", "bf16", 1, "plugin = 'adamw8bit'\nlearning_rate = 1e-2\n"), shift + 3);
  }
}

TEST_CASE("any ratio gives the same bits, with other optimizers and in all combinations", "[.slow]") {
  const char* const weights = "learning_rate = 1e-2\nweight_decay = 0.1\n";
  for (size_t shift = 0; shift < 35; shift += 4) {
    same_for_ratios(group("llama", "fp32", 2), shift + 1);
    same_for_ratios(group("mamba", "bf16", 2), shift + 2);
    same_for_ratios(group("opt", "fp16\ninitial_scale_power = 30", 2), shift + 3);
    same_for_ratios(group("llama", "bf16", 2, fmt::format("plugin = 'adamw8bit'\n{}", weights).c_str()), shift);
    same_for_ratios(group("llama", "fp32", 1, fmt::format("plugin = 'adamw8bit'\n{}", weights).c_str()), shift);
    same_for_ratios(group("llama", "bf16", 2, "plugin = 'muon'\nlearning_rate = 1e-2\n"), shift + 1);
    same_for_ratios(group("opt", "fp32", 2, "plugin = 'sgd'\nlearning_rate = 1e-2\nmomentum = 0.9\n"), shift + 2);
    Group frozen = group("llama", "bf16", 2);
    frozen.freeze = "'model.layers.0.*'";
    same_for_ratios(frozen, shift + 3);
  }
}

TEST_CASE("storage that gives back other bytes is seen") {
  const Group g = group("llama", "bf16", 1);
  for (const char* tier : {"drawer", "press"}) {
    Draw d;
    d.offload = fmt::format("optimizer = '{}'\n", tier);
    Fault fault;
    CHECK(train(g, plan(g, d), {1, false}, fault).complaint == "");
    fault.flips = true;
    CHECK_THAT(train(g, plan(g, d), {1, false}, fault).complaint,
               Catch::Contains(fmt::format("tier {} gave other bytes than it was given", tier)));
  }
}

TEST_CASE("all states in host memory, with a skipped update, other optimizers and frozen parameters", "[.slow]") {
  same(group("llama", "fp32", 2), 0);
  same(group("opt", "bf16", 1), 1);
  same(group("mamba", "bf16", 2), 2);
  same(group("llama-tied", "bf16_sr", 2), 3);
  Group skips = group("llama", "fp16\ninitial_scale_power = 30", 2);
  same(skips, 0);
  same(group("mamba", "fp32", 1), 1);
  same(group("opt", "fp16", 4), 2);
  same(group("llama", "fp32", 2, "plugin = 'adamw8bit'\nlearning_rate = 1e-2\nweight_decay = 0.1\n"), 3);
  same(group("llama", "bf16", 2, "plugin = 'muon'\nlearning_rate = 1e-2\n"), 4);
  same(group("llama", "fp32", 1, "plugin = 'muon'\nlearning_rate = 1e-2\n"), 0);
  same(group("opt", "fp32", 2, "plugin = 'sgd'\nlearning_rate = 1e-2\nmomentum = 0.9\n"), 1);
  Group frozen = group("llama", "bf16", 2);
  frozen.freeze = "'model.layers.0.*'";
  same(frozen, 2);
  Group once = group("llama", "bf16", 2);
  once.reduce_per_step = true;
  same(once, 3);
}

TEST_CASE("the verifier refuses what computes where its values are not") {
  Draw d;
  d.offload = "optimizer = 'drawer'\ngradients = 'host'\nparameters = 'drawer'\nactivations = 'host'\n";
  const eng::Plan right = std::move(plan(group("llama", "bf16", 2), d).plans[0]);
  REQUIRE(eng::problems(right).empty());
  const auto refused = [](const eng::Plan& wrong, const std::string& text) {
    const std::vector<std::string> found = eng::problems(wrong);
    return std::any_of(found.begin(), found.end(), [&](const auto& p) { return p.find(text) != std::string::npos; });
  };
  // A call that runs on the other side.
  int on_host = 0, on_device = 0;
  for (size_t c = 0; c < right.calls.size(); ++c) {
    if (right.calls[c].op->id == std::string(ENG_OP_COPY) || right.calls[c].op->collective) continue;
    eng::Plan wrong = right;
    wrong.calls[c].on_host = !right.calls[c].on_host;
    const bool was = right.calls[c].on_host;
    INFO(right.calls[c].op->id << (was ? " on the host" : " on the device"));
    CHECK(refused(wrong, was ? "computes on the device, but " : "computes on the host, but "));
    ++(was ? on_host : on_device);
  }
  CHECK((on_host > 3 && on_device > 20));
  // A value that lies elsewhere: no action finds it where it computes.
  int moved = 0;
  for (const eng::Action& action : right.program("train").segments[0].actions) {
    const eng::Call& call = right.calls[action.call];
    if (call.op->id == std::string(ENG_OP_COPY) || call.op->collective || action.in.empty() || !action.in[0].buffer)
      continue;
    const uint32_t arena = right.buffer(action.in[0].buffer).arena;
    for (uint32_t other = 0; other < right.arenas.size() && moved < 60; ++other) {
      if (other == arena || (call.on_host && other >= right.first_tier && !right.stores(other))) continue;
      eng::Plan wrong = right;
      wrong.buffer(action.in[0].buffer).arena = other;
      ++moved;
      INFO(call.op->id << ", " << right.buffer(action.in[0].buffer).name << " in arena " << other);
      CHECK(refused(wrong, "computes on the "));
    }
  }
  CHECK(moved > 20);
}

TEST_CASE("what is offloaded is in the tier's arena, and no longer in the device's") {
  const Group g = group("llama", "bf16", 1);
  const auto planned = [&](const char* offload) {
    Draw d;
    d.offload = offload;
    return std::move(plan(g, d).plans[0]);
  };
  const eng::Plan here = planned(""), there = planned("optimizer = 'host'\n"),
                  all = planned("optimizer = 'host'\ngradients = 'host'\nparameters = 'host'\n");
  REQUIRE(here.arenas.size() == 1);
  REQUIRE(there.arenas.size() == 2);
  CHECK(there.arenas[1].device == "host");
  CHECK(there.arenas[1].kind == "tier");
  uint64_t elements = 0;
  for (const eng::Unit& unit : here.units) elements += unit.count;
  using eng::Line;
  CHECK(kept(here, Line::optimizer, 0) == 8 * elements);
  CHECK(kept(here, Line::weights, 0) == 6 * elements);
  CHECK(kept(there, Line::optimizer, 0) == 0);
  CHECK(kept(there, Line::optimizer, 1) == 8 * elements);
  CHECK(kept(there, Line::weights, 0) == 2 * elements);
  CHECK(kept(there, Line::weights, 1) == 4 * elements);
  CHECK(kept(all, Line::weights, 0) == 0);
  CHECK(kept(all, Line::weights, 1) == 6 * elements);
  // Weights and gradients of a block at a time.
  CHECK(all.arenas[0].total() < there.arenas[0].total() - 2 * elements);
  CHECK(here.arenas[0].total() - there.arenas[0].total() > 11 * elements);
}
