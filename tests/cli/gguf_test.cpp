// SPDX-License-Identifier: Apache-2.0
// engine ckpt export --to FILE.gguf: names, order of rows, keys and tokenizers, read back by a reader of the tests.
// llama.cpp itself: tools/roundtrip_gguf.py.
#include <cmath>

#include "from.hpp"
#include "tests/session/gguf/reader.hpp"

using namespace cli;

namespace {

std::vector<float> floats_of(const std::string& stored) {  // of from.hpp: type and shape stand before the bytes
  const std::string bytes = stored.substr(stored.find(']') + 1);
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// The file of a run that changed no weight of `source`.
gguf::File exported(const Scratch& scratch, const fs::path& source, const Args& more = {}) {
  const Result run = run_from(scratch, source, "run");
  INFO(run.err);
  REQUIRE(run.exit == 0);
  Args args = {"ckpt", "export", "run", "--to", "out.gguf"};
  args.insert(args.end(), more.begin(), more.end());
  const Result out = engine(scratch, args);
  INFO(out.err);
  REQUIRE(out.exit == 0);
  CHECK(has(out.out, "read back and compared"));
  CHECK_FALSE(fs::exists(scratch / "out.gguf.tmp"));
  return gguf::read_gguf(read(scratch / "out.gguf"));
}

std::string told(const Scratch& scratch, const Args& args, int exit = 2) {
  const Result bad = engine(scratch, args);
  INFO(bad.err);
  CHECK(bad.exit == exit);
  return bad.err;
}

}  // namespace

TEST_CASE("llama as GGUF: llama.cpp's names, keys and order of rows", "[cli][gguf]") {
  Scratch scratch;
  const fs::path source = goldens / "single";  // 4 heads of 4 channels, 2 key and value heads, rope_type llama3
  const gguf::File file = exported(scratch, source);
  auto weights = stored(source);
  CHECK(file.text("general.architecture") == "llama");
  CHECK(file.text("general.name") == "out");
  CHECK(file.number("general.file_type") == 0);
  CHECK(file.number("general.alignment") == 32);
  CHECK(file.number("llama.block_count") == 2);
  CHECK(file.number("llama.context_length") == 64);
  CHECK(file.number("llama.embedding_length") == 16);
  CHECK(file.number("llama.feed_forward_length") == 24);
  CHECK(file.number("llama.attention.head_count") == 4);
  CHECK(file.number("llama.attention.head_count_kv") == 2);
  CHECK(file.number("llama.attention.key_length") == 4);
  CHECK(file.number("llama.rope.dimension_count") == 4);
  CHECK(file.number("llama.vocab_size") == 256);
  CHECK(file.real("llama.rope.freq_base") == 500000.0f);
  CHECK(file.real("llama.attention.layer_norm_rms_epsilon") == 1e-5f);
  CHECK_FALSE(file.keys.count("llama.rope.scaling.type"));  // by divisors of the frequencies
  const std::vector<float> divisors = file.tensors.at("rope_freqs.weight").floats();
  REQUIRE(divisors.size() == 2);
  // 16 positions make 16 / 2 pi = 2.5 turns of the first frequency, which is mixed, and 0.004 of the second.
  const double keep = (16 / (2 * std::acos(-1.0)) - 1) / 3;
  CHECK(divisors[0] == Approx(1 / ((1 - keep) / 8 + keep)));
  CHECK(divisors[1] == 8.0f);

  CHECK(file.tensors.size() == weights.size() + 1);
  CHECK(file.tensors.at("token_embd.weight").dims == std::vector<uint64_t>{16, 256});
  for (const auto& [own, name] :
       std::map<std::string, std::string>{{"model.embed_tokens.weight", "token_embd.weight"},
                                          {"model.norm.weight", "output_norm.weight"},
                                          {"lm_head.weight", "output.weight"},
                                          {"model.layers.1.mlp.down_proj.weight", "blk.1.ffn_down.weight"},
                                          {"model.layers.1.self_attn.v_proj.weight", "blk.1.attn_v.weight"},
                                          {"model.layers.0.self_attn.o_proj.weight", "blk.0.attn_output.weight"}})
    CHECK(file.tensors.at(name).floats() == floats_of(weights.at(own)));
  for (const std::string map : {"q", "k"}) {
    const auto theirs = file.tensors.at("blk.1.attn_" + map + ".weight").floats();
    const auto own = floats_of(weights.at("model.layers.1.self_attn." + map + "_proj.weight"));
    REQUIRE(theirs.size() == own.size());
    const size_t rows = own.size() / 16, order[] = {0, 2, 1, 3};  // of the four rows of a head
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < 16; ++c) CHECK(theirs[16 * r + c] == own[16 * (r / 4 * 4 + order[r % 4]) + c]);
  }

