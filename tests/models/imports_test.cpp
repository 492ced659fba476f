// SPDX-License-Identifier: Apache-2.0
// [model] from: what transformers reads as one of the families here gives that family's loss, bit for bit; anything
// else is told.
#include "from.hpp"

using namespace models;

namespace {

using Names = std::function<std::string(const std::string&)>;

// Gives the tensors of a file other names; "" removes one.
void rename(const fs::path& file, const Names& names) {
  const std::string before = eng::test::read_file(file);
  uint64_t length = 0;
  std::memcpy(&length, before.data(), 8);
  const auto header = nlohmann::ordered_json::parse(before.substr(8, length));
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  std::string data;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__" || names(name).empty()) continue;
    const uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    out[names(name)] = {{"dtype", entry["dtype"]},
                        {"shape", entry["shape"]},
                        {"data_offsets", {data.size(), data.size() + end - begin}}};
    data += before.substr(8 + length + begin, end - begin);
  }
  std::string text = out.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  length = text.size();
  eng::test::write_file(file, std::string(reinterpret_cast<const char*>(&length), 8) + text + data);
}

// Adds a tensor of zeros.
void add(const fs::path& file, const std::string& name, const std::vector<int64_t>& shape) {
  const std::string before = eng::test::read_file(file);
  uint64_t length = 0, bytes = 4;
  std::memcpy(&length, before.data(), 8);
  auto header = nlohmann::ordered_json::parse(before.substr(8, length));
  for (const int64_t n : shape) bytes *= uint64_t(n);
  const uint64_t end = before.size() - 8 - length;
  header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t now = text.size();
  eng::test::write_file(file, std::string(reinterpret_cast<const char*>(&now), 8) + text + before.substr(8 + length) +
                                  std::string(bytes, '\0'));
}

// A copy of a golden directory, with another config.json.
struct Model {
  eng::test::Scratch scratch;
  fs::path path;
  explicit Model(const char* golden) : path(copy(scratch, golden)) {}
  fs::path weights() const { return path / "model.safetensors"; }
  void config(const std::function<void(nlohmann::json&)>& change) const {
    auto json = nlohmann::json::parse(eng::test::read_file(path / "config.json"));
    change(json);
    eng::test::write_file(path / "config.json", json.dump());
  }
};

std::string help_of(const fs::path& directory) {
  try {
    loss_of(directory);
  } catch (const eng::Error& e) {
    return e.help();
  }
  return "accepted";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

}  // namespace

TEST_CASE("from: names that wrappers of a model leave are read", "[from]") {
  const auto behind = [](const std::string& prefix) { return [prefix](const std::string& n) { return prefix + n; }; };
  const auto inside = [](const std::string& part) {
    return [part](const std::string& n) { return replaced(n, "layers.0.", "layers.0." + part); };
  };
  const auto body = [](const std::string& from, const std::string& to) {
    return [=](const std::string& n) { return n.starts_with(from) ? to + n.substr(from.size()) : n; };
  };
  const std::tuple<const char*, const char*, Names> all[] = {
      {"_orig_mod", "single", behind("_orig_mod.")},
      {"module", "single", behind("module.")},
      {"module._orig_mod", "single", behind("module._orig_mod.")},
      {"_forward_module", "single", behind("_forward_module.")},
      {"doubled", "single", behind("model.")},
      {"transformer", "single", behind("transformer.")},
      {"layers compiled one by one", "single", inside("_orig_mod.")},
      {"layers checkpointed", "single", inside("_checkpoint_wrapped_module.")},
      {"layers of FSDP", "single", inside("_fsdp_wrapped_module._checkpoint_wrapped_module.")},
      {"no body", "tied", body("model.", "")},
      {"another body", "tied", body("model.", "transformer.")},
      {"opt, no body", "opt", body("model.decoder.", "")},
      {"opt, decoder alone", "opt", body("model.", "")},
      {"opt, compiled", "opt_bare", behind("_orig_mod.")},
      {"mamba, no body", "mamba", body("backbone.", "")},
      {"mamba, module", "mamba", behind("module.")},
      {"mamba_ssm, module", "mamba_ssm", behind("module.")}};
  for (const auto& [what, golden, names] : all) {
    INFO(what);
    const Model m(golden);
    if (fs::exists(m.weights())) {
      rename(m.weights(), names);
      CHECK(loss_of(m.path) == loss_of(goldens / golden));
    }
  }
  // Two tensors of one meaning, or one that is not the model's, are not chosen from.
  const Model twice("single");
  add(twice.weights(), "module.model.norm.weight", {16});
  CHECK_THAT(refused(twice.path),
             Catch::Contains("model.norm.weight: appears twice, as ") && Catch::Contains("module.model.norm.weight"));
  const Model more("single");
  add(more.weights(), "teacher.model.norm.weight", {16});
  CHECK_THAT(refused(more.path), Catch::Contains("teacher.model.norm.weight [16]: the model has no such tensor"));
}

