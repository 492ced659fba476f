// SPDX-License-Identifier: Apache-2.0
// Products of 8 bits over the strategies, recomputation and tiers: the same bits. A scale is that of a micro-batch of
// one rank, so ranks in place of micro-batches change nothing, either.
#include <catch2/catch.hpp>

#include "degrees.hpp"

namespace fp8_test {

using namespace equality;

namespace {

const std::string fp8 = "[[transforms]]\nplugin = 'fp8'\n";

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
  Group one = group_of("llama", "fp32"), two = one;
  one.world = 1, one.accumulate = 2, two.world = 2, two.accumulate = 1;
  const Result alone = train(one, plan(one, draws[0]), {7});
  for (const Draw& draw : {draws[0], draws[3]}) {
    const Result result = train(two, plan(two, draw), {7});
    size_t compared = 0;
    for (const auto& [name, values] : alone.tensors)
      if (name.rfind("parameter ", 0) == 0) {
        INFO(name);
        CHECK(numbers(result, name) == values);
        ++compared;
      }
    CHECK(compared > 10);
  }
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
