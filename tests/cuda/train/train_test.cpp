// SPDX-License-Identifier: Apache-2.0
// Whole runs of `engine` on the emulated kernels of the cuda device, beside the cpu device.
#include <algorithm>
#include <set>

#include "tests/cuda/train/analysis.hpp"
#include "tests/cuda/train/answers.hpp"

using namespace cli;

namespace {

Args with(Args words, const Args& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A very small model of another kind, or another optimizer.
const Args mamba = {"model.plugin=mamba",       "model.state_size=5", "--unset", "model.intermediate_size", "--unset",
                    "model.num_attention_heads"};
const Args moe = {"model.plugin=qwen3_moe",
                  "model.head_dim=8",
                  "model.num_experts=3",
                  "model.num_experts_per_tok=2",
                  "model.moe_intermediate_size=24",
                  "model.output_router_logits=true",
                  "--unset",
                  "model.intermediate_size"};
// A hybrid of mamba2 and attention; attention and experts, one of every token.
const Args mamba2 = {"model.plugin=bamba", "model.attn_layer_indices=[1]", "model.mamba_n_heads=4",
                     "model.mamba_d_state=5", "model.mamba_n_groups=2"};
const Args qwen2_moe = {"model.plugin=qwen2_moe",
                        "model.num_experts=3",
                        "model.moe_intermediate_size=24",
                        "model.shared_expert_intermediate_size=20",
                        "--unset",
                        "model.intermediate_size"};
const Args muon = {"optimizer.plugin=muon"};
const Args adamw8bit = {"optimizer.plugin=adamw8bit", "optimizer.min_8bit_size=0"};
const Args lora = {"adapter.plugin=lora", "adapter.targets=[\"all-linear\"]", "adapter.rank=2"};

// The ids of the plugins that a run loaded. Its record also says that the device was none.
std::set<std::string> plugins_of(const fs::path& run) {
  std::set<std::string> ids;
  const Json record = Json::parse(read(run / "run.json")), device = record.at("device");
  CHECK((device.at("plugin") == "cuda") == has(device.at("name").get<std::string>(), "emulated CUDA threads (CPU)"));
  for (const Json& one : record.at("plugins")) ids.insert(one.at("id").get<std::string>());
  return ids;
}

}  // namespace

TEST_CASE("emulated cuda: a step has the loss of the cpu device") {
  const Args model = GENERATE(Args{}, mamba, mamba2, moe, qwen2_moe, with(lora, {"precision.frozen=nf4"}));
  Scratch scratch;
  scratch.config();
  for (const std::string device : {"cpu", "cuda"}) {
    const Result result = engine(scratch, with({"--plugin-path", fs::path(EMULATED).parent_path().string(), "run",
                                                "config.toml", "train.steps=1", "train.eval_every=0", "--unset",
                                                "device.threads", "device.plugin=" + device, "--out", device},
                                               model));
    INFO(result.err);
    REQUIRE(result.exit == 0);
    // Kernels of another file are looked for on their device only, and only where its own file has none. Files are
    // asked in the order of their names.
    const bool scans = model == mamba || model == mamba2, routes = model == moe || model == qwen2_moe;
    if (!routes) CHECK(plugins_of(scratch / device).count("eng.mamba-cuda") == (device == "cuda" && scans));
    CHECK(plugins_of(scratch / device).count("eng.moe-cuda") == (device == "cuda" && routes));
    CHECK(plugins_of(scratch / device).count("eng.optim-cuda") == 0);
  }
  CHECK(column(scratch / "cuda", "loss")[0] == Approx(column(scratch / "cpu", "loss")[0]).epsilon(1e-4));
}

TEST_CASE("emulated cuda: an analysis of curvature measures what one on the cpu device does", "[.slow]") {
  Scratch scratch;
  scratch.config();
  write_opt(scratch);
  const auto analysed = [&](const std::string& device, const std::string& out) {
    const Result result =
        engine(scratch, with({"--plugin-path", fs::path(EMULATED).parent_path().string()}, analysis(device, out)));
    INFO(result.err);
    REQUIRE(result.exit == 0);
    CHECK(plugins_of(scratch / out).count("eng.curvature-cuda") == (device == "cuda"));
    return measured_by(scratch / out);
  };
  const Json first = analysed("cuda", "cuda");
  check_near(first, analysed("cpu", "cpu"));
  CHECK(analysed("cuda", "again") == first);
  const Json memory = Json::parse(read(scratch / "cuda/results.json")).at("memory");
  CHECK(memory["measured"]["device_peak_bytes"] == memory["planned"]["device_peak_bytes"]);
}

// Attention runs on tensor cores then.
TEST_CASE("emulated cuda: steps in 16 bits have about the losses of the cpu device", "[.slow]") {
  const std::string precision = GENERATE("bf16", "fp16");
  Scratch scratch;
  scratch.config();
  const auto run = [&](const std::string& device, const std::string& out) {
    const Result result =
        engine(scratch, {"--plugin-path", fs::path(EMULATED).parent_path().string(), "run", "config.toml",
                         "train.steps=3", "train.eval_every=0", "--unset", "device.threads",
                         "precision.plugin=" + precision, "device.plugin=" + device, "--out", out});
    INFO(result.err);
    REQUIRE(result.exit == 0);
    return column(scratch / out, "loss");
  };
  const std::vector<double> want = run("cpu", "cpu"), got = run("cuda", "cuda");
  REQUIRE(want.size() == 3);
  REQUIRE(got.size() == 3);
  for (size_t k = 0; k < 3; ++k) CHECK(got[k] == Approx(want[k]).epsilon(2e-3));
  CHECK(got == run("cuda", "again"));
}

namespace {

// Runs of cpu and cuda, and of cuda again: losses near those of cpu, the same bits again, and cpu goes on from there.
void compare(const Args& more) {
  Scratch scratch;
  scratch.config();
  write_answers(scratch);
  const Args both = with({"--plugin-path", fs::path(EMULATED).parent_path().string(), "run", "config.toml",
                          "train.eval_batches=1", "checkpoint.every=2", "--unset", "device.threads"},
                         more);
  const auto run = [&](const char* device, const char* out) {
    const Result result = engine(scratch, with(both, {std::string("device.plugin=") + device, "--out", out}));
    INFO(result.err);
    REQUIRE(result.exit == 0);
  };
  run("cpu", "cpu"), run("cuda", "cuda"), run("cuda", "again");
  for (const char* key : {"loss", "grad_norm"}) {
    const std::vector<double> want = column(scratch / "cpu", key), got = column(scratch / "cuda", key);
    REQUIRE(want.size() == got.size());
    for (size_t k = 0; k < want.size(); ++k) CHECK(got[k] == Approx(want[k]).epsilon(1e-4));
    CHECK(got == column(scratch / "again", key));
  }
  CHECK(engine(scratch, {"ckpt", "diff", "cuda", "again"}).exit == 0);
  const std::set<std::string> ids = plugins_of(scratch / "cuda");
  for (const auto& [plugin, id] : {std::pair<std::string, const char*>("mamba", "eng.mamba-cuda"),
                                   {"muon", "eng.optim-cuda"},
                                   {"adamw8bit", "eng.optim-cuda"},
                                   {"preference", "eng.loss-cuda"}})
    if (std::any_of(more.begin(), more.end(), [&](const auto& word) { return word.ends_with("plugin=" + plugin); }))
      CHECK(ids.count(id) == 1);
  const Result on = engine(scratch, {"run", "cuda", "train.steps=5", "device.plugin=cpu"});
  INFO(on.err);
  CHECK(on.exit == 0);
}

}  // namespace

TEST_CASE("emulated cuda: runs have the losses of the cpu device, and their checkpoints go on there", "[.slow]") {
  const Args model =
      GENERATE(Args{}, Args{"model.plugin=opt", "model.ffn_dim=64", "--unset", "model.intermediate_size"});
  compare(with({"train.steps=4", "train.eval_every=2"}, model));
}

TEST_CASE("emulated cuda: so do those of Gemma 2, with windows, capped scores and capped logits", "[.slow]") {
  compare({"train.steps=2", "train.eval_every=2", "model.plugin=gemma2", "model.num_key_value_heads=1",
           "model.head_dim=8", "model.query_pre_attn_scalar=8", "model.sliding_window=10",
           "model.attn_logit_softcapping=0.5", "model.final_logit_softcapping=2.0"});
}

TEST_CASE("emulated cuda: so do those of Mamba with muon", "[.slow]") {
  compare(with({"train.steps=4", "train.eval_every=2", "train.sequence_length=80"}, with(mamba, muon)));
}

TEST_CASE("emulated cuda: so do those of a mixture of experts", "[.slow]") {
  compare(with({"train.steps=4", "train.eval_every=2"}, moe));
}

TEST_CASE("emulated cuda: so do those with adamw8bit", "[.slow]") {
  compare(with({"train.steps=4", "train.eval_every=2"}, adamw8bit));
}

TEST_CASE("emulated cuda: so do those of LoRA beside frozen weights in 8 or 4 bits", "[.slow]") {
  const std::string frozen = GENERATE("int8", "e4m3", "nf4", "nf4_double");
  compare(with({"train.steps=4", "train.eval_every=2", "precision.frozen=" + frozen}, lora));
}

TEST_CASE("emulated cuda: so do those of LoRA of all maps of a Mamba", "[.slow]") {
  compare(with({"train.steps=4", "train.eval_every=2", "train.sequence_length=80"}, with(mamba, lora)));
}

TEST_CASE("emulated cuda: so do those of preferences, beside the model without its adapter", "[.slow]") {
  compare(with({"train.steps=4", "train.eval_every=0"},
               GENERATE(with(preferences, lora), with(odds, {"data.weights=true"}), with(alone, lora))));
}
