// SPDX-License-Identifier: Apache-2.0
// Hugging Face directories: of a family under another name, of the second model of a plugin's file, and files that lie
// in the place of one.
#include <set>

#include "from.hpp"

using namespace cli;

namespace {

const fs::path plain_llama = fs::path(ENGINE_SOURCE_DIR) / "tests" / "models" / "hf" / "single";

fs::path imported(const Scratch& scratch) {
  fs::copy(plain_llama, scratch / "single", fs::copy_options::recursive);
  return scratch / "single";
}

}  // namespace

TEST_CASE("a family under another name is read as what it is, and exported so", "[cli][from]") {
  Scratch scratch;
  const fs::path source = imported(scratch);
  Json config = Json::parse(read(source / "config.json"));
  config["model_type"] = "mistral", config["architectures"] = Json::array({"MistralForCausalLM"});
  config["sliding_window"] = 64;
  scratch.write("single/config.json", config.dump());
  const auto loss = [&](const std::string& directory) {
    const Result eval =
        engine(scratch, {"eval", directory, "--json", "data.paths=[\"text.txt\"]", "train.sequence_length=16"});
    INFO(eval.err);
    REQUIRE(eval.exit == 0);
    return std::pair(Json::parse(eval.out).at("loss").get<double>(), eval.err);
  };
  const auto [value, notes] = loss("single");
  CHECK(value == loss(plain_llama.string()).first);
  CHECK(has(notes, "model_type `mistral` is read as `llama`"));
  CHECK(has(notes, "sliding_window = 64 has no effect"));
  scratch.write("c.toml",
                "[model]\nfrom = 'single'\n[data]\npaths = ['text.txt']\n[train]\nsteps = 1\nsequence_length = 16\n"
                "micro_batch = 2\n[optimizer]\nlearning_rate = 1e-30\n[device]\nthreads = 1\n");
  REQUIRE(engine(scratch, {"run", "c.toml", "--out", "run"}).exit == 0);
  REQUIRE(engine(scratch, {"ckpt", "export", "run", "--to", "out"}).exit == 0);
  const Json out = Json::parse(read(scratch / "out" / "config.json"));
  CHECK(out.at("model_type") == "llama");
  CHECK(out.at("architectures") == Json::array({"LlamaForCausalLM"}));
  CHECK_FALSE(out.contains("sliding_window"));
  CHECK(loss("out").first == value);
}

TEST_CASE("Qwen2 is exported to a directory like the one that it was read from", "[cli][from]") {
  for (const char* name : {"untied", "tied"}) {
    INFO(name);
    Scratch scratch;
    const fs::path source = goldens.parent_path() / "hf_qwen2" / name;
    const Result run = run_from(scratch, source, "run");
    INFO(run.err);
    REQUIRE(run.exit == 0);
    REQUIRE(engine(scratch, {"ckpt", "export", "run", "--to", "out", "--dtype", "f32"}).exit == 0);
    CHECK((stored(scratch / "out") == stored(source)));
    const Json before = Json::parse(read(source / "config.json"));
    const Json after = Json::parse(read(scratch / "out" / "config.json"));
    for (const char* key : {"model_type", "architectures", "hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads", "num_key_value_heads", "vocab_size", "tie_word_embeddings",
                            "max_position_embeddings", "use_sliding_window", "hidden_act", "rms_norm_eps"})
      CHECK(after.at(key) == before.at(key));
    CHECK_FALSE(after.contains("attention_bias"));
    CHECK(run_from(scratch, scratch / "out", "again").exit == 0);
  }
}

namespace {

// Exports the model of a directory in tests/models to another one, with the same tensors and the same config.json.
void comes_back(const std::string& name) {
  INFO(name);
  Scratch scratch;
  const fs::path source = goldens.parent_path() / name;
  const Result run = run_from(scratch, source, "run");
  INFO(run.err);
  REQUIRE(run.exit == 0);
  REQUIRE(engine(scratch, {"ckpt", "export", "run", "--to", "out", "--dtype", "f32"}).exit == 0);
  CHECK((stored(scratch / "out") == stored(source)));
  const Json before = Json::parse(read(source / "config.json"));
  const Json after = Json::parse(read(scratch / "out" / "config.json"));
  const std::set<std::string> elsewhere = {"rope_parameters",    "dtype",          "transformers_version",
                                           "classifier_dropout", "hidden_dropout", "embd_pdrop",
                                           "layer_types",        "sliding_window"};
  for (const auto& [key, value] : before.items()) {
    INFO(key);
    if (!value.is_null() && !elsewhere.count(key)) CHECK(after.at(key) == value);
  }
  CHECK(run_from(scratch, scratch / "out", "again").exit == 0);
}

}  // namespace

TEST_CASE("families are exported to directories like those that they were read from", "[cli][from][.slow]") {
  for (const char* name : {"qwen3", "olmo2", "phi3", "smollm3", "granite", "gpt_neox", "minicpm", "internlm2",
                           "phi3_window", "mistral_window", "ministral_window", "gemma2", "gemma3"})
    comes_back(std::string("hf_families/") + name);
  for (const char* name : {"plain", "groups", "bias"}) comes_back(std::string("hf_mamba2/") + name);
  for (const char* name : {"falcon_mamba", "bamba", "granitemoehybrid", "granitemoehybrid_experts", "nemotron_h",
                           "nemotron_h_experts", "falcon_h1", "jamba"})
    comes_back(std::string("hf_hybrids/") + name);
}

TEST_CASE("files and folders that are no model are told as what they are", "[cli][from]") {
  Scratch scratch;
  const fs::path source = imported(scratch);
  const auto eval = [&](const char* directory) {
    return engine(scratch, {"eval", directory, "data.paths=[\"text.txt\"]", "train.sequence_length=16"});
  };
  const auto told = [&](const char* directory, int exit, const char* what, const char* help) {
    const Result bad = eval(directory);
    INFO(bad.err);
    CHECK(bad.exit == exit);
    CHECK(has(bad.err, what));
    CHECK(has(bad.err, help));
  };
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n";
  scratch.write("single/tokenizer.json", pointer);
  told("single", 4, "tokenizer.json is a Git LFS pointer", "git lfs pull");
  fs::remove(source / "tokenizer.json");
  CHECK(eval("single").exit == 0);
  scratch.write("single/adapter_config.json", "{}");
  told("single", 2, "is a LoRA adapter", "merge");
  fs::remove(source / "adapter_config.json");
  scratch.write("single/model.safetensors", pointer);
  told("single", 9, "model.safetensors is a Git LFS pointer", "git lfs pull");
  scratch.write("single/config.json", "<!DOCTYPE html>");
  told("single", 2, "config.json is a web page", "/resolve/");
  for (const char* folder : {"ds", "fsdp"}) fs::create_directories(scratch / folder);
  scratch.write("ds/mp_rank_00_model_states.pt", "x");
  told("ds", 2, "is a checkpoint of DeepSpeed", "zero_to_fp32.py");
  scratch.write("fsdp/__0_0.distcp", "x");
  told("fsdp", 2, "is a sharded checkpoint of FSDP", "merge-weights");
}
