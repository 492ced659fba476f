// SPDX-License-Identifier: Apache-2.0
// Products of 8 bits over the strategies, recomputation and tiers: the same bits. A current scale is that of a
// micro-batch of one rank, and a delayed one that of all in earlier steps, so ranks in place of micro-batches change
// nothing, either.
#include <catch2/catch.hpp>

#include "degrees.hpp"
#include "engine/ops_fp8.h"

namespace fp8_test {

using namespace equality;

namespace {

const std::string fp8 = "[[transforms]]\nplugin = 'fp8'\n", delayed = fp8 + "recipe = 'delayed'\nhistory = 2\n";

Group group_of(const std::string& model, const std::string& precision) {
  Group group;
  group.model = model, group.precision = precision, group.transforms = fp8;
  return group;
}

const std::vector<Draw> draws = {
    {"none"},
    {"zero1", 65536},
    {"zero2", 65536, 1, true, 0, "every = 2"},
    {"zero3", 65536, 2, true, 0, "policy = 'full'"},
    {"two_level", 1},
    {"zero3", 65536, 1, true, 0, "", "optimizer = 'host'\ngradients = 'host'\nparameters = 'host'\n"},
    {"zero2", 65536, 1, true, 0, "blocks = 1", "optimizer = 'shelf'\ngradients = 'shelf'\nactivations = 'host'\n"}};

// Parameters and histories.
void same_tensors(const Result& a, const Result& b) {
  size_t compared = 0;
  for (const auto& [name, values] : a.tensors)
    if (name.rfind("parameter ", 0) == 0 || name.rfind("policy ", 0) == 0) {
      INFO(name);
      CHECK(numbers(b, name) == values);
      ++compared;
    }
  CHECK(compared > 10);
}

// For x, w and dy of a map: the scale, the largest value of the step so far, and those of the last two steps.
const std::vector<float>& state(const Result& result, const std::string& map) {
  return numbers(result, "policy transform.fp8.model.layers.1." + map + ".weight");
}

}  // namespace

TEST_CASE(
    "products of 8 bits have the same bits with every strategy, recomputation and tier, and others than without") {
  Group group = group_of("llama", "bf16");
  group.accumulate = 2, group.steps = 2;
  const Result both = all_equal(group, {draws[0], draws[2], draws[3], draws[5]});
  group.transforms = "";
  CHECK(difference(both, train(group, plan(group, draws[0]), {3})) != "");
  group.transforms = fp8 + "gradients = 'e4m3'\n";
  CHECK(difference(both, train(group, plan(group, draws[0]), {3})) != "");
  group.transforms = fp8 + "exclude = ['*.down_proj']\n";
  CHECK(difference(both, train(group, plan(group, draws[0]), {3})) != "");

  group = group_of("llama", "bf16");
  group.world = 1, group.steps = 2;
  all_equal(group, {draws[0], {"none", 65536, 1, true, 0, "policy = 'full'", draws[5].offload}});
}

TEST_CASE("ranks in place of micro-batches change no bit of products of 8 bits") {
  for (const std::string& transforms : {fp8, delayed}) {
    Group one = group_of("llama", "fp32");
    one.transforms = transforms;
    Group two = one;
    one.world = 1, one.accumulate = 2, two.world = 2, two.accumulate = 1;
    const Result alone = train(one, plan(one, draws[0]), {7}), result = train(two, plan(two, draws[3]), {7});
    same_tensors(alone, result);
  }
}

TEST_CASE("histories of largest values have the same bits with every strategy, recomputation and tier") {
  Group group = group_of("llama", "bf16");
  group.accumulate = 2, group.transforms = delayed;
  const Result result = all_equal(group, {draws[0], draws[3], draws[5]});
  for (const char* map : {"self_attn.q_proj", "mlp.down_proj"})
    for (size_t row = 0; row < 3; ++row) {
      const std::vector<float>& all = state(result, map);
      REQUIRE(all.size() == 3 * 4);
      const float* const own = all.data() + row * 4;
      INFO(map << ", row " << row << ": " << own[0] << " " << own[1] << " " << own[2] << " " << own[3]);
      CHECK(own[1] == 0);  // the step has ended
      CHECK((own[2] > 0 && own[3] > 0 && own[2] != own[3]));
      const int32_t n = eng_fp8_exponent(row == 2 ? ENG_FP8_E5M2 : ENG_FP8_E4M3, std::max(own[2], own[3]), 0);
      CHECK(own[0] == eng_fp8_power(n));
    }
  // The first step has no history: its scales are current.
  const auto steps = [&](int n, const std::string& transforms) {
    Group some = group;
    some.steps = n, some.transforms = transforms;
    return train(some, plan(some, draws[0]), {3});
  };
  const std::string parameter = "parameter model.layers.1.mlp.up_proj.weight";
  CHECK(numbers(steps(1, delayed), parameter) == numbers(steps(1, fp8), parameter));
  CHECK(numbers(result, parameter) != numbers(steps(3, fp8), parameter));
  CHECK(numbers(result, parameter) != numbers(steps(3, delayed + "margin = 3\n"), parameter));
}

TEST_CASE("products of 8 bits of every model and format have the same bits", "[.slow]") {
  struct Case {
    const char *model, *precision;
    std::string before;  // transforms before it
  };
  const std::string lora = "[[transforms]]\nplugin = 'lora'\nrank = 4\ntargets = ['*.q_proj', '*.down_proj']\n";
  for (const Case& c : {Case{"llama", "fp32", ""}, Case{"llama", "bf16_sr", ""}, Case{"llama-tied", "fp16", ""},
                        Case{"opt", "bf16", ""}, Case{"mamba", "bf16", ""}, Case{"mamba2", "fp32", ""},
                        Case{"moe", "bf16", ""}, Case{"llama", "bf16", lora},
                        Case{"llama", "bf16\nfrozen = 'nf4'", lora}, Case{"llama", "bf16\nfrozen = 'e4m3'", lora}}) {
    Group group = group_of(c.model, c.precision);
    group.accumulate = 2, group.transforms = c.before + fp8;
    all_equal(group, draws);
    group.world = 3, group.reduce_per_step = true;
    all_equal(group, {draws[0], draws[3]});
    group.transforms = c.before + delayed;
    all_equal(group, {draws[0], draws[3], draws[6]});
  }
}

// All ranks have the same histories, whatever they divide: train() compares them. The weights are those of the whole.
TEST_CASE("histories of ranks that divide layers, sequences or blocks are those of the whole", "[.slow]") {
  struct Case {
    uint32_t tensor, context, pipeline;
    bool sequence;
  };
  for (const Case& c : {Case{2, 1, 1, false}, {2, 1, 1, true}, {1, 2, 1, false}, {1, 1, 2, false}, {2, 1, 2, false}}) {
    Group group = group_of("llama", "bf16");
    group.world = 4, group.length = 8, group.accumulate = 2, group.transforms = delayed;
    group.tensor = c.tensor, group.context = c.context, group.pipeline = c.pipeline, group.sequence = c.sequence;
    Group whole = group;
    whole.world /= c.tensor * c.context * c.pipeline, whole.tensor = whole.context = whole.pipeline = 1;
    whole.sequence = false;
    INFO(describe(group));
    all_equal(group, {draws[0], draws[2], draws[c.pipeline > 1 ? 1 : 3]});  // stages keep their weights
    group.steps = whole.steps = 1;
    const Result mine = train(group, plan(group, draws[0]), {3}), theirs = train(whole, plan(whole, draws[0]), {3});
    CHECK(mine.complaint == "");
    for (const char* map : {"self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"})
      for (size_t row = 0; row < 3; ++row) {
        const float one = state(mine, map)[row * 4 + 2], other = state(theirs, map)[row * 4 + 2];
        INFO(map << ", row " << row << ": " << one << " and " << other);
        CHECK((row == 1 ? one == other : one == Approx(other).epsilon(0.05)));
      }
  }
}

// A scale is that of what a rank multiplies, so another degree has other bits, near those of one rank.
TEST_CASE("ranks that divide layers or sequences multiply their parts in 8 bits", "[.slow]") {
  for (const auto& [tensor, context, sequence] : {std::tuple{2u, 1u, false}, {2u, 1u, true}, {1u, 2u, false}}) {
    Group group = group_of("llama", "bf16");
    group.world = 4, group.tensor = tensor, group.context = context, group.sequence = sequence, group.length = 8;
    INFO(describe(group));
    const Result divided = all_equal(group, {draws[0], draws[2], draws[3], draws[5]});
    Group plain = group;
    plain.transforms = "";
    CHECK(difference(divided, train(plain, plan(plain, draws[0]), {3})) != "");
    const Group whole = degrees::undivided(group);
    const Result alone = train(whole, plan(whole, draws[0]), {3});
    const double mine = degrees::steps(group, divided).losses[0], theirs = degrees::steps(whole, alone).losses[0];
    CHECK(mine == Approx(theirs).epsilon(0.01));
    CHECK(mine != theirs);
  }
}

}  // namespace fp8_test
