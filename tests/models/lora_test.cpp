// SPDX-License-Identifier: Apache-2.0
// The transform `lora`, also with `dora`, beside PEFT: its adapters are read, and train to its losses.
#include "from.hpp"

using namespace models;

namespace {

const fs::path all = goldens.parent_path(), lora = all / "lora", dora = all / "dora", experts = all / "lora_experts",
               gpt2 = all / "lora_gpt2", mamba = all / "lora_mamba";

// The model of a golden.
fs::path base(const nlohmann::json& golden) {
  return all / golden.value("base", "hf/single");
}

struct Adapted {
  eng::Config config;
  eng::Setup setup;
  eng::Device device;
  eng::Executor executor;

  // From the weights of the golden's model and an adapter.
  Adapted(const nlohmann::json& golden, const fs::path& adapter, const std::string& keys)
      : config(config_from(base(golden), text(golden, adapter, keys))),
        setup(eng::make_setup(config, plugins())),
        device(plugins(), "cpu", config.section("device")),
        executor(setup.plan, device, *setup.kernels) {
    executor.run("init");
    const eng::Fill fill = [&](const eng::TensorSpec& t, uint64_t first, uint64_t n, const void* data) {
      executor.upload(setup.plan.find(t.name, t.role)->whole(), first * 4, data, n * 4);
    };
    eng::weights_of(base(golden), config, plugins())(eng::parameters(setup.plan), fill, {});
    executor.run("publish");
    const int64_t counters[ENG_C_COUNT] = {};
    executor.upload(setup.plan.counters, counters);
    std::vector<float> table;
    for (int64_t k = 1; k <= config.section("train").integer("steps"); ++k) {
      table.push_back(golden["training"]["learning_rate"].get<float>());
      for (float x : setup.optimizer.scalars(static_cast<uint64_t>(k))) table.push_back(x);
    }
    executor.upload(setup.plan.table, table.data());
  }

  static std::string text(const nlohmann::json& golden, const fs::path& adapter, const std::string& keys) {
    const nlohmann::json& training = golden["training"];
    const bool experts = golden.value("base", "").find("moe") != std::string::npos;
    const std::string terms = experts ? "output_router_logits = false\n" : "";
    std::string out = terms + "adapter = '" + adapter.string() + "'\n[[transforms]]\nplugin = 'lora'\n" + keys;
    out += "[optimizer]\nplugin = 'adamw'\n";
    for (const char* key : {"learning_rate", "beta1", "beta2", "eps", "weight_decay"})
      out += std::string(key) + " = " + training[key].dump() + "\n";
    return out;  // grad_clip is the default
  }

  // The mean loss of batch k of the golden, by one of the programs.
  double loss(const nlohmann::json& golden, size_t k, const char* program) {
    const std::vector<int32_t> tokens = golden["tokens"][k], labels = golden["labels"][k];
    const auto valid = std::count_if(labels.begin(), labels.end(), [](int32_t label) { return label >= 0; });
    const float inputs[8] = {1.0f / static_cast<float>(valid)};
    executor.upload(setup.plan.field("tokens"), tokens.data());
    executor.upload(setup.plan.field("labels"), labels.data());
    executor.upload(setup.plan.inputs, inputs);
    executor.run(program);
    float sum = 0;
    executor.download(&sum, setup.plan.losses, 0, sizeof sum);
    return static_cast<double>(sum) / static_cast<double>(valid);
  }
};

const std::string fitting =
    "targets = ['all-linear']\nrank = 4\nranks = ['*.down_proj=2']\nalpha = 6.0\nrslora = true\n";

const std::string fitting_dora = fitting + "dora = true\n";

const std::string fitting_experts =
    "targets = ['*.self_attn.*_proj', '*.experts.*_proj']\nrank = 4\nranks = ['*.down_proj=2']\nalpha = 6.0\nrslora = "
    "true\n";

const std::string fitting_mamba =
    "targets = ['all-linear']\nrank = 4\nranks = ['*.dt_proj=1']\nalpha = 6.0\nrslora = true\n";

const std::string fitting_gpt2 =
    "targets = ['all-linear']\nrank = 4\nranks = ['*.c_fc=2']\nalpha = 6.0\nrslora = true\n";

nlohmann::json golden(const fs::path& of = lora) {
  return nlohmann::json::parse(std::ifstream(of / (of.filename().string() + ".json")));
}

// The golden's training: the largest difference of a loss, and the largest relative one of a gradient norm.
struct Deviation {
  double loss = 0, norm = 0;
};

Deviation deviation(const fs::path& adapter, const std::string& keys) {
  const nlohmann::json about = golden(adapter.parent_path());
  Adapted run(about, adapter, keys);
  Deviation worst;
  for (size_t k = 0; k < about["losses"].size(); ++k) {
    worst.loss = std::max(worst.loss, std::abs(run.loss(about, k, "train") - about["losses"][k].get<double>()));
    float norm = 0;
    run.executor.download(&norm, run.setup.plan.scalars, ENG_S_NORM * sizeof(float), sizeof norm);
    worst.norm = std::max(worst.norm, std::abs(double(norm) / about["grad_norms"][k].get<double>() - 1.0));
  }
  return worst;
}

}  // namespace