  // The tokenizer `bytes`.
  CHECK(file.text("tokenizer.ggml.model") == "gpt2");
  CHECK(file.text("tokenizer.ggml.pre") == "gpt-2");
  CHECK(file.texts("tokenizer.ggml.tokens").size() == 256);
  CHECK(file.texts("tokenizer.ggml.merges").empty());
  CHECK_FALSE(file.flag("tokenizer.ggml.add_bos_token"));
  CHECK(file.number("tokenizer.ggml.eos_token_id") == 0);  // NUL: the tokenizer has none
}

TEST_CASE("element types of a GGUF file", "[cli][gguf]") {
  Scratch scratch;
  scratch.config();  // 32 features
  good(scratch, {"run", "config.toml", "--out", "run", "train.steps=1"});
  std::map<std::string, gguf::File> files;
  for (const std::string type : {"f32", "bf16", "f16", "q8_0"}) {
    good(scratch, {"ckpt", "export", "run", "--to", type + ".gguf", "--type", type});
    files[type] = gguf::read_gguf(read(scratch / (type + ".gguf")));
  }
  const auto type_of = [&](const char* file, const char* tensor) { return files.at(file).tensors.at(tensor).type; };
  for (const char* file : {"f32", "bf16", "f16", "q8_0"}) CHECK(type_of(file, "blk.0.attn_norm.weight") == 0);
  CHECK(type_of("f32", "blk.0.attn_q.weight") == 0);
  CHECK(type_of("bf16", "blk.0.attn_q.weight") == 30);
  CHECK(type_of("f16", "blk.0.attn_q.weight") == 1);
  CHECK(type_of("q8_0", "blk.0.attn_q.weight") == 8);
  CHECK(files.at("q8_0").number("general.file_type") == 7);
  CHECK(files.at("bf16").number("general.file_type") == 32);
  CHECK_FALSE(files.at("f32").tensors.count("rope_freqs.weight"));
}

TEST_CASE("Qwen2 and mamba as GGUF", "[cli][gguf]") {
  {
    Scratch scratch;
    const fs::path source = goldens.parent_path() / "hf_qwen2" / "tied";
    const gguf::File file = exported(scratch, source);
    auto weights = stored(source);
    CHECK(file.text("general.architecture") == "qwen2");
    CHECK_FALSE(file.tensors.count("output.weight"));
    for (const char* kind : {"weight", "bias"})  // rows stay as they are
      CHECK(file.tensors.at("blk.0.attn_k." + std::string(kind)).floats() ==
            floats_of(weights.at("model.layers.0.self_attn.k_proj." + std::string(kind))));
  }
  Scratch scratch;
  const fs::path source = goldens / "mamba_ssm";  // 16 features, 32 channels of 8 states, 4 taps
  const gguf::File file = exported(scratch, source, {"--type", "f16"});
  auto weights = stored(source);
  CHECK(file.text("general.architecture") == "mamba");
  CHECK(file.number("mamba.ssm.inner_size") == 32);
  CHECK(file.number("mamba.ssm.time_step_rank") == 1);
  CHECK(file.tensors.at("blk.0.ssm_conv1d.weight").dims == std::vector<uint64_t>{4, 32});
  CHECK(file.tensors.at("blk.0.ssm_conv1d.weight").type == 0);
  CHECK(file.tensors.at("blk.0.ssm_in.weight").type == 1);
  const gguf::Tensor& a = file.tensors.at("blk.1.ssm_a");
  CHECK(a.dims == std::vector<uint64_t>{8, 32});
  const auto own = floats_of(weights.at("backbone.layers.1.mixer.A_log"));
  const auto theirs = a.floats();
  for (size_t k = 0; k < own.size(); ++k) CHECK(theirs[k] == Approx(-std::exp(own[k])).epsilon(1e-6));
  CHECK(file.tensors.at("blk.1.ssm_d").floats() == floats_of(weights.at("backbone.layers.1.mixer.D")));
}

