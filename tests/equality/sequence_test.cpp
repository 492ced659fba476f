// SPDX-License-Identifier: Apache-2.0
// Ranks of a tensor group that divide the positions between the maps, too: beside those that compute them alike.
#include <catch2/catch.hpp>

#include "core/base/error.hpp"
#include "degrees.hpp"
#include "engine/ops.h"

namespace sequence_test {

using namespace equality;
using Catch::Contains;

namespace {

constexpr const char* sgd = "plugin = 'sgd'\nlearning_rate = 0.1\nmomentum = 0.9\n";

Group divided(const char* model, uint32_t tensor, uint32_t world = 0) {
  Group group;
  group.model = model, group.tensor = tensor, group.world = world ? world : tensor;
  group.length = 8, group.optimizer = sgd, group.sequence = true;
  return group;
}
Group whole(Group group) {
  group.sequence = false;
  return group;
}

// The training has the numbers of one that divides no positions, but for the sums of norms' weights over positions.
void near_whole(const Group& group) {
  INFO(describe(group));
  degrees::near(whole(group), degrees::trained(whole(group)), group, degrees::trained(group));
}

const std::vector<Draw> draws = {
    {"none"},
    {"zero2", 65536, 1, true, 0, "every = 2"},
    {"zero3", 65536, 2, true, 0, "policy = 'full'"},
    {"zero3", 65536, 1, true, 0, "",
     "optimizer = 'host'\ngradients = 'host'\nparameters = 'host'\nactivations = 'host'\n"}};

// Losses of the first step: nothing was summed over positions yet.
std::vector<float> first_losses(const Group& group) {
  Group one = group;
  one.steps = 1;
  return numbers(degrees::trained(one), "losses");
}

}  // namespace

TEST_CASE("ranks that divide the positions between the maps train what ranks train that do not") {
  Group group = divided("llama", 2);
  group.accumulate = 2;
  near_whole(group);
  CHECK(first_losses(group) == first_losses(whole(group)));  // the same sums, in the same order
}

TEST_CASE("positions between the maps of other models, degrees and paths", "[.slow]") {
  for (const char* model :
       {"llama-tied", "llama-heads", "qwen2", "qwen3", "opt", "opt-still", "moe", "mamba", "mamba2", "moe-hybrid"}) {
    Group group = divided(model, 2);
    near_whole(group);
    CHECK(first_losses(group) == first_losses(whole(group)));
    degrees::near_undivided(group);
  }
  near_whole(divided("llama-heads", 4));
  Group group = divided("llama", 2, 4);
  group.context = 2, group.packed = true, group.z_loss = 0.01;
  near_whole(group);
  for (const char* more : {"", "dropout = 0.3\n", "dora = true\ndropout = 0.2\n"}) {
    group = divided("qwen2", 2);
    group.transforms = std::string("[[transforms]]\nplugin = 'lora'\nrank = 4\ntargets = ['all-linear']\n") + more;
    near_whole(group);
  }
}

TEST_CASE("divided positions have the same bits with every strategy, recomputation, tier and format", "[.slow]") {
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    Group group = divided("llama", 2, 4);
    group.precision = precision, group.accumulate = 2;
    all_equal(group, draws);
  }
  all_equal(divided("opt", 2, 4), draws);
}

TEST_CASE("a rank keeps its positions of residuals and norms, and sends what it sent") {
  const Group group = divided("llama", 2);
  const Planned mine = plan(group, {}), all = plan(whole(group), {});
  CHECK(mine.plans[1].parameters == all.plans[1].parameters);
  const auto transient = [](const Planned& planned) {
    uint64_t out = 0;
    for (const eng::Arena& arena : planned.plans[1].arenas) out += arena.transient;
    return out;
  };
  CHECK(transient(mine) < transient(all));
  const auto folds = [](const eng::Plan& plan) {
    size_t out = 0;
    for (const eng::Action& action : plan.program("train").segments[0].actions)
      out += plan.calls[action.call].op->id == std::string(ENG_OP_FOLD) &&
             plan.labels[action.label].phase != eng::Phase::norm;
    return out;
  };
  // One for the weight of each of 5 norms, beside those of the maps.
  CHECK(folds(mine.plans[1]) == folds(all.plans[1]) + 5);
}

TEST_CASE("positions that ranks do not divide are refused with the reason") {
  Group group = divided("llama", 2);
  group.length = 7;
  std::string text;
  try {
    plan(group, {});
  } catch (const eng::Error& e) {
    CHECK(e.exit() == eng::Exit::usage);
    text = std::string(e.what()) + "; " + e.help();
  }
  CHECK_THAT(text, Contains("2 ranks do not divide 7 positions") && Contains("train.sequence_length = 8"));
}

}  // namespace sequence_test
