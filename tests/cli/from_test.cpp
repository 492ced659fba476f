// SPDX-License-Identifier: Apache-2.0
// Weights in from a Hugging Face directory or a run, and out again.
#include <cmath>
#include <cstring>

#include "../sanitized.hpp"
#include "from.hpp"

using namespace cli;

namespace {

const fs::path tokenizers = fs::path(ENGINE_SOURCE_DIR) / "tests" / "data" / "golden";

fs::path copy(const Scratch& scratch, const char* name) {
  fs::copy(goldens / name, scratch / name, fs::copy_options::recursive);
  return scratch / name;
}

}  // namespace

TEST_CASE("weights are exported from a run with the bytes with which they were imported", "[cli][from][.slow]") {
  struct Case {
    const char *name, *dtype;
    size_t left;  // tensors that are not written: a tied head, inv_freq
  };
  for (const Case& c : {Case{"bf16", "bf16", 0}, Case{"f16", "f16", 0}, Case{"sharded", "f32", 0},
                        Case{"tied_head", "f32", 1}, Case{"old", "f32", 2}}) {
    INFO(c.name);
    Scratch scratch;
    const Result run = run_from(scratch, goldens / c.name, "run");
    INFO(run.err);
    REQUIRE(run.exit == 0);
    fs::create_directory(scratch / "out.tmp");  // the user's, and none of the export's business
    std::ofstream(scratch / "out.tmp" / "thesis.tex") << "x";
    const Result out = engine(scratch, {"ckpt", "export", "run", "--to", "out", "--dtype", c.dtype});
    INFO(out.err);
    REQUIRE(out.exit == 0);
    CHECK(fs::exists(scratch / "out.tmp" / "thesis.tex"));
    CHECK(fs::status(scratch / "out").permissions() == fs::status(scratch / "out.tmp").permissions());
    for (const std::string& name : names(scratch.path()))
      CHECK((name == "out" || name == "out.tmp" || !name.starts_with("out.")));
    CHECK(has(out.out, "read back and compared"));
    CHECK(names(scratch / "out") ==
          std::vector<std::string>{"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"});
    const auto before = stored(goldens / c.name), after = stored(scratch / "out");
    CHECK(after.size() + c.left == before.size());
    for (const auto& [name, bytes] : after) CHECK((bytes == before.at(name)));
    CHECK(has(read(scratch / "out" / "model.safetensors").substr(0, 100), R"("__metadata__":{"format":"pt"})"));
    // Several files and an index, with the same tensors.
    REQUIRE(engine(scratch, {"ckpt", "export", "run", "--to", "shards", "--dtype", c.dtype, "--shard-bytes", "9000"})
                .exit == 0);
    CHECK((stored(scratch / "shards") == after));
    const Json index = Json::parse(read(scratch / "shards" / "model.safetensors.index.json"));
    CHECK(index["weight_map"].size() == after.size());
    CHECK(fs::exists(scratch / "shards" / index["weight_map"]["model.norm.weight"].get<std::string>()));
    // And in again.
    CHECK(run_from(scratch, scratch / "shards", "again").exit == 0);
    CHECK((tensors(scratch / "again", 1).at("model-00000.safetensors") ==
           tensors(scratch / "run", 1).at("model-00000.safetensors")));
  }
}

