// SPDX-License-Identifier: Apache-2.0
// Stages of a pipeline with what a step has besides: activations on tiers, updates beside passes, sums in fewer bits, a
// reference. The bits are those of the ranks of one stage.
#include "session/model/pipeline.hpp"
#include "stages.hpp"

namespace pipeline_policies_test {

using namespace equality::stages;
using Catch::Contains;

namespace {

Draw kept(const std::string& offload, const std::string& strategy = "none", const std::string& recompute = "",
          int64_t prefetch = 1) {
  return {strategy, 65536, prefetch, true, 0, recompute, offload};
}

// A stage's bytes of the device, and of its first tier.
std::pair<uint64_t, uint64_t> bytes(const Planned& planned, size_t rank) {
  const eng::Plan& p = planned.plans[rank];
  return {p.arenas[0].total(), p.first_tier < p.arenas.size() ? p.arenas[p.first_tier].total() : 0};
}

const std::string activations = "activations = 'host'\n", host = "optimizer = 'host'\nmaster = 'host'\n",
                  late = host + "update_late = true\n", early = host + "update_early = true\nearly_share = 0.5\n";

std::string preference(const char* from) {
  return fmt::format(
      "[loss]\nplugin = 'preference'\nkind = 'dpo'\nbeta = 0.5\n[reference]\nfrom = '{}'\n{}", from,
      from == std::string("base") ? "[[transforms]]\nplugin = 'lora'\nrank = 4\ntargets = ['all-linear']\n" : "");
}

}  // namespace

TEST_CASE("activations of stages leave the device, and come back with the same bits") {
  const std::string eight = layered("llama", 8);
  Group group = staged(eight.c_str(), 2, 4);
  all_equal(group, {{"none"}, kept(activations)});
  group.length = 64;
  const Planned here = plan(group, {}), away = plan(group, kept(activations));
  for (const size_t s : {0, 1}) {
    INFO(s);
    const auto [all, none] = bytes(here, s);
    const auto [rest, tier] = bytes(away, s);
    CHECK(none == 0);
    CHECK(rest < all);
    CHECK(tier > (all - rest) / 2);
  }
  // The first stage holds two micro-batches, the last one one, of which two blocks stay: the head, and one layer.
  const auto layer = [&](size_t s) { return bytes(away, s).second / (s ? 1 : 2); };
  INFO(layer(0) << " " << layer(1));
}

TEST_CASE("updates of stages run beside the next forward or the last backward, with the same bits") {
  const Group group = staged("llama", 2, 2);
  all_equal(group, {{"none"}, kept(late), kept(early)});
}

TEST_CASE("stages sum gradients in fewer bits as ranks without stages do") {
  for (const char* sum : {"sum = 'int8'\n", "sum = 'bf16'\n"}) {
    Draw draw = kept("", "zero2");
    draw.zero = sum;
    const Group group = staged("llama", 2, 2, 4);
    same_as_whole(group, draw);
    CHECK(difference(trained(group, draw), trained(group, kept("", "zero2"))) != "");
    Draw other = kept("", "zero3");
    other.zero = sum;
    all_equal(staged("llama-tied", 2, 2, 4), {draw, other});
  }
}

TEST_CASE("stages have a reference beside the model, each the same layers of both") {
  for (const char* from : {"start", "base"}) {
    Group group = staged("llama", 2, 3);
    group.transforms = preference(from);
    same_as_whole(group);
    const Planned planned = plan(group, {});
    for (uint32_t s = 0; s < 2; ++s)
      for (const char* name : {"model.layers.0.mlp.down_proj.weight", "model.layers.1.mlp.down_proj.weight"}) {
        const eng::Tensor* other = planned.plans[s].find(std::string("reference.") + name, "parameter");
        CHECK((other != nullptr) == (from == std::string("start")));
        if (other) CHECK(other->ranges.size() == planned.plans[s].find(name, "parameter")->ranges.size());
      }
  }
}

TEST_CASE("activations of stages on tiers, with strategies, recomputation and virtual stages", "[.slow]") {
  const std::vector<Draw> draws = {{"none"},
                                   kept(activations),
                                   kept(activations, "zero3", "policy = 'full'", 2),
                                   kept(activations + host, "zero1", "blocks = 1"),
                                   kept("activations = 'drawer'\n", "zero2", "every = 2"),
                                   kept("activations = 'shelf'\nparameters = 'shelf'\n", "zero3", "", 0)};
  const std::string eight = layered("llama", 8);
  all_equal(staged(eight.c_str(), 2, 3, 4), draws);
  all_equal(staged(eight.c_str(), 2, 4, 4, 3), draws);
  all_equal(staged("opt", 2, 3, 4), draws);
  all_equal(staged("mamba2", 2, 3), {{"none"}, kept(activations)});
  all_equal(staged(eight.c_str(), 4, 6), {{"none"}, kept(activations), kept("activations = 'drawer'\n")});
}

TEST_CASE("late and early updates of stages, with strategies, tiers and virtual stages", "[.slow]") {
  const std::vector<Draw> draws = {{"none"},
                                   kept(late, "zero2"),
                                   kept(late + "parameters = 'host'\n", "zero3", "policy = 'full'", 2),
                                   kept("optimizer = 'drawer'\nupdate_late = true\n", "zero1", "", 0),
                                   kept(early, "zero2"),
                                   kept(host + "update_early = true\nearly_share = 1.0\nupdate_late = true\n", "zero3"),
                                   kept(early + "gradients = 'host'\nactivations = 'host'\n", "zero1", "every = 2"),
                                   kept(early + "update_late = true\nupdate = 'both'\nhost_share = 0.5\n")};
  const std::string eight = layered("llama", 8), tied = eight + "tie_word_embeddings = true\n";
  for (const double clip : {0.0, 0.5})
    for (Group group : {staged(eight.c_str(), 2, 3, 4), staged(eight.c_str(), 2, 4, 4, 3),
                        staged(tied.c_str(), 2, 2, 4), staged("opt", 2, 1, 4)}) {
      group.grad_clip = clip;
      all_equal(group, draws);
    }
  Group group = staged("llama", 2, 2);
  group.precision = "fp16", group.overflows[1] = {1, 1};
  all_equal(group, {{"none"}, kept(late), kept(early)});
}

TEST_CASE("sums in fewer bits of stages, with groups of ranks, virtual stages and tiers", "[.slow]") {
  const std::string eight = layered("llama", 8);
  for (const char* sum : {"sum = 'int8'\n", "sum = 'bf16'\n"})
    for (const auto& [strategy, zero] :
         {std::pair("none", ""), {"zero3", ""}, {"hpz", "group = 2\n"}, {"mics", "group = 2\n"}}) {
      Draw draw = kept("", strategy);
      draw.zero = std::string(zero) + sum;
      Group group = staged(eight.c_str(), 2, 3, 8);
      same_as_whole(group, draw);
      group.virtual_stages = 2, group.reduce_per_step = true;
      draw.offload = host + activations;
      same_as_whole(group, draw);
    }
}

TEST_CASE("references of stages, with other models, strategies, tiers and virtual stages", "[.slow]") {
  const std::vector<Draw> draws = {{"none"},
                                   kept("", "zero3", "policy = 'full'", 2),
                                   kept(activations + host, "zero1", "blocks = 1"),
                                   kept("parameters = 'host'\n", "zero3"),
                                   kept(late, "zero2")};
  const std::string eight = layered("llama", 8);
  for (const char* from : {"start", "base"})
    for (Group group :
         {staged(eight.c_str(), 2, 3, 4), staged(eight.c_str(), 2, 4, 4, 3), staged(eight.c_str(), 4, 5, 8)}) {
      group.transforms = preference(from);
      same_as_whole(group);
      all_equal(group, draws);
    }
  Group group = staged("opt", 2, 2, 4);
  group.transforms = preference("base");  // its head is its embedding, which is not trained
  same_as_whole(group);
  group.transforms = preference("start");
  near_whole(group);
  group = staged(eight.c_str(), 2, 2, 4, 2);
  group.cuts = "'layers.0', 'layers.1', 'layers.5'", group.precision = "bf16", group.transforms = preference("start");
  same_as_whole(group);
  group = staged("llama", 2, 2, 4);
  group.tensor = 2, group.transforms = preference("start");
  same_as_whole(group);
}

}  // namespace pipeline_policies_test
