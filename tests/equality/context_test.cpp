// SPDX-License-Identifier: Apache-2.0
// Sequences that ranks divide: the numbers of one rank within rounding, and the same bits in every run of one degree.
#include <catch2/catch.hpp>

#include "all_equal.hpp"
#include "core/base/error.hpp"
#include "degrees.hpp"
#include "plugins.hpp"

namespace context_test {

using namespace equality;
using namespace equality::degrees;
using Catch::Contains;

namespace {

// Updates that follow gradients in proportion, so that rounding stays rounding.
constexpr const char* sgd = "plugin = 'sgd'\nlearning_rate = 0.1\nmomentum = 0.9\n";

Group divided(const char* model, uint32_t context, uint32_t world = 0) {
  Group group;
  group.model = model, group.context = context, group.world = world ? world : context;
  group.length = 8, group.optimizer = sgd;
  return group;
}
std::string refusal(const Group& group, const Draw& draw = {}) {
  try {
    plan(group, draw);
  } catch (const eng::Error& e) {
    CHECK(e.exit() == eng::Exit::usage);
    return std::string(e.what()) + "; " + e.help();
  }
  return "";
}

const std::vector<Draw> draws = {
    {"none"},
    {"zero1", 65536, 1, false},
    {"zero2", 65536, 1, true, 0, "every = 2"},
    {"zero3", 65536, 2, true, 0, "policy = 'full'"},
    {"two_level", 1, 1, true, 0, "blocks = 1"},
    {"zero3", 65536, 1, true, 0, "",
     "optimizer = 'host'\ngradients = 'host'\nparameters = 'host'\nactivations = 'host'\n"}};

}  // namespace

TEST_CASE("ranks that divide sequences train what one rank trains") {
  for (const char* model : {"llama", "opt-still"}) {
    Group group = divided(model, 2);
    group.accumulate = 2, group.steps = 0;
    INFO(describe(group));
    CHECK(difference(trained(undivided(group)), trained(group)) == "");  // they begin with the same bits
    group.steps = 5;
    near_undivided(group);
  }
}

TEST_CASE("sequences of other models and degrees", "[.slow]") {
  // llama has 4 heads and 2 of keys and values, which 4 ranks repeat; gemma3 and mistral have one.
  for (const char* model : {"llama", "qwen2", "qwen3", "llama-tied", "gemma3", "mistral", "odd"})
    near_undivided(divided(model, 4));
  for (const char* model : {"llama", "opt-still"}) near_undivided(divided(model, 2, 4));
  Group group = divided("llama", 2);
  group.z_loss = 0.01;
  near_undivided(group);
}

TEST_CASE("selective scans and convolutions of divided sequences are those of whole ones", "[.slow]") {
  for (const char* model : {"mamba", "mamba2", "hybrid"})
    for (const uint32_t context : {2u, 4u}) {
      // The attention of hybrid has 2 heads.
      if (model == std::string("hybrid") && context == 4) continue;
      Group group = divided(model, context);
      near_undivided(group);
      group.packed = true, group.length = 16, group.accumulate = 2;
      near_undivided(group);
      all_equal(group, {draws[0], draws[3]});
    }
}

TEST_CASE("experts of shared routers, of scores by sigmoids and of hybrids are those of whole sequences", "[.slow]") {
  for (const char* model : {"moe-dense", "moe-hybrid", "moe-jamba"}) near_undivided(divided(model, 2));
  Group group = divided("moe-hybrid", 2, 4);
  group.tensor = 2;
  near_undivided(group);
}

TEST_CASE("experts of divided sequences are balanced over whole ones", "[.slow]") {
  for (const uint32_t context : {2u, 4u}) {
    Group group = divided("moe", context);
    group.accumulate = 2;
    near_undivided(group);
    group.packed = true;
    near_undivided(group);
    all_equal(group, {draws[0], draws[3]});
  }
}

TEST_CASE("packed documents and weights of losses stay right where ranks cut them") {
  for (const char* model : {"llama", "opt-still"}) {
    Group group = divided(model, 2);
    group.packed = true, group.length = 12, group.accumulate = 2;
    near_undivided(group);
    Group plain = group;
    plain.packed = false;
    CHECK(difference(trained(group), trained(plain)) != "");
  }
}

TEST_CASE("divided sequences have the same bits with every strategy, recomputation, tier and schedule", "[.slow]") {
  Group group = divided("llama", 2, 4);
  group.accumulate = 2;
  all_equal(group, draws);
  group.optimizer = Group().optimizer, group.packed = true, group.reduce_per_step = true;
  all_equal(group, {draws[0], draws[3]});
  group = divided("llama", 4);
  all_equal(group, {draws[0], draws[2], draws[3]});
}

TEST_CASE("drawn settings change no bit of divided sequences", "[.slow]") {
  Random random(41);
  const char *models[] = {"llama", "opt-still", "mamba", "hybrid", "moe", "gemma3"},
             *formats[] = {"fp32", "bf16", "fp16"};
  for (const char* model : models) {
    Group group = divided(model, 2, 4);
    group.accumulate = 1 + static_cast<int64_t>(random() % 2), group.reduce_per_step = random() % 2 == 0;
    group.packed = random() % 2 == 0, group.precision = formats[random() % 3];
    std::vector<Draw> drawn = {{}};
    for (int k = 0; k < 4; ++k) {
      drawn.push_back(draw(random, group));
      drawn.back().observe = false;
    }
    all_equal(group, drawn);
  }
}

TEST_CASE("16 bits and loss scales work on divided sequences", "[.slow]") {
  for (const char* precision : {"bf16", "fp16", "bf16_sr"}) {
    Group group = divided("llama", 2, 4);
    group.precision = precision;
    INFO(describe(group));
    const Result result = all_equal(group, {draws[0], draws[3]});
    const Group whole = undivided(group);
    CHECK(steps(group, result).losses[0] == Approx(steps(whole, trained(whole)).losses[0]).epsilon(0.01));
  }
}

TEST_CASE("ranks divide layers and sequences at once") {
  Group group = divided("llama", 2, 4);
  group.tensor = 2;
  near_undivided(group);
  all_equal(group, {draws[0], draws[3]});
}

TEST_CASE("low-rank paths, frozen layers and whole-matrix optimizers train on divided sequences", "[.slow]") {
  Group group = divided("llama", 2);
  group.transforms = "[[transforms]]\nplugin = 'lora'\nrank = 4\ntargets = ['all-linear']\n";
  near_undivided(group);
  group.transforms = "[[transforms]]\nplugin = 'lora'\nrank = 4\ndora = true\ntargets = ['*.q_proj']\n";
  near_undivided(group);
  group = divided("llama", 2);
  group.freeze = "'model.layers.0.*'";
  near_undivided(group);
  group = divided("llama", 2);
  group.optimizer = "plugin = 'muon'\nlearning_rate = 1e-2\n";
  all_equal(group, {draws[0], draws[3]});
}

TEST_CASE("what one rank drops of a sequence, ranks that divide it drop") {
  Group group = divided("opt", 2);
  group.accumulate = 2;
  near_undivided(group);
  Group still = group;
  still.model = "opt-still";
  CHECK(difference(trained(group), trained(still)) != "");
}

TEST_CASE("dropout of divided sequences with paths, degrees and strategies", "[.slow]") {
  Group group = divided("llama", 4);
  group.transforms = "[[transforms]]\nplugin = 'lora'\nrank = 4\ndropout = 0.3\ntargets = ['all-linear']\n";
  near_undivided(group);
  all_equal(group, {draws[0], draws[3]});
  group = divided("opt", 2, 4);
  near_undivided(group);
  all_equal(group, {draws[0], draws[3], draws[5]});
  group = divided("llama-heads", 2, 4);
  group.tensor = 2,
  group.transforms = "[[transforms]]\nplugin = 'lora'\nrank = 4\ndropout = 0.3\ntargets = ['all-linear']\n";
  near_undivided(group);
}

TEST_CASE("observers of divided sequences see what they see of whole ones") {
  const Group group = divided("llama", 2);
  const Draw watched{.observe = true};
  const Result two = trained(group, watched), one = trained(undivided(group), watched);
  CHECK(difference(two, trained(group)) == "");  // they change nothing
  REQUIRE(two.observed.size() == one.observed.size());
  REQUIRE(one.observed.size() > 5);
  for (size_t k = 0; k < one.observed.size(); ++k) {
    INFO(one.observed[k].name);
    CHECK(two.observed[k].name == one.observed[k].name);
    CHECK(two.observed[k].value == Approx(one.observed[k].value).epsilon(1e-4).margin(1e-7));
  }
}

TEST_CASE("a rank keeps its part of the activations, and whole weights") {
  const Group group = divided("llama", 2);
  const Planned two = plan(group, {}), one = plan(undivided(group), {});
  const eng::Plan& a = two.plans[1];
  CHECK(a.parameters == one.plans[0].parameters);
  CHECK(a.find("model.layers.0.mlp.down_proj.weight", "parameter")->ranges.size() == 1);
  size_t exchanges = 0;
  const eng::Segment& step = a.program("train").segments[0];
  for (const eng::Action& action : step.actions)
    exchanges += a.calls[action.call].op->id == std::string("eng.all_to_all/1") &&
                 a.calls[action.call].attrs.i("group") == a.ranks.context_group();
  // Queries, keys, values and the result, forward and backward, in each of 2 layers.
  CHECK(exchanges == 16);
}

TEST_CASE("sequences that cannot be divided are refused with the reason") {
  CHECK_THAT(refusal(divided("llama", 3)), Contains("parallel.context = 3 does not divide train.sequence_length = 8") &&
                                               Contains("train.sequence_length = 9"));
  Group group = divided("opt-still", 4);
  CHECK_THAT(refusal(group), Contains("parallel.context = 4 does not divide 2 attention heads") &&
                                 Contains("set parallel.context = 2"));
  CHECK_THAT(refusal(divided("llama", 2, 3)), Contains("parallel.context = 2 does not divide 3 ranks"));
  group = divided("llama", 2, 2);
  group.tensor = 2;
  CHECK_THAT(refusal(group), Contains("parallel.tensor = 2 x parallel.context = 2 does not divide 2 ranks"));
}

}  // namespace context_test
