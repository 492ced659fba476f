// SPDX-License-Identifier: Apache-2.0
// Layers that ranks divide: the numbers of one rank within rounding, and the same bits in every run of one degree.
#include <catch2/catch.hpp>

#include <cmath>

#include "all_equal.hpp"
#include "core/base/error.hpp"
#include "plugins.hpp"

namespace parallel_test {

using namespace equality;
using Catch::Contains;

namespace {

// Updates that follow gradients in proportion, so that rounding stays rounding.
constexpr const char* sgd = "plugin = 'sgd'\nlearning_rate = 0.1\nmomentum = 0.9\n";

// A path of rank 3, which no degree divides, beside every map.
const std::string lora = "[[transforms]]\nplugin = 'lora'\nalpha = 8.0\ntargets = ['all-linear']\n";

double largest(const std::vector<float>& values) {
  double out = 0;
  for (const float x : values) out = std::max(out, std::abs(double{x}));
  return out;
}

// The greatest difference of a tensor's values beside the greatest value of the tensor; of all tensors. What is 0 but
// for rounding, as the gradient of a key's bias without rotations is, counts beside the tensors of its role.
double distance(const Result& a, const Result& b) {
  REQUIRE(a.complaint == "");
  REQUIRE(b.complaint == "");
  REQUIRE(a.tensors.size() == b.tensors.size());
  const auto role = [](const std::string& name) { return name.substr(0, name.find(' ')); };
  std::map<std::string, double> sizes;
  for (const auto& [name, x] : a.tensors) sizes[role(name)] = std::max(sizes[role(name)], largest(x));
  double most = 0;
  for (const auto& [name, x] : a.tensors) {
    const std::vector<float>& y = numbers(b, name);
    REQUIRE(x.size() == y.size());
    double apart = 0;
    for (size_t k = 0; k < x.size(); ++k) apart = std::max(apart, std::abs(double{x[k]} - double{y[k]}));
    const double size = std::max(largest(x), 1e-3 * sizes[role(name)]);
    INFO(name << " " << apart << " of " << size);
    if (size > 0) most = std::max(most, apart / size);
    CHECK(apart <= 2e-5 * size);
  }
  return most;
}

Result trained_divided(const Group& group, const Draw& draw = {}) {
  return train(group, plan(group, draw), {11});
}

// Ranks with the same rows that each have the whole model.
Group undivided(Group group) {
  group.world /= group.tensor, group.tensor = 1;
  return group;
}

std::string refusal(const Group& group, const Draw& draw = {}) {
  try {
    plan(group, draw);
  } catch (const eng::Error& e) {
    CHECK(e.exit() == eng::Exit::usage);
    return e.what();
  }
  return "";
}

const std::vector<Draw> draws = {
    {"none"},
    {"zero1", 65536, 1, false},
    {"zero2", 65536, 1, true, 0, "every = 2"},
    {"zero3", 65536, 2, true, 0, "policy = 'full'"},
    {"two_level", 1, 1, true, 0, "blocks = 1"},
    {"zero3", 65536, 1, true, 0, "", "optimizer = 'host'\ngradients = 'host'\nparameters = 'host'\n"}};

}  // namespace

TEST_CASE("ranks that divide the layers train what one rank trains") {
  struct Case {
    const char* model;
    uint32_t world, tensor;
  };
  for (const Case& c : {Case{"llama", 2, 2},
                        {"llama-tied", 2, 2},
                        {"llama-heads", 4, 4},
                        {"qwen2", 2, 2},
                        {"opt", 2, 2},
                        {"qwen3", 2, 2},
                        {"moe", 2, 2},
                        {"mamba", 4, 4},
                        {"mamba2", 2, 2},
                        {"mamba2", 4, 4}}) {
    Group group;
    group.model = c.model, group.world = c.world, group.tensor = c.tensor;
    if (c.model == std::string("llama-tied")) group.z_loss = 0.01, group.packed = true;  // with loss weights
    group.optimizer = sgd, group.accumulate = 2, group.steps = 0;
    INFO(describe(group));
    // They begin with the same bits.
    CHECK(difference(trained_divided(undivided(group)), trained_divided(group)) == "");
    group.steps = 5;
    const Result one = trained_divided(undivided(group)), divided = trained_divided(group);
    CHECK(distance(one, divided) > 0);  // sums of other orders: nothing was compared with itself
  }
}

TEST_CASE("a divided model has the same bits with every strategy, recomputation, tier and schedule") {
  Group group;
  group.world = 4, group.tensor = 2, group.accumulate = 2, group.optimizer = sgd;
  const Result divided = all_equal(group, draws);
  CHECK(distance(trained_divided(undivided(group)), divided) > 0);
  group.optimizer = Group().optimizer, group.packed = true, group.reduce_per_step = true;
  all_equal(group, {draws[0], draws[3]});
  for (const char* model : {"moe", "mamba", "mamba2", "moe-hybrid"}) {
    group = Group(), group.world = 4, group.tensor = 2, group.model = model;
    all_equal(group, {draws[0], draws[3], draws[4]});
  }
}

TEST_CASE("16 bits and loss scales work on divided layers") {
  for (const char* precision : {"bf16", "fp16", "bf16_sr"}) {
    Group group;
    group.world = 4, group.tensor = 2, group.precision = precision, group.optimizer = sgd;
    INFO(describe(group));
    const Result divided = all_equal(group, {draws[0], draws[3]});
    if (precision == std::string("fp16"))
      CHECK(numbers(divided, "scales") == numbers(trained_divided(undivided(group)), "scales"));
    CHECK(numbers(divided, "losses")[0] ==
          Approx(numbers(trained_divided(undivided(group)), "losses")[0]).epsilon(0.01));
  }
}

TEST_CASE("low-rank paths beside divided maps train what they train beside whole ones") {
  struct Case {
    const char* model;
    uint32_t world, tensor;
    const char* options;
  };
  for (const Case& c : {Case{"llama", 2, 2, "rank = 3\n"},
                        {"llama-heads", 4, 4, "rank = 3\n"},
                        {"opt", 2, 2, "rank = 3\n"},
                        {"mamba", 2, 2, "rank = 3\n"},
                        {"mamba2", 2, 2, "rank = 3\ndora = true\n"},
                        {"qwen2", 2, 2, "rank = 3\ndropout = 0.3\n"},
                        {"qwen2", 2, 2, "rank = 3\ndora = true\n"},
                        {"llama-heads", 4, 4, "rank = 3\ndora = true\ndropout = 0.2\nfreeze = false\n"}}) {
    Group group;
    group.model = c.model, group.world = c.world, group.tensor = c.tensor;
    group.transforms = lora + c.options;
    group.optimizer = sgd, group.accumulate = 2, group.steps = 0;
    INFO(describe(group) << c.options);
    CHECK(difference(trained_divided(undivided(group)), trained_divided(group)) == "");
    group.steps = 5;
    const Result one = trained_divided(undivided(group)), divided = trained_divided(group);
    CHECK(distance(one, divided) > 0);
    // The paths were trained: every B began as zero.
    for (const auto& [name, values] : one.tensors)
      if (name.rfind("parameter", 0) == 0 && name.find("lora_B") != std::string::npos) CHECK(largest(values) > 0);
  }
  Group group;
  group.world = 4, group.tensor = 2, group.transforms = lora + "rank = 4\ndora = true\ndropout = 0.1\n";
  all_equal(group, draws);
}

TEST_CASE("each tensor counts once in the norm, and an overflow of one rank ends the step of all") {
  Group group;
  group.tensor = 2, group.grad_clip = 0;
  const double one = numbers(trained_divided(undivided(group)), "norms")[0],
               two = numbers(trained_divided(group), "norms")[0];
  CHECK(two == Approx(one).epsilon(1e-5));
  group.precision = "fp16\ninitial_scale_power = 30", group.steps = 4;
  CHECK(numbers(trained_divided(group), "scales") == numbers(trained_divided(undivided(group)), "scales"));
}

TEST_CASE("a rank holds its part of divided tensors only, and sends the sums of the layers") {
  Group group;
  group.tensor = 2;
  const Planned divided = plan(group, {}), whole = plan(undivided(group), {});
  const eng::Plan& a = divided.plans[1];
  CHECK(a.parameters == whole.plans[0].parameters);
  const eng::Tensor& down = *a.find("model.layers.0.mlp.down_proj.weight", "parameter");
  CHECK(down.desc.dims[0] == 64);
  CHECK(down.desc.dims[1] == 160);
  REQUIRE(down.ranges.size() == 64);  // the second half of each row
  CHECK(down.ranges[3].first == 3 * 160 + 80);
  CHECK(down.ranges[3].count == 80);
  const eng::Tensor& up = *a.find("model.layers.1.mlp.up_proj.weight", "parameter");
  REQUIRE(up.ranges.size() == 1);
  CHECK(up.ranges[0].first == 80 * 64);
  // A rank has half of the 48 rows of the vocabulary.
  const eng::Tensor& head = *a.find("lm_head.weight", "parameter");
  CHECK(head.desc.dims[0] == 48);
  REQUIRE(head.ranges.size() == 1);
  CHECK((head.ranges[0].first == 24 * 64 && head.ranges[0].count == 24 * 64));
  CHECK(a.find("model.embed_tokens.weight", "parameter")->ranges[0].count == 24 * 64);
  // Two sums in the forward and two in the backward of each layer, each sent once: 2 layers, (2, 6, 64) f32. One of
  // what the embedding looks up, and one of the gradient of what the head reads.
  uint64_t sums = 0;
  const eng::Segment& step = a.program("train").segments[0];
  for (const eng::Action& action : step.actions)
    sums +=
        a.calls[action.call].op->id == std::string("eng.fold/1") && a.labels[action.label].phase != eng::Phase::norm;
  CHECK(sums == 10);
}

TEST_CASE("layers that cannot be divided are refused with the reason") {
  Group group;
  group.world = 4, group.tensor = 4;
  CHECK_THAT(refusal(group), Contains("parallel.tensor = 4 does not divide the 2 heads"));
  group.world = 3, group.tensor = 2;
  CHECK_THAT(refusal(group), Contains("parallel.tensor = 2 does not divide 3 ranks"));
  group.world = 3, group.tensor = 3, group.model = "llama";
  CHECK_THAT(refusal(group), Contains("parallel.tensor = 3 does not divide"));
  group = Group(), group.tensor = 2;
  group.model = "hybrid";
  CHECK_THAT(refusal(group), Contains("parallel.tensor = 2 does not divide the 1 heads of rope"));
  group.model =
      "plugin = 'mamba2'\nhidden_size = 48\nnum_hidden_layers = 2\nnum_heads = 12\nhead_dim = 8\nstate_size = 3\n"
      "n_groups = 4\n";
  group.world = group.tensor = 3;
  CHECK_THAT(refusal(group), Contains("3 ranks neither divide the 4 groups of"));
  group.model = "mamba", group.world = group.tensor = 8, group.transforms = lora + "rank = 4\ndora = true\n";
  CHECK_THAT(refusal(group), Contains("parallel.tensor = 8 does not divide the 12 elements of"));
  group = Group(), group.tensor = 2;
  group.model = "llama", group.optimizer = "plugin = 'adamw8bit'\nlearning_rate = 1e-2\n";
  CHECK_THAT(refusal(group), Contains("whole or in blocks"));
  group.optimizer = Group().optimizer;
  group.transforms = lora + "rank = 4\n", group.precision = "bf16\nfrozen = 'int8'";
  CHECK_THAT(refusal(group), Contains("which precision.frozen packs"));
  group.precision = "fp32", group.transforms = "";
  CHECK_THAT(refusal(group, {.observe = true}), Contains("does not work with [[observers]]"));
}

}  // namespace parallel_test
