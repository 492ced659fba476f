// SPDX-License-Identifier: Apache-2.0
// `engine init chat` and `engine init lora` with a folder and files; the examples of examples/chat.
#include <fstream>
#include <regex>

#include "harness.hpp"

namespace init_chat {

using namespace cli;

namespace {

const std::string examples = std::string(ENGINE_SOURCE_DIR) + "/examples/chat/";
const std::string rows = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b c"}]})"
                         "\n"
                         R"({"messages": [{"role": "user", "content": "d"}, {"role": "assistant", "content": "e"}]})"
                         "\n";

// The stand-in's folder of docs/chat-from-zero.md, in `scratch`.
void make_stand_in(const Scratch& scratch) {
  fs::copy(examples, scratch / "chat", fs::copy_options::recursive);
  const Result run = engine(scratch, {"run", "chat/stand-in.toml", "--out", "runs/stand-in"});
  INFO(run.err);
  REQUIRE(run.exit == 0);
  REQUIRE(engine(scratch, {"ckpt", "export", "runs/stand-in", "--to", "model"}).exit == 0);
}

std::string init_refused(const Scratch& scratch, const Args& words, const std::string& said) {
  Args all = {"init"};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), {"-o", "refused.toml"});
  const Result result = engine(scratch, all);
  INFO(result.err);
  CHECK(result.exit == 2);
  CHECK(has(result.err, said));
  CHECK_FALSE(fs::exists(scratch / "refused.toml"));
  return result.err;
}

}  // namespace

TEST_CASE("init chat writes what check accepts, and says what does not fit", "[cli]") {
  Scratch scratch;
  make_stand_in(scratch);
  scratch.write("rows.jsonl", rows);
  // Paths are those seen from the file that is written.
  fs::create_directory(scratch / "sub");
  const Result made = engine(scratch, {"init", "chat", "model", "chat/chats.jsonl", "rows.jsonl", "-o", "sub/c.toml"});
  INFO(made.err);
  REQUIRE(made.exit == 0);
  CHECK(std::regex_search(made.err, std::regex("^planned: 267912 parameters, .* of .*: fits\nwrote sub/c.toml; what of "
                                               "it trains:  engine data inspect sub/c.toml; then: ")));
  const std::string text = read(scratch / "sub/c.toml");
  CHECK(has(text, "from = \"../model\""));
  CHECK(has(text, "paths = [\"../chat/chats.jsonl\", \"../rows.jsonl\"]"));
  CHECK(has(text, "plugin = \"fp32\""));
  CHECK(engine(scratch, {"init", "chat", "model", "rows.jsonl", "-o", "sub/c.toml"}).exit == 2);  // not overwritten
  const Result checked = engine(scratch, {"check", "sub/c.toml"});
  INFO(checked.err);
  CHECK(checked.exit == 0);
  CHECK(has(engine(scratch, {"data", "inspect", "sub/c.toml"}).out, "<|im_end|>+}\n"));
  // To stdout; weights of 16 bits.
  const std::string config = read(scratch / "model/config.json");
  const auto dtype = [&](const std::string& word) {
    std::ofstream(scratch / "model/config.json") << std::regex_replace(config, std::regex("float32"), word);
    return engine(scratch, {"init", "chat", "model", "rows.jsonl"}).out;
  };
  CHECK(std::regex_search(dtype("bfloat16"), std::regex("plugin = \"bf16\" +# the folder's weights are bfloat16")));
  CHECK(has(dtype("float32"), "from = \"model\""));
  // An adapter beside it.
  const Result lora = engine(scratch, {"init", "lora", "model", "rows.jsonl", "-o", "lora.toml"});
  INFO(lora.err);
  REQUIRE(lora.exit == 0);
  const Result adapter = engine(scratch, {"check", "lora.toml", "data.validation=0.0", "train.eval_every=0"});
  INFO(adapter.err);
  CHECK(adapter.exit == 0);
  CHECK(has(adapter.out, "lora replaces 28 calls"));
}

TEST_CASE("init chat tells a model that no machine of today holds, and writes all the same", "[cli][.slow]") {
  Scratch scratch;
  make_stand_in(scratch);
  scratch.write("rows.jsonl", rows);
  const std::string config = read(scratch / "model/config.json");
  std::ofstream(scratch / "model/config.json")
      << std::regex_replace(std::regex_replace(config, std::regex("\"hidden_size\": 72"), "\"hidden_size\": 73728"),
                            std::regex("\"intermediate_size\": 192"), "\"intermediate_size\": 4194304");
  const Result large = engine(scratch, {"init", "chat", "model", "rows.jsonl", "-o", "large.toml"});
  INFO(large.err);
  CHECK(large.exit == 0);
  CHECK(has(large.err, "DOES NOT FIT\n"));
  CHECK(fs::exists(scratch / "large.toml"));
}