TEST_CASE("config.json of an export has the run's options, and keeps other keys", "[cli][from]") {
  Scratch scratch;
  const fs::path source = copy(scratch, "single");
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"})
    scratch.write("single/" + std::string(name), "{}");
  REQUIRE(run_from(scratch, source, "run").exit == 0);
  CHECK(Json::parse(read(scratch / "run" / "run.json")).at("from") == source.string());
  const Result out = engine(scratch, {"ckpt", "export", "run", "--to", "out", "--dtype", "bf16"});
  INFO(out.err);
  REQUIRE(out.exit == 0);
  CHECK(has(out.out, "copied tokenizer_config.json, special_tokens_map.json"));
  CHECK(fs::exists(scratch / "out" / "special_tokens_map.json"));
  const Json config = Json::parse(read(scratch / "out" / "config.json"));
  CHECK(config.at("model_type") == "llama");
  CHECK(config.at("architectures") == Json::array({"LlamaForCausalLM"}));
  CHECK(config.at("torch_dtype") == "bfloat16");
  CHECK(config.at("rope_theta") == 500000.0);
  CHECK(config.at("rope_scaling").at("rope_type") == "llama3");
  CHECK(config.at("rope_scaling").at("original_max_position_embeddings") == 16);
  CHECK_FALSE(config.at("rope_scaling").contains("beta_fast"));
  CHECK(config.at("eos_token_id") == 2);
  CHECK(config.at("num_key_value_heads") == 2);
  CHECK_FALSE(config.contains("transformers_version"));

  SECTION("a directory that is not empty is not changed") {
    const Result again = engine(scratch, {"ckpt", "export", "run", "--to", "out"});
    CHECK(again.exit == 2);
    CHECK(has(again.err, "already exists"));
    CHECK(engine(scratch, {"ckpt", "export", "none", "--to", "new"}).exit == 2);
    CHECK_FALSE(fs::exists(scratch / "new"));
  }
  SECTION("a full disk leaves nothing") {
    Limits limits;
    limits.file_bytes = 20000;
    const Result full = engine(scratch, {"ckpt", "export", "run", "--to", "full"}, limits);
    CHECK(full.exit == 10);
    CHECK(has(full.err, "model.safetensors"));
    CHECK_FALSE(fs::exists(scratch / "full"));
    CHECK_FALSE(fs::exists(scratch / "full.tmp"));
  }
  SECTION("a damaged checkpoint is not exported") {
    const fs::path file = checkpoint(scratch / "run", 1) / "model-00000.safetensors";
    std::string bytes = read(file);
    bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
    scratch.write(fs::relative(file, scratch.path()), bytes);
    const Result bad = engine(scratch, {"ckpt", "export", "run", "--to", "bad"});
    CHECK(bad.exit == 9);
    CHECK_FALSE(fs::exists(scratch / "bad"));
  }
}

