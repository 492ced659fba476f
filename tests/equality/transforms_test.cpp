// SPDX-License-Identifier: Apache-2.0
// Low-rank paths over the strategies, recomputation and tiers: the same bits, and only the paths move.
#include <catch2/catch.hpp>

#include "all_equal.hpp"

namespace transforms_test {

using namespace equality;

namespace {

std::string low_rank(const std::string& targets, const std::string& more = "") {
  return "[[transforms]]\nplugin = 'lora'\nrank = 4\nalpha = 8\ntargets = [" + targets + "]\n" + more;
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

TEST_CASE("a low-rank path has the same bits however it is trained, and the model stays as it was") {
  const std::string more = GENERATE("", "dora = true\n");
  CAPTURE(more);
  Group group;
  group.accumulate = 2, group.transforms = low_rank("'*.q_proj', '*.v_proj', '*.down_proj'", more);
  const Result result = all_equal(group, {draws[0], draws[3], draws[5]});
  group.steps = 1;
  const Result before = train(group, plan(group, draws[0]), {3});
  for (const auto& [name, values] : before.tensors) {
    if (name.rfind("parameter ", 0) != 0) continue;
    INFO(name);
    const bool path = name.find(".lora_") != std::string::npos;
    CHECK((numbers(result, name) != values) == path);
  }
  // Frozen parameters have no states.
  for (const auto& [name, values] : result.tensors)
    if (name.rfind("parameter ", 0) != 0 && name.find(' ') != std::string::npos)
      CHECK(name.find(".lora_") != std::string::npos);
}

TEST_CASE("low-rank paths of every model have the same bits with every strategy, recomputation and tier", "[.slow]") {
  struct Case {
    const char *model, *precision, *targets, *more;
  };
  for (const Case& c :
       {Case{"llama", "bf16", "'*.q_proj', '*.v_proj', '*.down_proj'", "dropout = 0.1\n"},
        Case{"llama-tied", "fp16", "'*_proj'", "freeze = false\n"},
        Case{"opt", "fp32", "'*.fc1', '*.fc2', '*.out_proj'", ""},
        Case{"mamba", "bf16", "'*.in_proj', '*.x_proj', '*.out_proj'", ""},
        Case{"mamba", "fp32", "'all-linear'", "dropout = 0.1\nranks = ['*.dt_proj=1', '*.x_proj=2']\n"},
        Case{"mamba2", "fp32", "'all-linear'", ""},
        Case{"llama", "bf16", "'*.q_proj', '*.down_proj'", "dora = true\ndropout = 0.1\n"},
        Case{"opt", "fp32", "'*.fc1', '*.out_proj'", "dora = true\nfreeze = false\n"},
        Case{"mamba", "bf16", "'all-linear'", "dora = true\nranks = ['*.dt_proj=1', '*.x_proj=2']\n"}}) {
    Group group;
    group.model = c.model, group.precision = c.precision, group.accumulate = 2;
    group.transforms = low_rank(c.targets, c.more);
    all_equal(group, draws);
    group.world = 3, group.reduce_per_step = true;
    all_equal(group, {draws[0], draws[3]});
  }
}

TEST_CASE("two transforms and a frozen embedding have the same bits with every strategy", "[.slow]") {
  Group group;
  group.freeze = "'model.embed_tokens.weight'";
  group.transforms =
      low_rank("'*.0.*.q_proj'", "freeze = false\n") + low_rank("'*.down_proj'", "name = 'second'\nfreeze = false\n");
  all_equal(group, draws);
}

}  // namespace transforms_test
