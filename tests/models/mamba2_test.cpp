// SPDX-License-Identifier: Apache-2.0
// Mamba-2 against transformers (tools/goldens/mamba2.py): logits, losses, gradients, updates, and the directories that
// transformers wrote; presets, initial values, refusals, memory.
#include <catch2/catch.hpp>

#include "family_checks.hpp"

namespace mamba2_test {

using namespace models;

namespace {

const fs::path directories = models::goldens.parent_path() / "hf_mamba2";
const std::vector<Variant> variants = {{"mamba2", "one"}, {"mamba2", "groups"}, {"mamba2", "bias"}};

eng::Config config_of(const std::string& options, int64_t length = 8) {
  return eng::Config::parse("[data]\nplugin = 'text'\npaths = ['none']\n[model]\nplugin = 'mamba2'\n" + options +
                                "[train]\nmicro_batch = 1\nsteps = 1\nsequence_length = " + std::to_string(length) +
                                "\n",
                            "test.toml", ".", {}, schemas_of(models::registry()));
}

eng::Model model_of(const std::string& options, int64_t length = 8) {
  const eng::Config config = config_of(options, length);
  const auto table = models::registry().table<eng_model>(ENG_MODEL_KIND, "mamba2");
  eng::load_ops(models::registry());
  return eng::trace_model("mamba2", table, config.section("model"), 1, length, ENG_F32);
}

}  // namespace

TEST_CASE("mamba2: presets have the parameter counts of the published models") {
  const std::map<std::string, int64_t> counts = {{"mamba2-130m", 128989632},
                                                 {"mamba2-370m", 368346624},
                                                 {"mamba2-780m", 780161280},
                                                 {"mamba2-1.3b", 1343757312},
                                                 {"mamba2-2.7b", 2702599680}};
  std::vector<std::string> presets;
  for (const auto& [name, values] : models::registry().find(ENG_MODEL_KIND, "mamba2")->schema.presets)
    presets.push_back(name);
  check_presets(counts, presets, 1200000,
                [](const std::string& name) { return model_of("preset = '" + name + "'\n").parameter_count(); });
}

TEST_CASE("mamba2: logits, loss and every gradient are those of transformers") {
  check_goldens(variants);
}

TEST_CASE("mamba2: updates of AdamW follow torch, no decay on vectors") {
  check_updates(variants);
}

TEST_CASE("mamba2: another constant or weight is seen") {
  check_faults({{"mamba2", "bias", "time_step_limit", {0.2, 1.4}},
                {"mamba2", "bias", "time_step_limit", {0.3, 1.5}},
                {"mamba2", "bias", "layer_norm_epsilon", 1.2e-2}});
  Golden groups = read_golden("groups", "mamba2");
  groups.about["options"]["n_groups"] = 2, groups.about["options"]["state_size"] = 12;
  CHECK(error_of(groups) > limit);
  for (const char* name : {"A_log", "D", "dt_bias", "conv1d.weight", "norm.weight", "in_proj.bias"}) {
    Golden golden = read_golden("bias", "mamba2");
    golden.tensors.at("param.backbone.layers.1.mixer." + std::string(name)).data[0] += 0.1;
    INFO(name);
    CHECK(error_of(golden) > limit);
  }
}

TEST_CASE("mamba2: names, shapes and flags are those of its files") {
  const eng::Model model = model_of(
      "vocab_size = 11\nhidden_size = 16\nnum_hidden_layers = 2\nnum_heads = 4\nhead_dim = 8\nstate_size = 3\n"
      "n_groups = 2\nuse_bias = true\n");
  const std::string layer = "backbone.layers.1.";
  const std::map<std::string, std::vector<int64_t>> shapes = {{"backbone.embeddings.weight", {11, 16}},
                                                              {"backbone.norm_f.weight", {16}},
                                                              {"lm_head.weight", {11, 16}},
                                                              {layer + "norm.weight", {16}},
                                                              {layer + "mixer.in_proj.weight", {80, 16}},
                                                              {layer + "mixer.in_proj.bias", {80}},
                                                              {layer + "mixer.conv1d.weight", {44, 1, 4}},
                                                              {layer + "mixer.conv1d.bias", {44}},
                                                              {layer + "mixer.norm.weight", {32}},
                                                              {layer + "mixer.A_log", {4}},
                                                              {layer + "mixer.D", {4}},
                                                              {layer + "mixer.dt_bias", {4}},
                                                              {layer + "mixer.out_proj.weight", {16, 32}},
                                                              {layer + "mixer.out_proj.bias", {16}}};
  CHECK(model.params.size() == 3 + 2 * (shapes.size() - 3));
  for (const auto& p : model.params) {
    if (!shapes.count(p.name)) continue;
    INFO(p.name);
    CHECK(std::vector<int64_t>(p.desc.dims, p.desc.dims + p.desc.ndim) == shapes.at(p.name));
    const bool state = p.name.ends_with("A_log") || p.name.ends_with(".D") || p.name.ends_with("dt_bias");
    CHECK(((p.flags & ENG_PARAM_FP32) != 0) == state);
    CHECK(((p.flags & ENG_PARAM_NO_DECAY) != 0) == (p.desc.ndim == 1));
  }
}

TEST_CASE("mamba2: sizes that cannot be are refused with the key and what to change") {
  for (const auto& [options, text] : std::map<std::string, std::string>{
           {"num_heads = 64\n", "num_heads x head_dim is 4096, and expand x hidden_size is 8192; they must be equal"},
           {"n_groups = 3\n", "num_heads is 128; it must be a multiple of n_groups, 3"},
           {"time_step_min = 0.2\n", "time_step_max must not be below time_step_min"},
           {"time_step_limit = [1.0]\n", "time_step_limit has 1 numbers; give two"},
           {"time_step_limit = [1.0, 0.5]\n", "time_step_limit is 1 to 0.5; give two numbers from 0 on"},
           {"layer_norm_epsilon = 0.0\n", "layer_norm_epsilon must be above 0"}})
    CHECK_THAT(eng::test::refusal(eng::Exit::usage, [&, o = options] { model_of(o); }), Catch::Contains(text));
}

TEST_CASE("mamba2: what a layer keeps grows with the length alone, and not with its square") {
  const std::string sizes =
      "vocab_size = 64\nhidden_size = 32\nnum_hidden_layers = 2\nnum_heads = 4\nhead_dim = 16\nstate_size = 16\n"
      "n_groups = 1\n";
  const auto kept = [&](int64_t length) {
    const eng::Model model = model_of(sizes, length);
    const eng::Template& t = model.templates.at(1);
    std::map<eng::Id, int64_t> all;
    for (size_t n = t.forward; n < t.graph.nodes.size(); ++n)
      for (eng::Id id : t.graph.nodes[n].in)
        for (size_t f = 0; id && f < t.forward; ++f)
          if (std::count(t.graph.nodes[f].out.begin(), t.graph.nodes[f].out.end(), id))
            all[id] = eng::count(t.graph.value(id).desc);
    int64_t total = 0;
    for (const auto& [id, n] : all) total += n;
    return total;
  };
  // The gate, the columns of the convolution and dt, and y; of the norm the root.
  CHECK(kept(100) == 100 * (64 + (64 + 2 * 16 + 4) + 64 + 1));
  CHECK(kept(8192) == 4 * kept(2048));
  const auto peak = [&](int64_t length) {
    const eng::Config config = config_of(sizes, length);
    const eng::Setup setup = eng::make_setup(config, models::registry());
    uint64_t bytes = 0;
    for (const auto& arena : setup.plan.arenas) bytes += arena.persistent + arena.transient + arena.workspace;
    return static_cast<double>(bytes);
  };
  const double fixed = peak(64), one = peak(2048) - fixed, four = peak(8192) - fixed;
  CHECK(four < 4.2 * one);
  CHECK(four > 3.5 * one);
}

TEST_CASE("mamba2: directories of transformers give its losses", "[from]") {
  check_directories(directories, 3, {{"plain", "mamba2"}, {"groups", "mamba2"}, {"bias", "mamba2"}});
}

TEST_CASE("mamba2: keys of config.json that change the mathematics are refused", "[from]") {
  check_refused_keys(
      directories,
      {{"plain", "\"vocab_size\"", "\"norm_before_gate\": true, \"vocab_size\"",
        "`norm_before_gate` is not known here"},
       {"plain", "\"vocab_size\"", "\"num_local_experts\": 4, \"vocab_size\"", "`num_local_experts` is 4: experts"},
       {"plain", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu\"", "`hidden_act` must be one of"},
       {"plain", "\"conv_kernel\": 4", "\"conv_kernel\": 5", "`conv_kernel` must be"},
       {"plain", "Mamba2ForCausalLM", "Mamba2ForTokenClassification", "`architectures` is"}});
}

TEST_CASE("mamba2: an infinite limit of time steps is none, in each spelling", "[from]") {
  const double usual = loss_of(directories / "plain");
  for (const char* limit : {"[0.0, Infinity]", "[0, {\"__float__\": \"Infinity\"}]", "[0.0, 1e300]", "null"}) {
    const eng::test::Scratch scratch;
    const fs::path copied = scratch / "plain";
    fs::copy(directories / "plain", copied);
    auto json = nlohmann::json::parse(eng::test::read_file(copied / "config.json"));
    json.erase("time_step_limit");
    std::string text = json.dump();
    text.insert(1, std::string("\"time_step_limit\": ") + limit + ", ");
    eng::test::write_file(copied / "config.json", text);
    INFO(limit);
    CHECK(loss_of(copied) == usual);
  }
  const eng::test::Scratch scratch;
  const fs::path copied = scratch / "plain";
  fs::copy(directories / "plain", copied);
  auto json = nlohmann::json::parse(eng::test::read_file(copied / "config.json"));
  json["time_step_limit"] = {0.5, 0.6};
  eng::test::write_file(copied / "config.json", json.dump());
  CHECK(loss_of(copied) != usual);
}

}  // namespace mamba2_test