TEST_CASE("an export includes the tokenizer of [data]", "[cli][from][.slow]") {
  Scratch scratch;
  scratch.config();
  const auto exported = [&](const std::string& out, const std::string& tokenizer) {
    const Result run =
        engine(scratch, {"run", "config.toml", "--out", "run-" + out, "train.steps=1", "model.vocab_size=1000",
                         "data.tokenizer=" + tokenizer, "data.special_tokens=true"});
    INFO(run.err);
    REQUIRE(run.exit == 0);
    const Result result = engine(scratch, {"ckpt", "export", "run-" + out, "--to", out});
    INFO(result.err);
    REQUIRE(result.exit == 0);
    CHECK(has(result.out, "tokenizer of the run: "));
    // Its ids are the run's.
    const Args ids = {"generate", "", "The engine's 123 \u00e9", "--ids", "--tokens", "1", "--seed", "3"};
    Args of_run = ids, of_export = ids;
    of_run[1] = "run-" + out, of_export[1] = out;
    of_run.insert(of_run.end(), {"--tokenizer", tokenizer});
    of_export.insert(of_export.end(), {"--tokenizer", out});
    const Result a = engine(scratch, of_run), b = engine(scratch, of_export);
    CHECK(a.exit == 0);
    CHECK(b.exit == 0);
    CHECK(a.err.substr(0, a.err.find('\n')) == b.err.substr(0, b.err.find('\n')));
    CHECK(has(a.err, "prompt ids: "));
    return Json::parse(read(scratch / out / "tokenizer_config.json"));
  };
  const Json gpt2 = exported("gpt2", (tokenizers / "gpt2").string());
  CHECK(read(scratch / "gpt2" / "tokenizer.json") == read(tokenizers / "gpt2" / "tokenizer.json"));
  CHECK(gpt2.at("tokenizer_class") == "PreTrainedTokenizerFast");
  CHECK(gpt2.at("eos_token") == "<|endoftext|>");
  CHECK(Json::parse(read(scratch / "gpt2" / "config.json")).at("eos_token_id") == 0);
  const Json opt = exported("opt", (tokenizers / "opt").string());
  CHECK(opt.at("tokenizer_class") == "GPT2Tokenizer");
  CHECK(opt.at("add_bos_token") == true);
  CHECK(opt.at("eos_token") == "</s>");
  CHECK(exported("llama", (tokenizers / "llama" / "tokenizer.model").string()).at("tokenizer_class") ==
        "SentencePieceBackend");
  // Bytes are a tokenizer too.
  CHECK(exported("plain", "bytes").at("tokenizer_class") == "PreTrainedTokenizerFast");
  CHECK(Json::parse(read(scratch / "plain" / "config.json")).at("eos_token_id").is_null());
  // A missing tokenizer is reported.
  fs::copy(tokenizers / "gpt2", scratch / "words");
  REQUIRE(engine(scratch, {"run", "config.toml", "--out", "run-gone", "train.steps=1", "model.vocab_size=1000",
                           "data.tokenizer=words"})
              .exit == 0);
  fs::remove_all(scratch / "words");
  const Result gone = engine(scratch, {"ckpt", "export", "run-gone", "--to", "gone"});
  CHECK(gone.exit == 0);
  CHECK(has(gone.err, "warning: the tokenizer of the run is not exported: "));
  CHECK_FALSE(fs::exists(scratch / "gone" / "tokenizer.json"));
  // The name of a model on huggingface.co is not a directory: the help says how to download it.
  scratch.write("hub.toml", "[model]\nfrom = \"someone/model-7b\"\n[data]\npaths = [\"text.txt\"]\n");
  const Result hub = engine(scratch, {"check", "hub.toml"});
  CHECK(hub.exit == 2);
  CHECK(has(hub.err, " engine model get someone/model-7b\n"));
  CHECK(has(hub.err, "hf download someone/model-7b --local-dir "));
  CHECK(has(hub.err, "HF_ENDPOINT names a mirror,"));
  CHECK(has(hub.err, "modelscope download --model someone/model-7b --local_dir "));
}

TEST_CASE("a run resumes from its own checkpoint, not from its original weights", "[cli][from]") {
  Scratch scratch;
  const fs::path source = copy(scratch, "single");
  const Args rate = {"optimizer.learning_rate=1e-3", "train.steps=4"};
  REQUIRE(run_from(scratch, source, "whole", rate).exit == 0);
  REQUIRE(run_from(scratch, source, "parts", {"optimizer.learning_rate=1e-3", "train.steps=2"}).exit == 0);
  fs::remove_all(source);
  const Result on = engine(scratch, {"run", "parts", "train.steps=4"});
  INFO(on.err);
  CHECK(on.exit == 0);
  CHECK(numbers(scratch / "parts") == numbers(scratch / "whole"));
  CHECK((tensors(scratch / "parts", 4) == tensors(scratch / "whole", 4)));
  // A new run needs it.
  const Result gone = run_from(scratch, source, "new");
  CHECK(gone.exit == 2);
  CHECK(has(gone.err, "is not a directory"));
  CHECK_FALSE(fs::exists(scratch / "new"));
}

TEST_CASE("a new run from a run, or from one of its checkpoints: its weights, a new optimizer", "[cli][from]") {
  Scratch scratch;
  scratch.config();
  REQUIRE(engine(scratch, {"run", "config.toml", "--out", "first"}).exit == 0);
  for (const char* source : {"first", "first/checkpoints/step-00000004"}) {
    INFO(source);
    const std::string out = "from-" + fs::path(source).filename().string();
    const Result run = run_from(scratch, scratch / source, out);
    INFO(run.err);
    REQUIRE(run.exit == 0);
    const int64_t step = out == "from-first" ? 8 : 4;
    CHECK((tensors(scratch / out, 1).at("model-00000.safetensors") ==
           tensors(scratch / "first", step).at("model-00000.safetensors")));
    CHECK(has(read(scratch / out / "config.resolved.toml"), "hidden_size = 32"));
  }
  const Result wrong = run_from(scratch, scratch / "first", "wrong", {"model.hidden_size=64"});
  CHECK(wrong.exit == 2);
  CHECK(has(wrong.err, "`hidden_size` contradicts the weights"));
  scratch.write("place.toml", "[model]\nfrom = \"first\"\nhidden_size = 64\n[data]\npaths = [\"text.txt\"]\n");
  const Result place = engine(scratch, {"check", "place.toml"});
  CHECK(place.exit == 2);
  CHECK(has(place.err, "place.toml:3:15"));
  CHECK(has(place.err, "config.resolved.toml says 32"));
}

