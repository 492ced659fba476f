// SPDX-License-Identifier: Apache-2.0
// Sizes of the presets, what a layer keeps for its backward, options that are refused.
#include <catch2/catch.hpp>

#include "../models/engine_run.hpp"
#include "core/base/error.hpp"

namespace moe_model_test {

using namespace models;
using Catch::Contains;

namespace {

eng::Model model_of(const std::string& name, const std::string& options) {
  const eng::Config config = eng::Config::parse(
      "[model]\nplugin = '" + name + "'\n" + options +
          "\n[data]\nplugin = 'text'\npaths = ['none']\n[train]\nmicro_batch = 2\nsequence_length = 8\nsteps = 1\n",
      "test.toml", ".", {}, schemas_of(registry()));
  return Setup::make_model(config, name);
}

}  // namespace

TEST_CASE("moe: presets have the parameter counts of the published models") {
  const std::map<std::string, std::map<std::string, int64_t>> expected = {
      {"mixtral", {{"mixtral-8x7b", 46702792704}, {"mixtral-8x22b", 140620634112}}},
      {"qwen2_moe", {{"qwen1.5-moe-a2.7b", 14315784192}, {"qwen2-57b-a14b", 57408658944}}},
      {"qwen3_moe", {{"qwen3-30b-a3b", 30532122624}, {"qwen3-235b-a22b", 235093634560}}},
      {"olmoe", {{"olmoe-1b-7b", 6919161856}}}};
  for (const auto& [family, presets] : expected) {
    CHECK(registry().find(ENG_MODEL_KIND, family)->schema.presets.size() == presets.size() + 1);
    CHECK(model_of(family, "preset = 'tiny'").parameter_count() < 2000000);
    for (const auto& [name, count] : presets) {
      INFO(name);
      CHECK(model_of(family, "preset = '" + name + "'").parameter_count() == count);
    }
  }
}

TEST_CASE("moe: a layer keeps the inputs of the gates and no gathered row") {
  const eng::Model model =
      model_of("olmoe",
               "hidden_size = 64\nintermediate_size = 16\nnum_hidden_layers = 1\nnum_attention_heads = 4\n"
               "num_experts = 6\nnum_experts_per_tok = 3\nvocab_size = 32");
  const eng::Template& layer = model.templates.at(1);
  std::set<eng::Id> read;
  for (size_t n = layer.forward; n < layer.graph.nodes.size(); ++n)
    for (eng::Id i : layer.graph.nodes[n].in) read.insert(i);
  size_t rows = 0;
  for (size_t n = 0; n < layer.forward; ++n)
    for (eng::Id o : layer.graph.nodes[n].out)
      if (const eng_desc& d = layer.graph.value(o).desc; d.ndim == 4 && read.count(o)) {
        ++rows;
        CHECK(d.dims[3] == 32);  // [gate | up]
      }
  CHECK(rows == 1);
}

TEST_CASE("moe: options that fit no model are refused with the key and what to change") {
  CHECK_THROWS_WITH(model_of("mixtral", "preset = 'tiny'\nnum_experts_per_tok = 5"),
                    Contains("num_experts_per_tok (5) must not be above num_local_experts (4); change one of them"));
  CHECK_THROWS_WITH(model_of("qwen3_moe", "preset = 'tiny'\nnum_local_experts = 4"), Contains("num_local_experts"));
  CHECK_THROWS_WITH(model_of("qwen3_moe", "preset = 'tiny'\nmlp_only_layers = [4]"),
                    Contains("mlp_only_layers holds 4; every number must be that of a layer, 0 to 3"));
  CHECK_THROWS_WITH(model_of("qwen2_moe", "preset = 'tiny'\ndecoder_sparse_step = 5"),
                    Contains("no layer has experts: decoder_sparse_step is 5, there are 4 layers"));
}

}  // namespace moe_model_test
