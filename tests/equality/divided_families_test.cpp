// SPDX-License-Identifier: Apache-2.0
// Layers that ranks divide, of every family of plugins/decoders and plugins/mamba: the numbers of one rank within
// rounding.
#include <catch2/catch.hpp>

#include <cmath>

#include "all_equal.hpp"
#include "degrees.hpp"
#include "plugins.hpp"

namespace divided_families_test {

using namespace equality;

namespace {

double largest(const std::vector<float>& values) {
  double out = 0;
  for (const float x : values) out = std::max(out, std::abs(double{x}));
  return out;
}

// The greatest difference of two runs, as a part of the greatest value of the same tensor, or of a thousandth of that
// of the tensors of its role.
double apart(const Result& a, const Result& b) {
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
    const double size = std::max(largest(x), 1e-3 * sizes[role(name)]);
    for (size_t k = 0; k < x.size() && size > 0; ++k)
      most = std::max(most, std::abs(double{x[k]} - double{y[k]}) / size);
  }
  return most;
}

Group of(const std::string& family, const std::string& more, uint32_t ranks) {
  Group group;
  group.model = fmt::format("plugin = '{}'\npreset = 'tiny'\nnum_hidden_layers = 2\n{}", family, more);
  group.world = ranks, group.tensor = ranks, group.accumulate = 2, group.steps = 3;
  group.optimizer = "plugin = 'sgd'\nlearning_rate = 0.1\nmomentum = 0.9\n";
  return group;
}

Result trained(const Group& group) {
  return train(group, plan(group, {}), {11});
}

}  // namespace

TEST_CASE("two ranks that divide the layers train what one rank trains, in every family of decoders") {
  const std::string window = "sliding_window = 4\n";
  for (const auto& [family, more] : std::vector<std::pair<std::string, std::string>>{{"gemma2", window},
                                                                                     {"gemma3", window},
                                                                                     {"gpt2", ""},
                                                                                     {"gpt_neox", ""},
                                                                                     {"granite", ""},
                                                                                     {"internlm2", ""},
                                                                                     {"minicpm", ""},
                                                                                     {"ministral", window},
                                                                                     {"mistral", window},
                                                                                     {"olmo2", ""},
                                                                                     {"phi3", ""},
                                                                                     {"qwen3", ""},
                                                                                     {"smollm3", ""}}) {
    INFO(family);
    const double difference = apart(trained(of(family, more, 1)), trained(of(family, more, 2)));
    CHECK(difference > 0);  // sums of other orders: nothing was compared with itself
    CHECK(difference < 2e-5);
  }
}

TEST_CASE("ranks that divide the mixers train what one rank trains, in Mamba-2 and every hybrid") {
  const std::string four =
      "hidden_size = 32\nintermediate_size = 24\nnum_attention_heads = 4\nnum_key_value_heads = 4\n"
      "mamba_n_heads = 8\nmamba_d_state = 8\n";
  struct Case {
    const char* family;
    std::string options;
    std::vector<uint32_t> degrees;
    int64_t length = 6;
  };
  const std::string heads = "hidden_size = 32\nnum_heads = 8\nhead_dim = 8\n";
  for (const Case& c :
       {// One group: its norm, B and C are of all ranks. Sums of squares of 12 positions are not of 8 equal parts.
        Case{"mamba2", heads + "state_size = 8\nn_groups = 1\n", {2, 4, 8}},
        {"mamba2", heads + "state_size = 4\nn_groups = 2\n", {4, 8}, 5},
        {"bamba", four + "attn_layer_indices = [1]\nmamba_n_groups = 4\nmamba_proj_bias = true\n", {2, 4}},
        {"granitemoehybrid",
         four + "shared_intermediate_size = 16\nlayer_types = ['mamba', 'attention']\nnum_local_experts = 4\n"
                "num_experts_per_tok = 2\nembedding_multiplier = 2.0\nresidual_multiplier = 0.5\n",
         {2, 4}},
        {"falcon_h1",
         four + "mamba_d_ssm = 64\nmamba_n_groups = 2\nssm_multipliers = [0.5, 0.7, 1.2, 0.9, 1.5]\n"
                "ssm_in_multiplier = 1.3\nssm_out_multiplier = 0.7\n",
         {2, 4}},
        {"falcon_h1", four + "mamba_rms_norm = true\nmamba_norm_before_gate = true\n", {2}},
        {"falcon_mamba", "hidden_size = 32\nstate_size = 4\ntime_step_rank = 4\n", {2, 4}}}) {
    Group group = of(c.family, c.options, 1);
    group.length = c.length;
    const Result whole = trained(group);
    for (const uint32_t degree : c.degrees) {
      INFO(c.family << " " << c.options << degree);
      group.world = group.tensor = degree;
      const double difference = apart(whole, trained(group));
      CHECK(difference > 0);
      CHECK(difference < 2e-5);
    }
  }
  for (const char* model : {"moe-hybrid", "moe-jamba", "moe-dense"}) {
    INFO(model);
    Group group = of("", "", 1);
    group.model = model;
    const Result whole = trained(group);
    group.world = group.tensor = 2;
    const double difference = apart(whole, trained(group));
    CHECK(difference > 0);
    CHECK(difference < 2e-5);
  }
}

TEST_CASE("ranks that share a group of heads of Mamba-2 divide sequences, too") {
  Group group = of("mamba2", "hidden_size = 32\nnum_heads = 4\nhead_dim = 16\nn_groups = 1\nstate_size = 4\n", 4);
  group.tensor = group.context = 2, group.length = 8, group.steps = 1;
  degrees::near_undivided(group);
}

TEST_CASE("ranks divide mixers of Mamba-2 and sequences at once, whatever the groups of heads", "[.slow]") {
  const std::string heads = "hidden_size = 32\nnum_heads = 8\nhead_dim = 8\n", one = heads + "n_groups = 1\n";
  struct Case {
    const char* family;
    std::string options;
    uint32_t tensor, context;
    int64_t length = 8;
  };
  for (const Case& c :
       {Case{"mamba2", heads + "state_size = 4\nn_groups = 2\n", 2, 2},
        {"mamba2", one + "state_size = 8\n", 2, 2},
        {"mamba2", heads + "state_size = 4\nn_groups = 2\n", 4, 2},
        // Sums of squares of 10 positions are not of 4 equal parts.
        {"mamba2", one + "state_size = 8\n", 4, 2, 10},
        // 2 columns of B and C for 4 ranks of a sequence.
        {"mamba2", one + "state_size = 2\n", 2, 4},
        {"granitemoehybrid",
         "hidden_size = 32\nintermediate_size = 24\nnum_attention_heads = 4\nnum_key_value_heads = 4\n"
         "mamba_n_heads = 8\nmamba_d_state = 8\nshared_intermediate_size = 16\nlayer_types = ['mamba', 'attention']\n"
         "num_local_experts = 4\nnum_experts_per_tok = 2\n",
         2, 2}}) {
    Group group = of(c.family, c.options, c.tensor * c.context);
    group.tensor = c.tensor, group.context = c.context, group.length = c.length, group.steps = 2;
    INFO(c.options << c.tensor << " x " << c.context);
    degrees::near_undivided(group);
    if (c.tensor * c.context > 4) continue;
    group.packed = std::string(c.family) == "mamba2", group.sequence = true;
    degrees::near_undivided(group);
  }
}

}  // namespace divided_families_test