TEST_CASE("eval of a Hugging Face directory", "[cli][from]") {
  Scratch scratch;
  const Args data = {"data.paths=[\"text.txt\"]", "data.validation=0.1", "train.sequence_length=16"};
  Args args = {"eval", (goldens / "single").string(), "--json"};
  args.insert(args.end(), data.begin(), data.end());
  const Result eval = engine(scratch, args);
  INFO(eval.err);
  REQUIRE(eval.exit == 0);
  const Json json = Json::parse(eval.out);
  CHECK(json.at("tokens") > 0);
  CHECK(json.at("perplexity").get<double>() == Approx(std::exp(json.at("loss").get<double>())));
  // A configuration gives the same data, and a run the same weights.
  scratch.write("data.toml", "[data]\npaths = [\"text.txt\"]\nvalidation = 0.1\n[train]\nsequence_length = 16\n");
  const Result file = engine(scratch, {"eval", (goldens / "single").string(), "--json", "--data", "data.toml"});
  INFO(file.err);
  REQUIRE(file.exit == 0);
  CHECK(Json::parse(file.out).at("loss") == json.at("loss"));
  REQUIRE(run_from(scratch, goldens / "single", "run").exit == 0);
  const Result run = engine(scratch, {"eval", "run", "--json", "--data", "data.toml", "train.micro_batch=1"});
  INFO(run.err);
  REQUIRE(run.exit == 0);
  CHECK(Json::parse(run.out).at("loss").get<double>() == Approx(json.at("loss").get<double>()).epsilon(1e-6));
  const Result none = engine(scratch, {"eval", (goldens / "single").string()});
  CHECK(none.exit == 2);
  CHECK(has(none.err, "[data]"));
}

TEST_CASE("eval and generate read pytorch_model.bin as safetensors", "[cli][from]") {
  Scratch scratch;
  fs::copy(goldens.parent_path() / "hf_torch" / "opt", scratch / "torch");
  fs::copy(goldens / "opt" / "config.json", scratch / "torch");
  fs::copy(goldens / "opt", scratch / "safe");
  std::string out[2];
  for (const bool torch : {false, true}) {
    const std::string directory = torch ? "torch" : "safe";
    const Result eval = engine(scratch, {"eval", directory, "--json", "data.paths=[\"text.txt\"]",
                                         "data.validation=0.1", "train.sequence_length=16"});
    const Result text = engine(scratch, {"generate", directory, "x", "--tokenizer", "bytes", "--tokens", "8"});
    INFO(eval.err << text.err);
    REQUIRE(eval.exit == 0);
    REQUIRE(text.exit == 0);
    out[torch] = Json::parse(eval.out).at("loss").dump() + text.out;
  }
  CHECK(out[0] == out[1]);
  // A pickle that calls something is refused, and what it calls is named.
  std::string bytes = read(scratch / "torch" / "pytorch_model.bin");
  const size_t at = bytes.find("collections\nOrderedDict");
  REQUIRE(at != std::string::npos);
  scratch.write("torch/pytorch_model.bin", bytes.replace(at, 23, "subprocess\ncheck_output"));
  const Result refused = engine(scratch, {"generate", "torch", "x", "--tokenizer", "bytes"});
  INFO(refused.err);
  CHECK(refused.exit == 9);
  CHECK(has(refused.err,
            "torch/pytorch_model.bin: data.pkl: byte 2: `subprocess.check_output` is not allowed in a weights file"));
  CHECK(has(refused.err, "tools/bin-to-safetensors"));
}