TEST_CASE("from: tensors that are computed are no part of the model", "[from]") {
  const std::pair<const char*, std::vector<std::pair<const char*, std::vector<int64_t>>>> all[] = {
      {"single",
       {{"model.layers.0.self_attn.rotary_emb.inv_freq", {2}},
        {"model.rotary_emb.inv_freq", {2}},
        {"model.layers.1.self_attn.rotary_emb.cos_cached", {1, 1, 8, 4}},
        {"model.layers.1.self_attn.bias", {1, 1, 8, 8}},
        {"model.layers.1.self_attn.masked_bias", {1}}}},
      {"opt",
       {{"model.decoder.version", {1}},
        {"model.decoder.embed_positions._float_tensor", {1}},
        {"model.decoder.layers.0.self_attn.causal_mask", {1, 1, 8, 8}},
        {"model.decoder.position_ids", {1, 8}}}}};
  for (const auto& [golden, tensors] : all) {
    const Model m(golden);
    for (const auto& [name, shape] : tensors) add(m.weights(), name, shape);
    CHECK(loss_of(m.path) == loss_of(goldens / golden));
  }
  const Model bias("single");
  add(bias.weights(), "model.layers.1.self_attn.bias", {16});
  CHECK_THAT(refused(bias.path), Catch::Contains("self_attn.bias [16]: the model has no such tensor"));
}

TEST_CASE("from: spellings of config.json that mean the same give the same loss", "[from]") {
  const double single = loss_of(goldens / "single"), mamba = loss_of(goldens / "mamba"), opt = loss_of(goldens / "opt");
  const auto with = [](const char* golden, const std::function<void(nlohmann::json&)>& change) {
    const Model m(golden);
    m.config(change);
    return loss_of(m.path);
  };
  CHECK(with("single", [](auto& j) { j["hidden_act"] = "swish"; }) == single);
  CHECK(with("single", [](auto& j) { j["architectures"] = {"LLaMAForCausalLM"}; }) == single);
  CHECK(with("single", [](auto& j) { j["max_position_embeddings"] = 64.0, j["hidden_size"] = 16.0; }) == single);
  CHECK(with("single", [](auto& j) {
          j["model_type"] = "mistral", j["architectures"] = {"MistralForCausalLM"}, j["sliding_window"] = nullptr;
          j.erase("attention_bias"), j.erase("mlp_bias"), j.erase("pretraining_tp");
        }) == single);
  CHECK(with("mamba", [](auto& j) { j["hidden_act"] = "swish", j["expand"] = 2.0; }) == mamba);
  CHECK(with("mamba", [](auto& j) { j["pad_vocab_size_multiple"] = 100; }) == mamba);  // transformers ignores it
  CHECK(with("mamba", [](auto& j) { j["d_inner"] = 32, j["d_model"] = 16, j["n_layer"] = 2; }) == mamba);
  for (const auto& [one, same] : {std::pair("gelu", "gelu_python"),
                                  {"gelu_new", "gelu_fast"},
                                  {"gelu_new", "gelu_accurate"},
                                  {"gelu_pytorch_tanh", "gelu_python_tanh"},
                                  {"silu", "swish"}}) {
    const double loss = with("opt", [&, one = one](auto& j) { j["activation_function"] = one; });
    CHECK(loss == with("opt", [&, same = same](auto& j) { j["activation_function"] = same; }));
    CHECK(loss != opt);
  }
  // yarn: the factor that is not given is the quotient of the two lengths.
  const auto yarn = [&](const nlohmann::json& factor) {
    return with("single", [&](auto& j) {
      j["rope_parameters"] = {
          {"rope_type", "yarn"}, {"rope_theta", 500000.0}, {"original_max_position_embeddings", 16}};
      if (!factor.is_string()) j["rope_parameters"]["factor"] = factor;
    });
  };
  CHECK(yarn(nullptr) == yarn(4.0));
  CHECK(yarn("absent") == yarn(4.0));
  CHECK(yarn(nullptr) != yarn(2.0));
}