TEST_CASE("a GGUF file has the tokenizer and the chat template of the run", "[cli][gguf]") {
  Scratch scratch;
  const fs::path data = fs::path(ENGINE_SOURCE_DIR) / "tests" / "data" / "golden";
  for (const std::string name : {"gpt2", "llama3", "neox", "llama", "unigram"}) {
    INFO(name);
    const fs::path folder = scratch / name;
    fs::copy(data / name, folder, fs::copy_options::recursive);
    scratch.write(name + "/chat_template.jinja", "{{ messages }}");
    scratch.write(
        "c.toml",
        "[model]\nplugin = 'llama'\npreset = 'tiny'\nvocab_size = 800\nhidden_size = 32\nintermediate_size = "
        "32\nnum_hidden_layers = 1\n[data]\npaths = "
        "['text.txt']\ntokenizer = '" +
            name +
            "'\nspecial_tokens = true\n[train]\nsteps = 1\nsequence_length = 16\nmicro_batch = 2\n[device]\nthreads = "
            "1\n");
    good(scratch, {"run", "c.toml", "--out", "run-" + name});
    const Result out = good(scratch, {"ckpt", "export", "run-" + name, "--to", name + ".gguf"});
    const gguf::File file = gguf::read_gguf(read(scratch / (name + ".gguf")));
    CHECK(file.texts("tokenizer.ggml.tokens").size() == 800);
    CHECK(file.get<std::vector<int32_t>>("tokenizer.ggml.token_type").back() == 5);
    CHECK(file.texts("tokenizer.ggml.tokens").back() == "[PAD799]");
    CHECK(file.text("tokenizer.chat_template") == "{{ messages }}");
    const bool own_pieces = name == "llama" || name == "unigram";
    CHECK(file.keys.count("tokenizer.ggml.scores") == own_pieces);
    CHECK(file.keys.count("tokenizer.ggml.merges") == !own_pieces);
    CHECK(file.flag("tokenizer.ggml.add_bos_token") == (name == "llama3" || own_pieces));
    CHECK(has(out.err, "NFC") == (name == "neox"));
  }
  // With other ids than the tokenizer in use, the file is not written.
  Json changed = Json::parse(read(scratch / "gpt2" / "tokenizer.json"));
  changed["pre_tokenizer"]["add_prefix_space"] = true;
  scratch.write("gpt2/tokenizer.json", changed.dump());
  CHECK(has(told(scratch, {"ckpt", "export", "run-gpt2", "--to", "again.gguf"}), "add_prefix_space"));
  CHECK_FALSE(fs::exists(scratch / "again.gguf"));
}

