// SPDX-License-Identifier: Apache-2.0
// [model] from: Hugging Face directories in all their spellings give the losses of transformers.
#include "from.hpp"

using namespace models;

TEST_CASE("from: every Hugging Face directory gives the loss of transformers", "[from]") {
  size_t seen = 0;
  for (const auto& [name, loss] : expected().at("loss").items()) {
    INFO(name);
    CHECK(loss_of(goldens / name) == Approx(loss.get<double>()).epsilon(1e-5));
    ++seen;
  }
  CHECK(seen == 12);
  // The twins: another scaling, other weights.
  CHECK(loss_of(goldens / "single", "rope_factor = 2.0\n") != Approx(expected()["loss"]["single"]).epsilon(1e-5));
  CHECK(loss_of(goldens / "bf16") != Approx(expected()["loss"]["single"].get<double>()).epsilon(1e-5));
}

TEST_CASE("from: a head beside a tied embedding must be that embedding", "[from]") {
  const eng::test::Scratch scratch;
  const fs::path directory = copy(scratch, "tied_head");
  const eng::SafetensorsFile file(directory / "model.safetensors");
  const uint64_t at = file.header().data_start + file.find("lm_head.weight")->begin;
  std::string bytes = eng::test::read_file(directory / "model.safetensors");
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  eng::test::write_file(directory / "model.safetensors", bytes);
  CHECK_THAT(refused(directory), Catch::Contains("lm_head.weight: differs from model.embed_tokens.weight"));
}

