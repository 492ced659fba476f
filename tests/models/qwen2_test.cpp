// SPDX-License-Identifier: Apache-2.0
// Qwen2, the second model of llama's file: its parameters, its mathematics and its directories against
// tools/goldens/qwen2.py. What it shares with llama is in llama_test.cpp and llama_golden_test.cpp.
#include <catch2/catch.hpp>
#include <set>

#include "family_checks.hpp"
#include "model_host.hpp"

namespace qwen2_test {

using namespace models;

namespace {

const fs::path directories = goldens.parent_path() / "hf_qwen2";

struct Qwen2 : Hosted {
  explicit Qwen2(const Values& given) : Hosted(llama_plugin(), "qwen2", given) {}
};

Values small(bool tied) {
  return {{"vocab_size", int64_t{50}},       {"hidden_size", int64_t{48}},        {"intermediate_size", int64_t{20}},
          {"num_hidden_layers", int64_t{2}}, {"num_attention_heads", int64_t{4}}, {"num_key_value_heads", int64_t{2}},
          {"tie_word_embeddings", tied}};
}

int64_t elements(const FakeBuild& b) {
  int64_t total = 0;
  for (const Param& p : b.params) {
    int64_t n = 1;
    for (int64_t d : p.dims) n *= d;
    total += n;
  }
  return total;
}

}  // namespace

TEST_CASE("qwen2: presets have the parameter counts of the published models") {
  const std::map<std::string, int64_t> expected = {
      {"tiny", 1072384}, {"qwen2.5-0.5b", 494032768}, {"qwen2.5-1.5b", 1543714304}, {"qwen2.5-7b", 7615616512}};
  std::set<std::string> seen;
  for (const std::string& name : llama_plugin().presets("qwen2")) {
    INFO(name);
    REQUIRE(expected.count(name) == 1);
    FakeBuild b;
    Qwen2(llama_plugin().preset("qwen2", name)).declare(b);
    CHECK(elements(b) == expected.at(name));
    seen.insert(name);
  }
  CHECK(seen.size() == expected.size());
}

TEST_CASE("qwen2: biases on q, k and v alone, after the matrices and before the norms") {
  const bool tied = GENERATE(false, true);
  FakeBuild b;
  Qwen2(small(tied)).declare(b);
  REQUIRE(b.blocks.size() == 4);
  std::vector<std::string> names;
  for (eng_id id : b.blocks[2].params) names.push_back(b.params.at(id - 1).name);
  std::vector<std::string> wanted;
  for (const char* name :
       {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.o_proj.weight",
        "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight", "self_attn.q_proj.bias",
        "self_attn.k_proj.bias", "self_attn.v_proj.bias", "input_layernorm.weight", "post_attention_layernorm.weight"})
    wanted.push_back("model.layers.1." + std::string(name));
  CHECK(names == wanted);
  CHECK(b.params.at(b.blocks[2].params[8] - 1).dims == std::vector<int64_t>{24});  // two heads of 12
  CHECK((b.blocks[3].params[0] == b.blocks[0].params[0]) == tied);
  CHECK(Qwen2(small(tied)).describe().max_length == 32768);
}

TEST_CASE("qwen2: logits, loss and every gradient are those of the reference") {
  check_goldens({{"qwen2", "untied"}, {"qwen2", "tied"}});
}

TEST_CASE("qwen2: planted faults are seen") {
  for (const char* map : {"q_proj", "k_proj", "v_proj"}) {
    Golden golden = read_golden("untied", "qwen2");
    for (double& b : golden.tensors.at("param.model.layers.1.self_attn." + std::string(map) + ".bias").data) b = 0.0;
    INFO("without the bias of " << map);
    CHECK(error_of(golden) > limit);
  }
  check_faults({{"qwen2", "untied", "rope_theta", 10000.0}, {"qwen2", "tied", "rms_norm_eps", 1e-3}});
}

TEST_CASE("qwen2: its directories give the losses of the reference", "[from]") {
  check_directories(directories, 2, {{"untied", "qwen2"}, {"tied", "qwen2"}});
  // A bias of o, as llama's attention_bias would have, is no part of the model.
  const eng::test::Scratch scratch;
  fs::copy(directories / "untied", scratch / "other");
  edit(scratch / "other" / "model.safetensors", "0.self_attn.q_proj.bias", "0.self_attn.o_proj.bias");
  CHECK_THAT(refused(scratch / "other"),
             Catch::Contains("model.layers.0.self_attn.q_proj.bias [16]: is missing") &&
                 Catch::Contains("model.layers.0.self_attn.o_proj.bias [16]: the model has no such tensor"));
}

}  // namespace qwen2_test