TEST_CASE("weights that are not finite give no loss and no text", "[cli][from]") {
  Scratch scratch;
  std::string bytes = read(copy(scratch, "single") / "model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const Json header = Json::parse(bytes.substr(8, length));
  const Args eval = {"eval", "single", "data.paths=[\"text.txt\"]", "data.validation=0.1", "train.sequence_length=16"};
  const Args generate = {"generate", "single", "x", "--tokenizer", "bytes", "--tokens", "4"};
  CHECK(engine(scratch, eval).exit == 0);
  CHECK(engine(scratch, generate).exit == 0);
  const uint64_t begin = header["model.layers.0.mlp.up_proj.weight"]["data_offsets"][0];
  const float nan = std::nanf("");
  std::memcpy(bytes.data() + 8 + length + begin, &nan, sizeof nan);
  scratch.write("single/model.safetensors", bytes);
  const Result loss = engine(scratch, eval), text = engine(scratch, generate);
  CHECK(loss.exit == 7);
  CHECK(loss.out.empty());
  CHECK(has(loss.err, "tokens is not finite"));
  CHECK(text.exit == 7);
  CHECK(text.out.empty());
  CHECK(has(text.err, "the logits after 1 tokens are not finite"));
}

TEST_CASE("the tokenizer of existing weights is used, and no other is accepted", "[cli][from]") {
  Scratch scratch;
  const fs::path source = copy(scratch, "single");
  fs::copy(tokenizers / "neox" / "tokenizer.json", source / "tokenizer.json");
  std::string config = read(source / "config.json");  // a row for each of its ids
  const auto widen = [&](const std::string& from, const std::string& to) {
    REQUIRE(config.find(from) != std::string::npos);
    config.replace(config.find(from), from.size(), to);
  };
  widen("\"vocab_size\": 256", "\"vocab_size\": 1000");
  scratch.write("single/config.json", config);
  scratch.write("c.toml", "[model]\nfrom = \"single\"\n[data]\npaths = [\"text.txt\"]\n");
  const Result shown = engine(scratch, {"config", "show", "c.toml"});
  INFO(shown.err);
  CHECK(has(shown.out, "tokenizer = \"" + source.string()));
  CHECK(has(shown.out, "special_tokens = true"));
  for (const std::string& other : {std::string("bytes"), (tokenizers / "gpt2").string()}) {
    const Result refused = engine(scratch, {"check", "c.toml", "data.tokenizer=" + other});
    INFO(refused.err);
    CHECK(refused.exit == 4);
    CHECK(has(refused.err, "gives other ids than the tokenizer of the weights, " + source.string()));
  }
  // A tokenizer with the same content elsewhere is as good.
  CHECK(engine(scratch, {"config", "show", "c.toml", "data.tokenizer=" + (tokenizers / "neox").string()}).exit == 0);

  // OPT's folders hold these two and no tokenizer.json.
  fs::remove(source / "tokenizer.json");
  for (const char* file : {"vocab.json", "merges.txt"}) fs::copy(tokenizers / "opt" / file, source / file);
  CHECK(has(engine(scratch, {"config", "show", "c.toml"}).out, "tokenizer = \"" + source.string()));

  // That of a run is the run's.
  scratch.config();
  const Args small = {"model.vocab_size=1000", "train.steps=1", "data.tokenizer=" + (tokenizers / "gpt2").string()};
  Args run = {"run", "config.toml", "--out", "first"};
  run.insert(run.end(), small.begin(), small.end());
  const Result first = engine(scratch, run);
  INFO(first.err);
  REQUIRE(first.exit == 0);
  scratch.write("on.toml", "[model]\nfrom = \"first\"\n[data]\npaths = [\"text.txt\"]\n");
  CHECK(has(engine(scratch, {"config", "show", "on.toml"}).out, "tokenizer = \"" + (tokenizers / "gpt2").string()));
  for (const Args& args :
       {Args{"check", "on.toml", "data.tokenizer=bytes"}, Args{"eval", "first", "data.tokenizer=bytes"}})
    CHECK(has(engine(scratch, args).err, "gives other ids"));
}

TEST_CASE("paths of eval --data are relative to that file", "[cli][from]") {
  Scratch scratch;
  fs::create_directories(scratch / "place");
  fs::copy(scratch / "text.txt", scratch / "place" / "here.txt");
  fs::copy(tokenizers / "gpt2", scratch / "place" / "words");
  scratch.config();
  const Result run = engine(scratch, {"run", "config.toml", "--out", "run", "train.steps=1", "model.vocab_size=1000",
                                      "data.tokenizer=place/words"});
  INFO(run.err);
  REQUIRE(run.exit == 0);
  REQUIRE(engine(scratch, {"ckpt", "export", "run", "--to", "hf"}).exit == 0);
  scratch.write("place/data.toml",
                "[data]\npaths = [\"here.txt\"]\ntokenizer = \"words\"\nvalidation = 0.1\n"
                "[train]\nsequence_length = 16\nmicro_batch = 1\n");
  for (const char* target : {"run", "hf"}) {
    const Result eval = engine(scratch, {"eval", target, "--data", "place/data.toml", "--batches", "1"});
    INFO(target << ": " << eval.err);
    CHECK(eval.exit == 0);
    CHECK(has(eval.err, (scratch / "place" / ".engine-cache").string()) == (std::string(target) == "hf"));
  }
}

TEST_CASE("weights that do not fit are refused before memory is taken", "[cli][from]") {
  Scratch scratch;
  const fs::path source = copy(scratch, "tied");
  Json config = Json::parse(read(source / "config.json"));
  config["vocab_size"] = 524288, config["hidden_size"] = 512;  // 1074 MB, four times that with what AdamW keeps
  scratch.write("tied/config.json", config.dump());
  const Args data = {"data.paths=[\"text.txt\"]", "train.sequence_length=16"};
#ifdef SANITIZED
  constexpr uint64_t most = 400'000'000;  // sanitizers keep up to 256 MiB of what was freed
#else
  constexpr uint64_t most = 100'000'000;
#endif
  for (const Result& refused :
       {run_from(scratch, source, "run"), engine(scratch, {"generate", "tied", "a", "--tokenizer", "bytes"}),
        engine(scratch, {"eval", "tied", data[0], data[1]})}) {
    INFO(refused.err);
    CHECK(refused.exit == 9);
    CHECK(has(refused.err, "model.embed_tokens.weight: is [256, 16] in the file, [524288, 512] in the model"));
    CHECK(refused.peak_bytes() < most);
  }
  // Nor is it a matter of memory where that is too small as well.
  config["vocab_size"] = 1 << 20, config["hidden_size"] = 1 << 16;  // 275 GB
  scratch.write("tied/config.json", config.dump());
  for (const Result& refused :
       {run_from(scratch, source, "run"), engine(scratch, {"eval", "tied", data[0], data[1]})}) {
    INFO(refused.err);
    CHECK(refused.exit == 9);
  }
  CHECK_FALSE(fs::exists(scratch / "run"));
}

TEST_CASE("check reads the headers of the weights", "[cli][from]") {
  Scratch scratch;
  const fs::path source = copy(scratch, "single");
  scratch.write("c.toml",
                "[model]\nfrom = \"single\"\n[data]\npaths = [\"text.txt\"]\n[train]\nsequence_length = 16\n");
  const Result good = engine(scratch, {"check", "c.toml"});
  INFO(good.err);
  CHECK(good.exit == 0);
  CHECK(has(good.out, "  from "));
  fs::rename(source / "model.safetensors", source / "pytorch_model.bin");
  const Result bad = engine(scratch, {"check", "c.toml"});
  CHECK(bad.exit == 9);
  CHECK(has(bad.err, "pytorch_model.bin is a safetensors file"));
  CHECK(has(bad.err, "help: rename it to model.safetensors"));
  CHECK(engine(scratch, {"ckpt", "verify", "none"}).exit == 9);
}