TEST_CASE("from: missing, extra and misshapen tensors are told all at once", "[from]") {
  const eng::test::Scratch scratch;
  const fs::path directory = copy(scratch, "single");
  edit(directory / "model.safetensors", "model.norm.weight", "model.nose.weight");
  edit(directory / "config.json", "\"intermediate_size\": 24", "\"intermediate_size\": 28");
  const std::string text = refused(directory);
  for (const char* part : {"8 of its tensors", "model.norm.weight [16]: is missing",
                           "model.nose.weight [16]: the model has no such tensor",
                           "model.layers.0.mlp.up_proj.weight: is [24, 16] in the file, [28, 16] in the model",
                           "model.layers.1.mlp.down_proj.weight: is [16, 24] in the file, [16, 28] in the model"})
    CHECK_THAT(text, Catch::Contains(part));
  // An untied model whose file has no head.
  const fs::path tied = copy(scratch, "tied");
  edit(tied / "config.json", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
  CHECK_THAT(refused(tied), Catch::Contains("lm_head.weight [256, 16]: is missing"));
  // A bias that the model would need.
  const fs::path bf16 = copy(scratch, "bf16");
  edit(bf16 / "config.json", "\"mlp_bias\": false", "\"mlp_bias\": true");
  CHECK_THAT(refused(bf16), Catch::Contains("model.layers.0.mlp.gate_proj.bias [24]: is missing"));
}

TEST_CASE("from: an index that does not tell the truth", "[from]") {
  const auto with = [](const std::string& from, const std::string& to) {
    const eng::test::Scratch scratch;
    const fs::path directory = copy(scratch, "sharded");
    edit(directory / "model.safetensors.index.json", from, to);
    return refused(directory);
  };
  const std::string head = "\"lm_head.weight\": \"model-00003-of-00003.safetensors\"";
  CHECK_THAT(
      with("\"lm_head.weight\"", "\"lm_foot.weight\""),
      Catch::Contains("lm_head.weight: is in model-00003-of-00003.safetensors, but not according to the index") &&
          Catch::Contains("lm_foot.weight: is not in model-00003-of-00003.safetensors"));
  CHECK_THAT(with("model-00001-of-00003.safetensors", "model-00009-of-00003.safetensors"),
             Catch::Contains("of which one is missing: `model-00009-of-00003.safetensors`"));
  CHECK_THAT(with("model-00001-of-00003.safetensors", "../single/model.safetensors"),
             Catch::Contains("not a plain file name"));
  CHECK_THAT(with("\"weight_map\"", "\"weight_mop\""), Catch::Contains("has no `weight_map`"));
}

TEST_CASE("from: pytorch_model.bin gives the loss of its safetensors twin, bit for bit", "[from]") {
  size_t seen = 0;
  for (const auto& entry : fs::directory_iterator(goldens.parent_path() / "hf_torch")) {
    const std::string name = entry.path().filename();
    INFO(name);
    const eng::test::Scratch scratch;
    fs::copy(entry.path(), scratch / name);
    fs::copy(goldens / name / "config.json", scratch / name);
    CHECK(loss_of(scratch / name) == loss_of(goldens / name));
    ++seen;
  }
  CHECK(seen == 7);
}

TEST_CASE("from: which file is read where there are several, and what is said where there is none", "[from]") {
  const eng::test::Scratch scratch;
  const fs::path directory = copy(scratch, "single");
  eng::test::write_file(directory / "pytorch_model.bin", "not such a file");
  CHECK(refused(directory) == "accepted");  // safetensors come first
  fs::remove(directory / "model.safetensors");
  CHECK_THAT(refused(directory), Catch::Contains("pytorch_model.bin is a text that begins \"not such a file\""));
  fs::remove(directory / "pytorch_model.bin");
  CHECK_THAT(refused(directory), Catch::Contains("has neither model.safetensors nor pytorch_model.bin"));
  eng::test::write_file(directory / "pytorch_model.bin.index.json",
                        R"({"weight_map": {"lm_head.weight": "pytorch_model-00001-of-00001.bin"}})");
  CHECK_THAT(refused(directory), Catch::Contains("of which one is missing: `pytorch_model-00001-of-00001.bin`"));
}

TEST_CASE("from: [model] may not contradict what the weights say", "[from]") {
  const auto problem = [](const std::string& more, const char* name = "single") {
    return eng::test::refusal(eng::Exit::usage, [&] { config_from(goldens / name, more); });
  };
  CHECK(problem("hidden_size = 16\nplugin = 'llama'\n") == "accepted");
  CHECK_THAT(problem("hidden_size = 32\nnum_attention_heads = 8\n"),
             Catch::Contains("`hidden_size` contradicts the weights") && Catch::Contains("config.json says 16") &&
                 Catch::Contains("`num_attention_heads` contradicts"));
  CHECK_THAT(problem("preset = 'tiny'\n"), Catch::Contains("`preset` and `from` are both given"));
  CHECK(problem("max_position_embeddings = 128\nrope_factor = 16.0\n") == "accepted");  // a longer context
  CHECK_THAT(problem("", "nowhere"), Catch::Contains("is not a directory"));
  CHECK_THAT(problem("", "."), Catch::Contains("has no model itself, but its folder `bf16` does"));
}

TEST_CASE("from: variants of LLaMA that are not supported are named", "[from]") {
  const auto problem = [](const std::string& from, const std::string& to) {
    const eng::test::Scratch scratch;
    const fs::path directory = copy(scratch, "single");
    edit(directory / "config.json", from, to);
    return eng::test::refusal(eng::Exit::usage, [&] { config_from(directory); });
  };
  CHECK_THAT(problem("\"attention_dropout\": 0.0", "\"attention_dropout\": 0.1"),
             Catch::Contains("`attention_dropout` is 0.1; this plugin supports 0.0"));
  CHECK_THAT(problem("LlamaForCausalLM", "LlamaForSequenceClassification"), Catch::Contains("`architectures` is"));
  CHECK_THAT(problem("\"rope_type\": \"llama3\"", "\"rope_type\": \"spiral\""),
             Catch::Contains("`rope_parameters.rope_type` must be one of") &&
                 Catch::Contains("not string \"spiral\"; available: `default`, `linear`, `dynamic`, `yarn`"));
  CHECK_THAT(problem("\"model_type\": \"llama\"", "\"model_type\": \"bloom\""),
             Catch::Contains("model_type `bloom` is not read by any model plugin"));
  CHECK_THAT(problem("\"use_cache\"", "\"rope_theta\": 10000.0, \"use_cache\""),
             Catch::Contains("`rope_theta` is 10000.0, but `rope_parameters.rope_theta` is 500000.0"));
  CHECK_THAT(problem("\"use_cache\"", "\"quantization_config\": {\"bits\": 4}, \"use_cache\""),
             Catch::Contains("quantised weights"));
  // Keys inside of the scaling that would change the rotary table.
  const auto scaling = [&](const std::string& more) {
    return problem("\"rope_parameters\": {", "\"rope_parameters\": {" + more + ",");
  };
  CHECK_THAT(scaling("\"truncate\": false"),
             Catch::Contains("`rope_parameters.truncate` is false; this plugin supports true"));
  CHECK_THAT(scaling("\"mscale\": 0.7, \"mscale_all_dim\": 1.0"),
             Catch::Contains("`rope_parameters.mscale_all_dim` is 1.0; this plugin supports 0.0"));
  CHECK_THAT(scaling("\"partial_rotary_factor\": 0.5"),
             Catch::Contains("`rope_parameters.partial_rotary_factor` is 0.5"));
  CHECK_THAT(scaling("\"attention_factor\": 0"), Catch::Contains("`rope_parameters.attention_factor` must be above 0"));
  CHECK_THAT(scaling("\"beta_slow\": 0.0"), Catch::Contains("`rope_parameters.beta_slow` must be above 0"));
  CHECK(scaling("\"truncate\": true, \"mscale\": 0.7, \"mscale_all_dim\": 0, \"attention_factor\": null") ==
        "accepted");
  for (const char* key : {"\"truncate\": false", "\"mscale_all_dim\": 1.0", "\"partial_rotary_factor\": 0.5"})
    CHECK_THAT(
        problem("\"rope_parameters\": {", "\"rope_scaling\": {" + std::string(key) + "}, \"rope_parameters\": {"),
        Catch::Contains("`rope_scaling."));
  // The one thing that is wrong is told, not what could not be read because of it.
  CHECK(problem("\"hidden_size\": 16", "\"hidden_size\": 0").find("needs `plugin`") == std::string::npos);
  CHECK_THAT(problem("\"hidden_size\": 16", "\"hidden_size\": -16"), Catch::Contains("`hidden_size` must be at least"));
  CHECK_THAT(problem("\"hidden_size\": 16", "\"hidden_size\": [16]"), Catch::Contains("`hidden_size` must be of type"));
}