TEST_CASE("from: a vocabulary of another size is told with its edit", "[from]") {
  const Model m("mamba");
  m.config([](auto& j) { j["vocab_size"] = 250; });
  CHECK_THAT(refused(m.path),
             Catch::Contains("backbone.embeddings.weight: is [256, 16] in the file, [250, 16] in the model"));
  CHECK_THAT(help_of(m.path), Catch::Contains("has 256 rows: set `vocab_size` to that in config.json"));
  m.config([](auto& j) { j["vocab_size"] = 256; });
  CHECK(loss_of(m.path) == loss_of(goldens / "mamba"));
  // Fewer rows than config.json says, and both tables of a model whose head is its own.
  const Model fewer("single");
  fewer.config([](auto& j) { j["vocab_size"] = 320; });
  CHECK_THAT(refused(fewer.path), Catch::Contains("model.embed_tokens.weight: is [256, 16] in the file, [320, 16]") &&
                                      Catch::Contains("lm_head.weight: is [256, 16]"));
  CHECK_THAT(help_of(fewer.path), Catch::Contains("has 256 rows"));
  const Model head("single");
  rename(head.weights(), [](const std::string& n) { return n == "lm_head.weight" ? "" : n; });
  CHECK_THAT(refused(head.path), Catch::Contains("lm_head.weight [256, 16]: is missing"));
  CHECK_THAT(help_of(head.path), Catch::Contains("set `tie_word_embeddings` to true"));
}

TEST_CASE("from: weights that are something else are reported", "[from]") {
  const Model m("single");
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 42\n";
  eng::test::write_file(m.weights(), pointer);
  CHECK_THAT(refused(m.path), Catch::Contains("model.safetensors is a Git LFS pointer"));
  CHECK_THAT(help_of(m.path), Catch::Contains("git lfs pull"));
  for (const auto& [bytes, what] : {std::pair("<!DOCTYPE html>", "is a web page"),
                                    {"", "is empty"},
                                    {"GGUF", "is a GGUF file"},
                                    {"Entry not found", "is a text that begins \"Entry not found\""}}) {
    eng::test::write_file(m.weights(), bytes);
    CHECK_THAT(refused(m.path), Catch::Contains(what));
  }
  fs::remove(m.weights());
  eng::test::write_file(m.path / "pytorch_model.bin", pointer);
  CHECK_THAT(refused(m.path), Catch::Contains("pytorch_model.bin is a Git LFS pointer"));
  fs::remove(m.path / "pytorch_model.bin");
  fs::create_symlink("../../blobs/12", m.weights());
  CHECK_THAT(refused(m.path), Catch::Contains("is a symbolic link to ../../blobs/12, which is not there"));
  fs::remove(m.weights());
  for (const auto& [name, what] : {std::pair("optimizer.pt", "the state of an optimizer"),
                                   {"global_step10", "is a checkpoint of DeepSpeed"},
                                   {"model.gguf", "as GGUF"},
                                   {"model-00001-of-00002.safetensors", "no model.safetensors.index.json"}}) {
    eng::test::write_file(m.path / name, "x");
    CHECK_THAT(refused(m.path), Catch::Contains(what));
    fs::remove(m.path / name);
  }
  const Model sharded("sharded");
  fs::remove(sharded.path / "model-00002-of-00003.safetensors");
  CHECK_THAT(refused(sharded.path),
             Catch::Contains("model.safetensors.index.json names 3 files, of which one is missing: "
                             "`model-00002-of-00003.safetensors`"));
  eng::test::write_file(sharded.path / "model.safetensors.index.json", pointer);
  CHECK_THAT(refused(sharded.path), Catch::Contains("model.safetensors.index.json is a Git LFS pointer"));
}