TEST_CASE("init chat refuses a folder that cannot be trained on conversations", "[cli]") {
  Scratch scratch;
  make_stand_in(scratch);
  scratch.write("rows.jsonl", rows);
  init_refused(scratch, {"chat"}, "init chat needs a model's folder and the files of conversations");
  init_refused(scratch, {"chat", "model"}, "engine init chat DIR FILE... -o run.toml");
  init_refused(scratch, {"chat", "nowhere", "rows.jsonl"}, "`nowhere` is no folder");
  init_refused(scratch, {"chat", "model", "no.jsonl"}, "there is no file no.jsonl");
  init_refused(scratch, {"chat", "runs/stand-in", "rows.jsonl"}, "engine ckpt export RUN --to DIR");
  init_refused(scratch, {"tiny", "--chat-template", "t.jinja"}, "--chat-template is for `engine init chat`");
  init_refused(scratch, {"llama", "tiny", "tiny"}, "init takes a model, or a plugin and its preset");
  // The folder of a base model.
  const std::string settings = read(scratch / "model/tokenizer_config.json");
  const auto chat_template = Json::parse(settings).at("chat_template").get<std::string>();
  scratch.write("model/tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  const std::string base = init_refused(scratch, {"chat", "model", "rows.jsonl"}, "model has no chat template");
  CHECK(has(base, "help: start from the instruct model of the same family"));
  init_refused(scratch, {"chat", "model", "rows.jsonl", "--chat-template", "t.jinja"}, "there is no file t.jinja");
  scratch.write("t.jinja", chat_template);
  const Result made =
      engine(scratch, {"init", "chat", "model", "rows.jsonl", "--chat-template", "t.jinja", "-o", "t.toml"});
  INFO(made.err);
  CHECK(made.exit == 0);
  CHECK(has(read(scratch / "t.toml"), "chat_template = \"t.jinja\""));
  CHECK(engine(scratch, {"data", "inspect", "t.toml", "data.validation=0.0"}).exit == 0);
  fs::remove(scratch / "model/tokenizer.json");
  init_refused(scratch, {"chat", "model", "rows.jsonl", "--chat-template", "t.jinja"}, "model has no tokenizer");
  fs::remove(scratch / "model/model.safetensors");
  fs::remove(scratch / "model/config.json");
  init_refused(scratch, {"chat", "model", "rows.jsonl"}, "model");
}

TEST_CASE("the recipes of examples/chat plan as their page says", "[cli]") {
  Scratch scratch;
  const auto planned = [&](const std::string& name, Args more = {}) {
    more.insert(more.begin(), {"plan", examples + name + ".toml", "--json"});
    const Result result = engine(scratch, more);
    INFO(result.err);
    REQUIRE((result.exit == 0 || result.exit == 5));
    return Json::parse(result.out);
  };
  const auto gigabytes = [](const Json& plan) {
    return plan.at("ranks").at(0).at("device_peak_bytes").get<double>() / 1e9;
  };
  const Json smol = planned("smollm2-135m");
  CHECK(smol.at("parameters") == 134'515'008);  // as transformers counts SmolLM2-135M
  CHECK(smol.at("fits") == true);
  // A card of 80 GB holds LoRA of 8B in bf16 with all activations; one of 24 GB recomputes them, or holds it in 4 bits.
  const Json lora = planned("llama-8b-lora-80g");
  CHECK(lora.at("fits") == true);
  CHECK(gigabytes(lora) == Approx(43.6).epsilon(0.02));
  CHECK(planned("llama-8b-lora-80g", {"device.describe=rtx4090"}).at("fits") == false);
  const Json narrow = planned("llama-8b-lora-80g", {"device.describe=rtx4090", "recompute.policy=full"});
  CHECK(narrow.at("fits") == true);
  CHECK(gigabytes(narrow) == Approx(21.3).epsilon(0.02));
  const Json four = planned("llama-8b-qlora-24g");
  CHECK(four.at("fits") == true);
  CHECK(gigabytes(four) == Approx(15.3).epsilon(0.02));
  CHECK(gigabytes(planned("llama-8b-qlora-24g", {"--unset", "precision.frozen"})) == Approx(24.5).epsilon(0.02));
  // One of 24 GB cannot hold the frozen weights of 32B in 4 bits, but may read them from the host.
  const Json streamed = planned("qwen3-32b-qlora-24g");
  CHECK(streamed.at("fits") == true);
  CHECK(gigabytes(streamed) == Approx(12.75).epsilon(0.02));
  CHECK(streamed.at("ranks").at(0).at("host_peak_bytes").get<double>() / 1e9 == Approx(21.1).epsilon(0.02));
  const Args here = {"offload.parameters=none", "train.micro_batch=1", "train.accumulate=8"};
  const Json held = planned("qwen3-32b-qlora-24g", here);
  CHECK(held.at("fits") == false);
  // The copies run beside the computation: they cost less than a twentieth of the step.
  CHECK(streamed.at("step_seconds_estimate").get<double>() < 1.05 * held.at("step_seconds_estimate").get<double>());
  const Result mamba = engine(scratch, {"plan", examples + "mamba-lora.toml"});
  CHECK(has(mamba.out, "maps: dt_proj 8, in_proj 8, out_proj 8, x_proj 8"));
}

}  // namespace init_chat
