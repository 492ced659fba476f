// SPDX-License-Identifier: Apache-2.0
// Ranks that divide the layers ([parallel] tensor) write and read the files of whole models.
#include "divided.hpp"

using namespace cli;

namespace {

const std::string experts =
    "[model]\nplugin = 'qwen3_moe'\nvocab_size = 256\nhidden_size = 32\nmoe_intermediate_size = 24\n"
    "num_hidden_layers = 2\nnum_attention_heads = 4\nnum_key_value_heads = 4\nnum_experts = 4\n"
    "num_experts_per_tok = 2\n";
// One map to unequal parts: gate, x, B, C and time steps.
const std::string mamba2 =
    "[model]\nplugin = 'mamba2'\nvocab_size = 256\nhidden_size = 32\nnum_hidden_layers = 3\nnum_heads = 8\n"
    "head_dim = 8\nstate_size = 16\nn_groups = 1\n";
const std::string hybrid =
    "[model]\nplugin = 'bamba'\nvocab_size = 256\nhidden_size = 32\nintermediate_size = 64\nnum_hidden_layers = 2\n"
    "num_attention_heads = 4\nnum_key_value_heads = 4\nattn_layer_indices = [1]\nmamba_n_heads = 8\n"
    "mamba_n_groups = 2\nmamba_d_state = 16\n";
const std::string rest = rest_of("micro_batch = 4\nsequence_length = 16\n"), llama = small_llama(2, 4),
                  mamba = small_mamba(2), sizes = llama + rest;

}  // namespace

TEST_CASE("a checkpoint of divided layers goes on with any degree", "[ranks][.slow]") {
  const std::string model = GENERATE(llama, mamba2);
  INFO(model);
  Scratch scratch;
  scratch.config();
  scratch.write("divided.toml", model + rest);
  const auto run = [&](const std::string& name, const std::string& target, uint32_t ranks, uint32_t tensor, int steps,
                       const std::string& zero = "none") {
    train_divided(scratch, name, target, ranks, {"parallel.tensor", tensor, 4}, steps, {"zero.plugin=" + zero});
  };
  run("whole", "divided.toml", 1, 1, 6);
  run("two", "divided.toml", 2, 2, 6);
  near(scratch / "two", scratch / "whole", "loss");
  near(scratch / "two", scratch / "whole", "grad_norm");
  run("first", "divided.toml", 2, 2, 3);
  struct Case {
    uint32_t ranks, tensor;
    const char* zero;
  };
  for (const Case& c : {Case{1, 1, "none"}, {2, 2, "none"}, {4, 4, "none"}, {4, 2, "zero3"}, {2, 1, "zero2"}}) {
    const std::string name = std::to_string(c.ranks) + "-" + std::to_string(c.tensor);
    INFO(name);
    fs::copy(scratch / "first", scratch / name, fs::copy_options::recursive);
    run(name, name, c.ranks, c.tensor, 6, c.zero);
    near(scratch / name, scratch / "whole", "loss");
    CHECK(engine(scratch, {"ckpt", "verify", name}).exit == 0);
    // Every bit is that of the run that never stopped, if the degree is the same.
    CHECK((engine(scratch, {"ckpt", "diff", name, "two"}).exit == 0) == (c.tensor == 2 && c.ranks == 2));
  }
  // Each rank saved its part.
  CHECK(fs::exists(scratch / "two" / "checkpoints" / "step-00000006" / "model-00001.safetensors"));
}

TEST_CASE("divided layers start from and export the files of whole models", "[ranks][.slow]") {
  const std::string model = GENERATE(llama, experts, mamba, mamba2, hybrid);
  INFO(model);
  Scratch scratch;
  scratch.config();
  scratch.write("divided.toml", model + rest);
  const std::string still = "optimizer.learning_rate=1e-30";
  ran(scratch, {"divided.toml", "--out", "whole", "train.steps=3"}, 1);
  REQUIRE(engine(scratch, {"ckpt", "export", "whole", "--to", "hf"}).exit == 0);
  const std::string weights = read(scratch / "hf" / "model.safetensors");
  // A step that changes nothing, on ranks that read a part each.
  const auto exported = [&](const std::string& run, uint32_t ranks, uint32_t tensor, const std::string& from) {
    ran(scratch,
        {"divided.toml", "--out", run, "train.steps=1", still, "schedule.warmup_steps=0",
         "parallel.tensor=" + std::to_string(tensor), "model.from=" + from},
        ranks);
    REQUIRE(engine(scratch, {"ckpt", "export", run, "--to", run + "-hf"}).exit == 0);
    CHECK(read(scratch / (run + "-hf") / "model.safetensors") == weights);
  };
  exported("two", 2, 2, "hf");
  exported("four", 4, 4, "whole");
  exported("both", 4, 2, "two-hf");
  // Planted: an export of other values is another file.
  CHECK(read(scratch / "hf" / "model.safetensors").size() > 90000);
  ran(scratch, {"divided.toml", "--out", "trained", "train.steps=1", "parallel.tensor=2", "model.from=hf"}, 2);
  REQUIRE(engine(scratch, {"ckpt", "export", "trained", "--to", "trained-hf"}).exit == 0);
  CHECK(read(scratch / "trained-hf" / "model.safetensors") != weights);
  // One process generates from what ranks divided.
  const Result text = engine(scratch, {"generate", "trained", "a", "--tokens", "4"});
  INFO(text.err);
  CHECK(text.exit == 0);
}

