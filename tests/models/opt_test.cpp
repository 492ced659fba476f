// SPDX-License-Identifier: Apache-2.0
// The opt plugin: parameters, blocks, initial values and options. Its mathematics is in opt_golden_test.cpp.
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "engine/ops.h"
#include "engine_run.hpp"
#include "model_host.hpp"
#include "session/config/schemas.hpp"
#include "session/model/recompute.hpp"

using namespace models;

namespace {

int64_t opt_count(const FakeBuild& b) {
  int64_t total = 0;
  for (const Param& p : b.params) {
    int64_t n = 1;
    for (int64_t d : p.dims) n *= d;
    total += n;
  }
  return total;
}

// Small sizes for everything that is not about sizes.
Values small_opt(const Values& more = {}) {
  Values out = {{"vocab_size", int64_t{50}},
                {"hidden_size", int64_t{48}},
                {"ffn_dim", int64_t{20}},
                {"num_hidden_layers", int64_t{3}},
                {"num_attention_heads", int64_t{4}}};
  for (const auto& [key, value] : more) out[key] = value;
  return out;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

TEST_CASE("opt presets have the parameter counts of the published models") {
  const std::map<std::string, int64_t> expected = {{"tiny", 891904},     {"125m", 125239296},  {"350m", 331196416},
                                                   {"1.3b", 1315758080}, {"2.7b", 2651596800}, {"6.7b", 6658473984},
                                                   {"13b", 12853473280}, {"30b", 29974540288}, {"66b", 65719701504}};
  std::set<std::string> seen;
  for (const std::string& name : opt_plugin().presets("opt")) {
    INFO(name);
    REQUIRE(expected.count(name) == 1);
    FakeBuild b;
    Opt(opt_plugin().preset("opt", name)).declare(b);
    CHECK(opt_count(b) == expected.at(name));
    seen.insert(name);
  }
  CHECK(seen.size() == expected.size());
}

TEST_CASE("opt parameters have Hugging Face names and shapes") {
  for (const char* variant : {"pre", "post", "plain", "untied"}) {
    const Golden golden = read_golden(variant, "opt");
    const Run run(golden, "reference");
    INFO(variant);
    std::map<std::string, std::vector<int64_t>> ours, theirs;
    for (const eng::Parameter& p : run.setup.model.params)
      ours[p.name] = std::vector<int64_t>(p.desc.dims, p.desc.dims + p.desc.ndim);
    for (const auto& [name, tensor] : golden.tensors)
      if (name.rfind("param.", 0) == 0) theirs[name.substr(6)] = tensor.dims;
    CHECK(ours == theirs);
  }
}

TEST_CASE("opt blocks: one template per kind, matrices first, undecayed vectors last") {
  const bool tied = GENERATE(false, true);
  const bool biases = GENERATE(false, true);
  const bool affine = GENERATE(false, true);
  FakeBuild b;
  Opt(small_opt({{"tie_word_embeddings", tied}, {"enable_bias", biases}, {"layer_norm_elementwise_affine", affine}}))
      .declare(b);
  REQUIRE(b.blocks.size() == 5);
  CHECK(b.blocks[0].name == "embed");
  CHECK(b.blocks[2].name == "layers.1");
  CHECK(b.blocks[4].name == "head");
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
    CHECK(b.blocks[i].params.size() == 6u + (biases ? 6 : 0) + (affine ? 4 : 0));
  }
}

TEST_CASE("opt initialisation: Hugging Face's and the paper's") {
  FakeBuild hf, paper, chosen;
  Opt(small_opt()).declare(hf);
  Opt(small_opt({{"init", std::string("paper")}})).declare(paper);
  Opt(small_opt({{"init", std::string("paper")}, {"init_std", 0.01}})).declare(chosen);
  int smaller = 0;
  for (size_t i = 0; i < hf.params.size(); ++i) {
    const Param& p = hf.params[i];
    INFO(p.name);
    if (p.dims.size() == 1) {
      CHECK(p.init_op == ENG_OP_INIT_CONSTANT);
      CHECK(p.init.at("value") == (ends_with(p.name, "norm.weight") ? 1.0 : 0.0));
      continue;
    }
    const bool into_stream = ends_with(p.name, "out_proj.weight") || ends_with(p.name, "fc2.weight");
    const double factor = into_stream ? 1.0 / std::sqrt(6.0) : 1.0;
    CHECK(p.init_op == ENG_OP_INIT_NORMAL);
    CHECK(p.init.at("std") == 0.02);
    CHECK(paper.params[i].init.at("std") == Approx(0.006 * factor).epsilon(1e-12));
    CHECK(chosen.params[i].init.at("std") == Approx(0.01 * factor).epsilon(1e-12));
    smaller += into_stream;
  }
  CHECK(smaller == 6);
}

TEST_CASE("opt parameters have the statistics of the paper's initialisation") {
  Golden golden = read_golden("pre", "opt");
  golden.about["options"]["init"] = "paper";
  golden.about["options"]["hidden_size"] = 96;
  golden.about["options"]["ffn_dim"] = 200;
  const eng::Config config =
      eng::Config::parse(config_text(golden, "cpu"), "golden.toml", ".", {}, schemas_of(registry()));
  const Setup setup(config, "opt", "cpu", true);
  eng::Device device(registry(), "cpu", config.section("device"));
  eng::Executor executor(setup.plan, device, setup.kernels);
  executor.run("init");
  for (const eng::Tensor& tensor : setup.plan.tensors) {
    if (tensor.role != "parameter" || tensor.desc.ndim != 2) continue;
    std::vector<float> values(static_cast<size_t>(eng::count(tensor.desc)));
    executor.download(values.data(), tensor.whole());
    double sum = 0.0, squares = 0.0;
    for (double v : values) sum += v, squares += v * v;
    const double n = static_cast<double>(values.size());
    const bool into_stream = ends_with(tensor.name, "out_proj.weight") || ends_with(tensor.name, "fc2.weight");
    const double want = into_stream ? 0.003 : 0.006;  // two layers: 1 / sqrt(4)
    INFO(tensor.name);
    CHECK(std::abs(sum / n) < 5.0 * want / std::sqrt(n));
    CHECK(std::sqrt(squares / n) == Approx(want).epsilon(5.0 / std::sqrt(2.0 * n)));
  }
}

TEST_CASE("opt describes itself") {
  const eng_model_info info = Opt(opt_plugin().preset("opt", "2.7b")).describe();
  CHECK(info.vocabulary == 50272);
  CHECK(info.attention_width == 2560);
  CHECK(info.layers == 32);
  CHECK(info.max_length == 2048);
}

TEST_CASE("opt scales the query before the product, unless that changes nothing") {
  const auto ops_of = [](int64_t hidden) {
    const Opt model(small_opt({{"hidden_size", hidden}, {"dropout", 0.0}}));
    FakeBuild b;
    b.compute = false;
    model.declare(b);
    std::vector<eng_id> params(16);
    const eng_id h = b.add({{ENG_F32, 3, {1, 2, hidden}}, {}});
    eng_id out = 0;
    uint32_t n = 0;
    REQUIRE(model.table().trace(model.self(), &b, 1, params.data(), 16, &h, 1, &out, 1, &n, nullptr) == ENG_OK);
    std::pair<double, double> found{0.0, 0.0};  // the factor of the query, the scale of attention
    for (const Emitted& e : b.emitted) {
      if (e.op == ENG_OP_SCALE) found.first = e.attrs.at("factor").f;
      if (e.op == ENG_OP_ATTENTION) found.second = e.attrs.at("scale").f;
      CHECK(e.op != ENG_OP_DROPOUT);
    }
    return found;
  };
  CHECK(ops_of(4 * 16) == std::pair(0.0, 0.25));
  CHECK(ops_of(4 * 12) == std::pair(1.0 / std::sqrt(12.0), 1.0));
}

TEST_CASE("opt with relu: one op and its gradient, a bit more of each inner unit, the same dropout") {
  const auto model_of = [](const char* act) {
    Golden golden = read_golden("pre", "opt");
    golden.about["options"]["activation_function"] = act;
    golden.about["options"]["dropout"] = 0.1;
    golden.about["options"]["ffn_dim"] = 200;
    const eng::Config config =
        eng::Config::parse(config_text(golden, "cpu"), "golden.toml", ".", {}, schemas_of(registry()));
    return Setup(config, "opt", "cpu", true).model;
  };
  const eng::Model relu = model_of("relu"), gelu = model_of("gelu");
  const auto count = [](const eng::Model& model, const std::string& op) {
    const auto& nodes = model.templates.at(1).graph.nodes;
    return std::count_if(nodes.begin(), nodes.end(), [&](const eng::Node& node) { return op == node.op->id; });
  };
  CHECK(count(relu, ENG_OP_LINEAR_RELU) == 1);
  CHECK(count(relu, ENG_OP_MATMUL_RELU_GRAD) == 1);
  CHECK(count(relu, ENG_OP_ACTIVATION) + count(relu, ENG_OP_ACTIVATION_GRAD) == 0);
  CHECK(count(gelu, ENG_OP_LINEAR_RELU) == 0);
  CHECK(count(gelu, ENG_OP_ACTIVATION_GRAD) == 1);
  CHECK(count(gelu, ENG_OP_SUM_ROWS) == count(relu, ENG_OP_SUM_ROWS) + 1);
  // gelu keeps what it is of, relu what it gives and 32 bytes of a mask.
  const auto tokens = static_cast<uint64_t>(relu.micro_batch * relu.sequence_length);
  CHECK(eng::kept(relu).bytes == eng::kept(gelu).bytes + (relu.blocks.size() - 2) * tokens * 32);
  const auto sites = [](const eng::Model& model) {
    std::vector<int64_t> out;
    for (const eng::Node& node : model.templates.at(1).graph.nodes)
      if (node.op->random) out.push_back(node.attrs.i("site"));
    return out;
  };
  CHECK(sites(relu).size() == 4);
  CHECK(sites(relu) == sites(gelu));
}

TEST_CASE("impossible options of opt are refused with the key and what to change") {
  struct Case {
    Values options;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {{{"hidden_size", int64_t{50}}}, {"hidden_size (50)", "multiple of num_attention_heads (4)"}},
      {{{"vocab_size", int64_t{0}}}, {"vocab_size is 0", "at least 1"}},
      {{{"word_embed_proj_dim", int64_t{0}}}, {"word_embed_proj_dim is 0"}},
      {{{"activation_function", std::string("tanh")}}, {"activation_function 'tanh'", "relu"}},
      {{{"dropout", 1.0}}, {"dropout is 1", "below 1"}},
      {{{"dropout", std::nan("")}}, {"dropout", "finite"}},
      {{{"attention_dropout", 0.1}}, {"attention_dropout is 0.1", "not supported", "set it to 0"}},
      {{{"layerdrop", 0.1}}, {"layerdrop is 0.1", "set it to 0"}},
      {{{"init", std::string("zero")}}, {"init 'zero'", "hf or paper"}},
      {{{"init_std", -1.0}}, {"init_std is -1"}},
  };
  for (const Case& c : cases) {
    const FakeOptions options(opt_plugin(), "opt", small_opt(c.options));
    int untouched = 0;
    void* self = &untouched;
    ErrorText error;
    INFO(c.words[0]);
    CHECK(opt_plugin().table<eng_model>(ENG_MODEL_KIND, "opt").create(&options, &self, &error) == ENG_INVALID);
    CHECK(self == &untouched);
    for (const std::string& word : c.words) CHECK_THAT(error.text, Catch::Contains(word));
  }
}
