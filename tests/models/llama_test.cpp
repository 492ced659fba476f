// SPDX-License-Identifier: Apache-2.0
// The llama plugin: parameters, blocks and options. Its mathematics is in llama_golden_test.cpp.
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "engine/ops.h"
#include "model_host.hpp"

using namespace models;

namespace {

int64_t count(const FakeBuild& b) {
  int64_t total = 0;
  for (const Param& p : b.params) {
    int64_t n = 1;
    for (int64_t d : p.dims) n *= d;
    total += n;
  }
  return total;
}

// Small sizes for everything that is not about sizes.
Values small(const Values& more = {}) {
  Values out = {{"vocab_size", int64_t{50}},         {"hidden_size", int64_t{48}},
                {"intermediate_size", int64_t{20}},  {"num_hidden_layers", int64_t{3}},
                {"num_attention_heads", int64_t{4}}, {"num_key_value_heads", int64_t{2}}};
  for (const auto& [key, value] : more) out[key] = value;
  return out;
}

}  // namespace

TEST_CASE("presets have the parameter counts of the published models") {
  const std::map<std::string, int64_t> expected = {{"tiny", 1070464},           {"bench", 58073600},
                                                   {"160m", 162417408},         {"tinyllama", 1100048384},
                                                   {"7b", 6738415616},          {"13b", 13015864320},
                                                   {"30b", 32528943616},        {"llama-2-70b", 68976648192},
                                                   {"llama-3-8b", 8030261248},  {"llama-3.2-1b", 1235814400},
                                                   {"llama-3.2-3b", 3212749824}};
  const PluginFile& plugin = llama_plugin();
  std::set<std::string> seen;
  for (const std::string& name : plugin.presets("llama")) {
    INFO(name);
    REQUIRE(expected.count(name) == 1);
    FakeBuild b;
    Llama(plugin.preset("llama", name)).declare(b);
    CHECK(count(b) == expected.at(name));
    seen.insert(name);
  }
  CHECK(seen.size() == expected.size());
}

TEST_CASE("a preset's values can be overridden and the count follows") {
  Values values = llama_plugin().preset("llama", "bench");
  values["num_hidden_layers"] = int64_t{9};
  FakeBuild b;
  Llama(values).declare(b);
  CHECK(count(b) == 58073600 + 3163136);
}

TEST_CASE("blocks: one template per kind, matrices first, undecayed vectors last") {
  const bool tied = GENERATE(false, true);
  const bool biases = GENERATE(false, true);
  FakeBuild b;
  Llama(small({{"tie_word_embeddings", tied}, {"attention_bias", biases}, {"mlp_bias", biases}})).declare(b);
  REQUIRE(b.blocks.size() == 5);
  CHECK(b.blocks[0].name == "embed");
  CHECK(b.blocks[2].name == "layers.1");
  CHECK(b.blocks[4].name == "head");
  CHECK(b.blocks[0].tmpl == 0);
  CHECK(b.blocks[4].tmpl == 2);
  CHECK((b.blocks[4].params[0] == b.blocks[0].params[0]) == tied);
  for (const Block& block : b.blocks) {
    bool vectors = false;
    for (eng_id id : block.params) {
      const Param& p = b.params.at(id - 1);
      const bool undecayed = p.flags & ENG_PARAM_NO_DECAY;
      CHECK(undecayed == (p.dims.size() == 1));
      CHECK_FALSE((vectors && !undecayed));
      vectors = undecayed;
    }
  }
  for (size_t i = 1; i <= 3; ++i) {
    CHECK(b.blocks[i].tmpl == 1);
    REQUIRE(b.blocks[i].params.size() == (biases ? 16 : 9));
    for (size_t k = 0; k < b.blocks[i].params.size(); ++k)
      CHECK(b.params[b.blocks[i].params[k] - 1].dims == b.params[b.blocks[1].params[k] - 1].dims);
  }
  std::set<std::string> names;
  for (const Param& p : b.params) names.insert(p.name);
  CHECK(names.size() == b.params.size());
}

