// SPDX-License-Identifier: Apache-2.0
// Reports about other trainers, as whole runs on conversations: losses that depend on how a batch is divided
// (transformers #37766, LLaMA-Factory #5747), documents of a packed sample that see each other (mamba #478), LoRA on
// Mamba that is silently partial, or another model after the merge (peft #2274, #3554).
#include <fstream>
#include <sstream>

#include "harness.hpp"

namespace chat_reports {

using namespace cli;

namespace {

const std::string examples = std::string(ENGINE_SOURCE_DIR) + "/examples/chat/";

// A run of a small model of this family: three steps of eight conversations of uneven lengths; others are held out.
void write_run(const Scratch& scratch, const std::string& family) {
  std::istringstream rows(read(examples + "chats.jsonl"));
  std::ofstream train(scratch / "train.jsonl"), held(scratch / "held.jsonl");
  int count = 0;
  for (std::string row; std::getline(rows, row);) (count++ < 100 ? train : held) << row << "\n";
  const std::string llama =
      "plugin = \"llama\"\nhidden_size = 72\nintermediate_size = 96\nnum_hidden_layers = 2\nnum_attention_heads = 9\n"
      "num_key_value_heads = 3\nmax_position_embeddings = 512\n";
  const std::string mamba = "plugin = \"mamba\"\nhidden_size = 48\nnum_hidden_layers = 2\n";
  scratch.write("run.toml", "[model]\n" + (family == "llama" ? llama : mamba) + R"(vocab_size = 640
[data]
plugin = "chat"
paths = ["train.jsonl"]
validation_paths = ["held.jsonl"]
tokenizer = ")" + examples + R"(tokenizer"
[train]
steps = 3
micro_batch = 8
sequence_length = 256
eval_every = 3
[optimizer]
plugin = "adamw"
learning_rate = 1e-3
[checkpoint]
every = 0
[log]
every = 1
[device]
threads = 1
)");
}

std::vector<double> losses_of(const Scratch& scratch, const std::string& out, Args more) {
  Args all = {"run", "run.toml", "--out", out};
  all.insert(all.end(), more.begin(), more.end());
  const Result result = engine(scratch, all);
  INFO(result.err);
  REQUIRE(result.exit == 0);
  std::istringstream lines(read(scratch / (out + "/metrics.jsonl")));
  std::vector<double> losses;
  for (std::string line; std::getline(lines, line);)
    if (const Json step = Json::parse(line); step.contains("loss")) losses.push_back(step.at("loss"));
  REQUIRE(losses.size() == 3);
  return losses;
}

double eval_loss(const Scratch& scratch, Args more) {
  more.insert(more.begin(), "eval");
  more.push_back("--json");
  const Result result = engine(scratch, more);
  INFO(result.err);
  REQUIRE(result.exit == 0);
  return Json::parse(result.out).at("loss");
}

}  // namespace

TEST_CASE("reports: the loss on conversations does not depend on how the batch is divided", "[cli][.slow]") {
  for (const std::string family : {"llama", "mamba"}) {
    INFO(family);
    Scratch scratch;
    write_run(scratch, family);
    const auto whole = losses_of(scratch, "whole", {});
    int number = 0;
    for (const Args& split :
         {Args{"train.micro_batch=4", "train.accumulate=2"}, Args{"train.micro_batch=1", "train.accumulate=8"},
          Args{"train.micro_batch=4", "--ranks", "2"}}) {
      const auto divided = losses_of(scratch, "divided" + std::to_string(number++), split);
      for (size_t step = 0; step < whole.size(); ++step) CHECK(divided[step] == Approx(whole[step]).epsilon(2e-6));
    }
  }
}

TEST_CASE("reports: conversations that share a sample have the loss of conversations alone", "[cli][.slow]") {
  for (const std::string family : {"llama", "mamba"}) {
    INFO(family);
    Scratch scratch;
    write_run(scratch, family);
    losses_of(scratch, "trained", {});
    const double alone = eval_loss(scratch, {"trained", "data.pack=false"});
    CHECK(eval_loss(scratch, {"trained", "data.pack=true"}) == Approx(alone).epsilon(2e-6));
  }
}

TEST_CASE("reports: LoRA on Mamba reaches all four maps of every layer, and is the same model after the merge",
          "[cli][.slow]") {
  Scratch scratch;
  fs::copy(examples, scratch / "chat", fs::copy_options::recursive);
  const Args run = {"run", "chat/mamba-lora.toml", "--out", "lora", "optimizer.learning_rate=1e-2"};
  const Result trained = engine(scratch, run);
  INFO(trained.err);
  REQUIRE(trained.exit == 0);
  CHECK(has(
      engine(scratch, {"plan", "chat/mamba-lora.toml"}).out,
      "lora replaces 40 calls in 8 of 10 blocks, adds 64 tensors, freezes 82; maps: dt_proj 8, in_proj 8, out_proj 8, "
      "x_proj 8"));
  const Result absent = engine(scratch, {"plan", "chat/mamba-lora.toml", "adapter.targets=['*.q_proj']"});
  CHECK(absent.exit == 2);
  CHECK(has(absent.err, "`*.q_proj` matches no parameter of mamba"));
  REQUIRE(engine(scratch, {"ckpt", "export", "lora", "--to", "merged", "--merge"}).exit == 0);
  const double beside = eval_loss(scratch, {"lora"});
  const double merged =
      eval_loss(scratch, {"merged", "data.plugin=chat", "data.paths=['chat/chats.jsonl']", "data.validation=0.05",
                          "data.pack=true", "train.sequence_length=256", "train.micro_batch=2"});
  CHECK(merged == Approx(beside).epsilon(2e-6));
  // The adapter has learnt something: without it the loss is another.
  REQUIRE(engine(scratch, {"run", "chat/mamba-lora.toml", "--out", "start", "train.epochs=0.1"}).exit == 0);
  CHECK(eval_loss(scratch, {"start"}) > beside + 0.1);
}

}  // namespace chat_reports