// mamba: not by PEFT, which refuses two of its four maps, but by transformers with the weights W + scale B A.
TEST_CASE("lora: 20 steps from an adapter of PEFT have its losses", "[lora]") {
  const auto [of, keys] = GENERATE(table<fs::path, std::string>(
      {{lora, fitting}, {dora, fitting_dora}, {experts, fitting_experts}, {mamba, fitting_mamba}}));
  CAPTURE(of);
  const Deviation ours = deviation(of / "start", keys);
  CHECK(ours.loss < 2e-5);
  CHECK(ours.norm < 2e-4);
  CHECK(deviation(of / "trained", keys).loss > 1e-3);  // another start is seen
}

TEST_CASE("lora: an adapter that PEFT trained has its loss", "[lora]") {
  const auto [of, keys] =
      GENERATE(table<fs::path, std::string>({{lora, fitting},
                                             {dora, fitting_dora},
                                             {experts, fitting_experts},
                                             {mamba, fitting_mamba},
                                             {gpt2, fitting_gpt2},  // transposed maps, and q, k and v in one
                                             {dora, fitting_dora + "dropout = 0.3\n"}}));  // eval drops nothing
  CAPTURE(of, keys);
  const nlohmann::json about = golden(of);
  Adapted run(about, of / "trained", keys);
  CHECK(run.loss(about, 0, "eval") == Approx(about["trained_loss"].get<double>()).epsilon(1e-5));
}

TEST_CASE("lora: an adapter that does not fit the transform is refused", "[lora]") {
  const nlohmann::json about = golden();
  const auto refused = [&](const fs::path& adapter, const std::string& keys) {
    return eng::test::refusal(eng::Exit::checkpoint, [&] { Adapted(about, adapter, keys); });
  };
  const std::string all = "targets = ['all-linear']\nranks = ['*.down_proj=2']\n";
  CHECK_THAT(refused(lora / "start", all + "rank = 4\nalpha = 6.0\n"),
             Catch::Contains("scaled by 3 there, by 1.5 here"));
  CHECK_THAT(refused(lora / "start", all + "rank = 8\nalpha = 6.0\nrslora = true\n"),
             Catch::Contains("k_proj.lora_A.weight: [4, 16], it must be [8, 16]"));
  CHECK_THAT(refused(lora / "start", "targets = ['*.q_proj']\nrank = 4\nalpha = 6.0\nrslora = true\n"),
             Catch::Contains("down_proj.lora_A.weight: unexpected"));
  const std::string some = "targets = ['*.attn.q', '*.c_proj', '*.c_fc']\nranks = ['*.c_fc=2']\n";
  CHECK_THAT(eng::test::refusal(
                 eng::Exit::checkpoint,
                 [&] { Adapted(golden(gpt2), gpt2 / "start", some + "rank = 4\nalpha = 6.0\nrslora = true\n"); }),
             Catch::Contains("h.0.attn.c_attn: it is several maps here, which must all have a path"));
  const eng::test::Scratch scratch;
  fs::copy(lora / "start", scratch / "other");
  edit(scratch / "other" / "adapter_config.json", "\"use_bdlora\": null", "\"use_bdlora\": true");
  CHECK_THAT(eng::test::refusal(eng::Exit::usage, [&] { Adapted(about, scratch / "other", fitting); }),
             Catch::Contains("use_bdlora is not supported"));
  edit(scratch / "other" / "adapter_config.json", "\"use_bdlora\": true", "\"use_bdlora\": null");
  edit(scratch / "other" / "adapter_config.json", "\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q.proj\": 12}");
  CHECK_THAT(refused(scratch / "other", fitting), Catch::Contains("q_proj: scaled by 6 there, by 3 here"));
  edit(scratch / "other" / "adapter_config.json", "\"use_rslora\": true", "\"use_rslora\": \"true\"");
  CHECK_THAT(refused(scratch / "other", fitting), Catch::Contains("`use_rslora` is neither true nor false"));
  CHECK_THAT(refused(dora / "start", fitting), Catch::Contains("q_proj: with use_dora there, without dora here") &&
                                                   Catch::Contains("q_proj.lora_magnitude_vector: unexpected"));
  CHECK_THAT(refused(lora / "start", fitting_dora),
             Catch::Contains("q_proj: without use_dora there, with dora = true here") &&
                 Catch::Contains("q_proj.lora_magnitude_vector: missing"));
}

TEST_CASE("lora: stacked experts take no dropout and no DoRA, and an adapter without them does not fit", "[lora]") {
  const nlohmann::json about = golden(experts);
  for (const auto& [more, told] : {std::pair("dropout = 0.1\n", "PEFT has no dropout; set dropout = 0"),
                                   std::pair("dora = true\n", "PEFT has no DoRA; set dora = false")})
    CHECK_THAT(
        eng::test::refusal(eng::Exit::usage, [&, m = more] { Adapted(about, experts / "start", fitting_experts + m); }),
        Catch::Contains(told) && Catch::Contains("mlp.experts.gate_up_proj.weight is a stack of experts"));
  const std::string attention = "targets = ['*.self_attn.*_proj']\nrank = 4\nalpha = 6.0\nrslora = true\n";
  CHECK_THAT(eng::test::refusal(eng::Exit::checkpoint, [&] { Adapted(about, experts / "start", attention); }),
             Catch::Contains("mlp.experts.base_layer.lora_A.weight: unexpected"));
}