TEST_CASE("initialisation: normal matrices, zero biases, unit norms, optional depth scale") {
  FakeBuild plain, scaled;
  const Values options = small({{"attention_bias", true}, {"initializer_range", 0.03}});
  Values with_depth = options;
  with_depth["init_depth_scale"] = true;
  Llama(options).declare(plain);
  Llama(with_depth).declare(scaled);
  REQUIRE(plain.params.size() == scaled.params.size());
  int smaller = 0;
  for (size_t i = 0; i < plain.params.size(); ++i) {
    const Param& p = plain.params[i];
    INFO(p.name);
    if (p.dims.size() == 1) {
      CHECK(p.init_op == ENG_OP_INIT_CONSTANT);
      CHECK(p.init.at("value") == (p.name.find("norm.weight") != std::string::npos ? 1.0 : 0.0));
      continue;
    }
    CHECK(p.init_op == ENG_OP_INIT_NORMAL);
    CHECK(p.init.at("mean") == 0.0);
    CHECK(p.init.at("std") == 0.03);
    const bool into_stream =
        p.name.find("o_proj") != std::string::npos || p.name.find("down_proj") != std::string::npos;
    CHECK(scaled.params[i].init.at("std") == Approx(into_stream ? 0.03 / std::sqrt(6.0) : 0.03).epsilon(1e-12));
    smaller += into_stream;
  }
  CHECK(smaller == 6);
}

TEST_CASE("describe: what the engine needs to know") {
  const eng_model_info info = Llama(llama_plugin().preset("llama", "llama-3.2-3b")).describe();
  CHECK(info.vocabulary == 128256);
  CHECK(info.attention_width == 24 * 128);
  CHECK(info.layers == 28);
  CHECK(info.max_length == 131072);
  CHECK(info.struct_size == sizeof(eng_model_info));
}

TEST_CASE("describe writes no more than an older host has room for") {
  const Llama model(small());
  struct {
    eng_model_info info;
  } host{};
  host.info.struct_size = offsetof(eng_model_info, max_length);
  host.info.max_length = -7;
  REQUIRE(model.table().describe(model.self(), &host.info, nullptr) == ENG_OK);
  CHECK(host.info.layers == 3);
  CHECK(host.info.max_length == -7);
}

TEST_CASE("impossible options are refused with the key and what to change") {
  struct Case {
    Values options;
    std::vector<std::string> words;
  };
  const std::vector<double> four(4, 1.0), six(6, 1.0);
  const Case cases[] = {
      {{{"hidden_size", int64_t{50}}}, {"hidden_size (50)", "multiple of num_attention_heads (4)"}},
      {{{"num_key_value_heads", int64_t{3}}}, {"num_attention_heads (4)", "num_key_value_heads (3)"}},
      {{{"hidden_size", int64_t{44}}}, {"is 11", "even", "set head_dim"}},
      {{{"head_dim", int64_t{7}}}, {"head_dim is 7", "even", "change head_dim"}},
      {{{"vocab_size", int64_t{0}}}, {"vocab_size is 0", "at least 1"}},
      {{{"hidden_act", std::string("tanh")}}, {"hidden_act 'tanh'", "silu"}},
      {{{"rope_type", std::string("su")}}, {"rope_type 'su'", "longrope"}},
      {{{"rope_theta", 0.5}}, {"rope_theta is 0.5", "above 1"}},
      {{{"rope_theta", std::nan("")}}, {"rope_theta", "finite"}},
      {{{"rms_norm_eps", 0.0}}, {"rms_norm_eps is 0", "above 0"}},
      {{{"rope_factor", 8.0}}, {"rope_factor has no effect without rope_type"}},
      {{{"rope_type", std::string("linear")}}, {"'linear' needs rope_factor", "add it"}},
      {{{"rope_type", std::string("dynamic")}}, {"'dynamic' needs rope_factor"}},
      {{{"rope_type", std::string("dynamic")}, {"rope_factor", 2.0}, {"head_dim", int64_t{2}}},
       {"head_dim", "at least 4"}},
      {{{"rope_type", std::string("yarn")}}, {"'yarn' needs rope_factor"}},
      {{{"rope_type", std::string("yarn")}, {"rope_factor", 2.0}, {"rope_beta_fast", 0.5}}, {"rope_beta_fast (0.5)"}},
      {{{"rope_type", std::string("longrope")}}, {"rope_short_factor has 0 numbers", "needs 6"}},
      {{{"rope_type", std::string("longrope")}, {"rope_short_factor", six}, {"rope_long_factor", four}},
       {"rope_long_factor has 4 numbers"}},
      {{{"rope_type", std::string("longrope")},
        {"rope_short_factor", six},
        {"rope_long_factor", std::vector<double>(6)}},
       {"rope_long_factor holds 0"}},
      {{{"rope_type", std::string("llama3")}, {"rope_factor", 8.0}}, {"'llama3' needs rope_low_freq_factor"}},
      {{{"rope_type", std::string("llama3")},
        {"rope_factor", 8.0},
        {"rope_low_freq_factor", 4.0},
        {"rope_high_freq_factor", 4.0}},
       {"rope_high_freq_factor (4)", "above rope_low_freq_factor (4)"}},
  };
  for (const Case& c : cases) {
    const FakeOptions options(llama_plugin(), "llama", small(c.options));
    const eng_model& table = llama_plugin().table<eng_model>(ENG_MODEL_KIND, "llama");
    int untouched = 0;
    void* self = &untouched;
    ErrorText error;
    INFO(c.words[0]);
    CHECK(table.create(&options, &self, &error) == ENG_INVALID);
    CHECK(self == &untouched);
    for (const std::string& word : c.words) CHECK_THAT(error.text, Catch::Contains(word));
    CHECK(table.create(&options, &self, nullptr) == ENG_INVALID);
  }
}