TEST_CASE("what llama.cpp does not compute is not written as GGUF", "[cli][gguf]") {
  Scratch scratch;
  const auto run = [&](const char* name) { REQUIRE(run_from(scratch, goldens / name, name).exit == 0); };
  run("opt");
  CHECK(has(told(scratch, {"ckpt", "export", "opt", "--to", "o.gguf"}), "llama.cpp does not know OPT"));
  run("mamba");
  CHECK(has(told(scratch, {"ckpt", "export", "mamba", "--to", "o.gguf"}), "model.use_bias = true"));
  run("mamba_wide");
  CHECK(has(told(scratch, {"ckpt", "export", "mamba_wide", "--to", "o.gguf"}),
            "only with ssm.inner_size = 32, and this model has 24"));
  scratch.config();
  const std::string config = read(scratch / "config.toml");
  good(scratch, {"run", "config.toml", "--out", "gelu", "train.steps=1", "model.hidden_act=gelu"});
  CHECK(has(told(scratch, {"ckpt", "export", "gelu", "--to", "o.gguf"}), "model.hidden_act = \"gelu\""));
  good(scratch,
       {"run", "config.toml", "--out", "dynamic", "train.steps=1", "model.rope_type=dynamic", "model.rope_factor=2.0"});
  CHECK(has(told(scratch, {"ckpt", "export", "dynamic", "--to", "o.gguf"}), "model.rope_type = \"dynamic\""));
  // `engine check` says so before the first step, and does not fail.
  const auto checked = [&](const Args& more) {
    Args args = {"check", "config.toml"};
    args.insert(args.end(), more.begin(), more.end());
    return good(scratch, args).out;
  };
  CHECK(has(checked({}), "  gguf        llama, 21 tensors; the tokenizer has no token that ends a text"));
  CHECK(has(checked({"model.hidden_act=gelu"}), "not possible"));
  // An adapter is merged, left out with a note, or refused.
  scratch.write("adapted.toml", config + "\n[[transforms]]\nplugin = \"lora\"\nrank = 4\ntargets = [\"all-linear\"]\n");
  good(scratch, {"run", "adapted.toml", "--out", "adapted", "train.steps=2"});
  CHECK(has(good(scratch, {"ckpt", "export", "adapted", "--to", "base.gguf"}).err, "28 tensors are left out"));
  CHECK(has(good(scratch, {"ckpt", "export", "adapted", "--to", "merged.gguf", "--merge"}).out, "paths of 14 maps"));
  good(scratch, {"ckpt", "export", "adapted", "--to", "merged", "--merge"});
  const gguf::File base = gguf::read_gguf(read(scratch / "base.gguf")),
                   merged = gguf::read_gguf(read(scratch / "merged.gguf"));
  const std::string down = "model.layers.0.mlp.down_proj.weight";
  CHECK(merged.tensors.at("blk.0.ffn_down.weight").floats() == floats_of(stored(scratch / "merged").at(down)));
  CHECK(base.tensors.at("blk.0.ffn_down.weight").bytes != merged.tensors.at("blk.0.ffn_down.weight").bytes);
  good(scratch, {"run", "adapted.toml", "--out", "both", "train.steps=1",
                 "transforms=[{plugin=\"lora\",rank=2,targets=[\"all-linear\"],export=true}]"});
  CHECK(has(told(scratch, {"ckpt", "export", "both", "--to", "o.gguf"}), "give --merge"));
  // The place and the type.
  CHECK(has(told(scratch, {"ckpt", "export", "adapted", "--to", "base.gguf"}), "already exists"));
  CHECK(has(told(scratch, {"ckpt", "export", "adapted", "--to", "folder", "--type", "q8_0"}), "GGUF files alone"));
  CHECK_FALSE(fs::exists(scratch / "o.gguf"));
  CHECK_FALSE(fs::exists(scratch / "o.gguf.tmp"));
}

TEST_CASE("a GGUF file that does not fit on the disk leaves nothing", "[cli][gguf]") {
  Scratch scratch;
  scratch.config();
  good(scratch, {"run", "config.toml", "--out", "run", "train.steps=1"});
  Limits limits;
  limits.file_bytes = 20000;
  const Result full = engine(scratch, {"ckpt", "export", "run", "--to", "out.gguf"}, limits);
  INFO(full.err);
  CHECK(full.exit == 10);
  CHECK_FALSE(fs::exists(scratch / "out.gguf"));
  CHECK_FALSE(fs::exists(scratch / "out.gguf.tmp"));
}