TEST_CASE("adapters of divided layers are those of whole ones", "[ranks][.slow]") {
  Scratch scratch;
  scratch.config();
  scratch.write("divided.toml", sizes);
  ran(scratch, {"divided.toml", "--out", "base", "train.steps=3"}, 1);
  REQUIRE(engine(scratch, {"ckpt", "export", "base", "--to", "hf"}).exit == 0);
  scratch.write("lora.toml", sizes +
                                 "[adapter]\nplugin = 'lora'\nrank = 3\ntargets = ['all-linear']\ndora = true\n"
                                 "dropout = 0.1\n");
  const auto run = [&](const std::string& name, const std::string& target, uint32_t ranks, uint32_t tensor, int steps,
                       Args more = {}) {
    Args args = {target, "parallel.tensor=" + std::to_string(tensor), "train.steps=" + std::to_string(steps),
                 "train.micro_batch=" + std::to_string(4 * tensor / ranks)};
    if (target == "lora.toml") args.insert(args.end(), {"--out", name, "model.from=hf"});
    args.insert(args.end(), more.begin(), more.end());
    ran(scratch, args, ranks);
  };
  run("whole", "lora.toml", 1, 1, 6);
  run("two", "lora.toml", 2, 2, 3);
  fs::copy(scratch / "two", scratch / "four", fs::copy_options::recursive);
  for (const auto& [name, ranks, tensor] : {std::tuple("two", 2u, 2u), {"four", 4u, 4u}}) {
    run(name, name, ranks, tensor, 6);
    near(scratch / name, scratch / "whole", "loss");
    near(scratch / name, scratch / "whole", "grad_norm");
  }
  // Any degree writes and reads the same files of PEFT.
  REQUIRE(engine(scratch, {"ckpt", "export", "whole", "--to", "peft", "--format", "peft"}).exit == 0);
  run("again", "lora.toml", 2, 2, 1,
      {"model.adapter=peft", "optimizer.learning_rate=1e-30", "schedule.warmup_steps=0"});
  REQUIRE(engine(scratch, {"ckpt", "export", "again", "--to", "peft2", "--format", "peft"}).exit == 0);
  CHECK(read(scratch / "peft" / "adapter_model.safetensors") == read(scratch / "peft2" / "adapter_model.safetensors"));
  REQUIRE(engine(scratch, {"ckpt", "export", "two", "--to", "peft3", "--format", "peft"}).exit == 0);
  CHECK(read(scratch / "peft3" / "adapter_config.json") == read(scratch / "peft" / "adapter_config.json"));
}

TEST_CASE("a vocabulary that ranks do not divide stays whole, and is named", "[ranks]") {
  Scratch scratch;
  scratch.config();
  scratch.write("divided.toml", sizes);
  const auto plan = [&](const char* rows, const char* device = "device.threads=1") {
    const Result result = engine(scratch, {"plan", "divided.toml", "parallel.tensor=2", rows, device});
    INFO(result.err);
    REQUIRE(result.exit == 0);
    return result.out + result.err;
  };
  const std::string odd = plan("model.vocab_size=257");
  CHECK(has(odd, "parallel.tensor leaves lm_head.weight whole: 2 ranks do not divide its 257 rows"));
  CHECK(has(odd, "2 ranks divide 14 of 21 tensors"));
  const std::string even = plan("model.vocab_size=256");
  CHECK_FALSE(has(even, "whole"));
  CHECK(has(even, "2 ranks divide 16 of 21 tensors"));
  const std::string described = plan("model.vocab_size=256", "device.describe=h200");
  CHECK_FALSE(has(described, "whole"));
  CHECK(has(described, "2 ranks divide 16 of 21 tensors"));
}

TEST_CASE("ranks that the degree does not divide are refused before they start", "[ranks]") {
  Scratch scratch;
  scratch.config();
  scratch.write("divided.toml", sizes);
  const Result uneven = engine(scratch, {"run", "divided.toml", "--out", "no", "--ranks", "3", "parallel.tensor=2"});
  CHECK(uneven.exit == 2);
  CHECK(has(uneven.err, "parallel.tensor = 2 does not divide 3 ranks"));
  CHECK_FALSE(fs::exists(scratch / "no"));
  const Result alone = engine(scratch, {"run", "divided.toml", "--out", "no", "parallel.tensor=2"});
  CHECK(alone.exit == 2);
  CHECK(has(alone.err, "parallel.tensor = 2 does not divide 1 rank"));
}