TEST_CASE("a layer's ops come in one order, whatever order a compiler evaluates arguments in") {
  const Llama model(small());
  FakeBuild b;
  b.compute = false;
  const eng_id stream = b.add({{ENG_F32, 3, {2, 6, 48}}, {}});
  std::vector<eng_id> params;
  for (eng_id id = 101; id < 110; ++id) params.push_back(id);  // q k v o gate up down, two norms
  eng_id out[1] = {0};
  uint32_t n = 0;
  REQUIRE(model.table().trace(model.self(), &b, 1, params.data(), 9, &stream, 1, out, 1, &n, nullptr) == ENG_OK);
  std::vector<std::string> order;
  for (const Emitted& made : b.emitted)
    order.push_back(made.op == ENG_OP_LINEAR ? std::to_string(made.in[1]) : made.op);
  // The order of `up` and `gate` is that in which their gradients are summed: another one gives other losses.
  CHECK(order == std::vector<std::string>{ENG_OP_RMS_NORM, "101", ENG_OP_ROPE, "102", ENG_OP_ROPE, "103",
                                          ENG_OP_ATTENTION, "104", ENG_OP_RMS_NORM, "106", "105", ENG_OP_GATED, "107",
                                          ENG_OP_ADD});
}

TEST_CASE("tracing refuses what does not fit and passes on the builder's first error") {
  const Llama model(small());
  FakeBuild b;
  ErrorText error;
  eng_id params[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, in[1] = {1}, out[1] = {0};
  uint32_t n = 77;
  const auto trace = model.table().trace;
  CHECK(trace(model.self(), &b, 3, params, 9, in, 1, out, 1, &n, &error) == ENG_INVALID);
  CHECK_THAT(error.text, Catch::Contains("no template 3"));
  CHECK(trace(model.self(), &b, 1, params, 8, in, 1, out, 1, &n, &error) == ENG_INVALID);
  CHECK_THAT(error.text, Catch::Contains("takes 9 parameters and 1 inputs, not 8 and 1"));
  CHECK(trace(model.self(), &b, 0, params, 1, in, 0, out, 0, &n, &error) == ENG_OUT_OF_RANGE);
  CHECK(trace(model.self(), &b, 1, params, 9, in, 1, out, 1, &n, &error) == ENG_INVALID);
  CHECK_THAT(error.text, Catch::Contains("unknown value"));
  CHECK(out[0] == 0);
  CHECK(n == 77);
}
