// SPDX-License-Identifier: Apache-2.0
// Frozen weights beside adapters, in 16 bits or packed, on the device or on tiers: checkpoints, older ones, kills,
// memory.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <random>

#include "from.hpp"

namespace frozen_cli {

using namespace cli;

namespace {

const std::string adapter =
    "\n[[transforms]]\nplugin = \"lora\"\nrank = 4\nalpha = 8.0\ntargets = [\"*.q_proj\", \"*.down_proj\"]\n";

Args plus(Args words, const Args& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// States on disks, through the page cache: a temporary folder may be one that has no other way.
Args disks(const Scratch& scratch) {
  fs::create_directories(scratch / "disk");
  return {"offload.nvme_paths=[\"" + (scratch / "disk").string() + "\"]", "offload.nvme_direct=false"};
}

// Name -> type, of the parameters in a checkpoint.
std::map<std::string, std::string> types(const fs::path& run, int64_t step) {
  std::map<std::string, std::string> out;
  for (const auto& [name, stored] : stored(checkpoint(run, step))) out[name] = stored.substr(0, stored.find('['));
  return out;
}

}  // namespace

TEST_CASE("frozen weights are read, saved and merged in the type that compute reads", "[cli]") {
  Scratch scratch;
  scratch.config();
  scratch.write("adapted.toml", read(scratch / "config.toml") + adapter);
  const auto begun = [&](const std::string& out, const Args& more) {
    return good(scratch, plus({"run", "adapted.toml", "--out", out, "schedule.kind=constant"}, more));
  };
  // A run in f32, whose weights the others begin with.
  good(scratch, {"run", "config.toml", "--out", "base", "train.steps=2"});
  good(scratch, {"ckpt", "export", "base", "--to", "wide", "--dtype", "f32"});
  good(scratch, {"ckpt", "export", "base", "--to", "narrow", "--dtype", "bf16"});
  const auto from = [&](const std::string& folder, const Args& more) {
    return plus({"--unset", "model.preset", "model.from=" + (scratch / folder).string(), "precision.plugin=bf16"},
                more);
  };
  const Result wide = begun("wide.run", from("wide", {"train.steps=4"}));
  CHECK(has(wide.err, "21 tensors are F32 there and BF16 here: their values are rounded to nearest, once"));
  const Result narrow = begun("narrow.run", from("narrow", {"train.steps=4"}));
  CHECK_FALSE(has(narrow.err, "rounded"));
  // Compute reads the same values.
  CHECK(column(scratch / "wide.run", "loss") == column(scratch / "narrow.run", "loss"));
  CHECK((tensors(scratch / "wide.run", 4) == tensors(scratch / "narrow.run", 4)));
  size_t paths = 0;
  for (const auto& [name, type] : types(scratch / "wide.run", 4)) {
    INFO(name);
    const bool path = has(name, ".lora_");
    paths += path;
    if (!has(name, "exp_avg")) CHECK(type == (path ? "F32" : "BF16"));
  }
  CHECK(paths > 0);

  // A run in fp32 has its frozen weights in f32, as runs in bf16 once had. It goes on in bf16, and back in fp32.
  begun("older", {"train.steps=2"});
  CHECK(types(scratch / "older", 2).at("model.layers.0.self_attn.q_proj.weight") == "F32");
  const Result on = good(scratch, {"run", "older", "train.steps=4", "precision.plugin=bf16"});
  CHECK(has(on.err, "21 tensors are F32 there and BF16 here"));
  CHECK(types(scratch / "older", 4).at("model.layers.0.self_attn.q_proj.weight") == "BF16");
  CHECK_FALSE(has(good(scratch, {"run", "older", "train.steps=5"}).err, "rounded"));
  CHECK_FALSE(has(good(scratch, {"run", "older", "train.steps=6", "precision.plugin=fp32"}).err, "rounded"));
  CHECK(types(scratch / "older", 6).at("model.layers.0.self_attn.q_proj.weight") == "F32");

  // The merged model computes as the trained one.
  const auto loss = [&](const std::string& target) {
    return double(Json::parse(good(scratch, {"eval", target, "data.paths=[\"text.txt\"]", "train.sequence_length=32",
                                             "train.micro_batch=2", "--all", "--json", "precision.plugin=fp32"})
                                  .out)
                      .at("loss"));
  };
  good(scratch, {"ckpt", "export", "wide.run", "--to", "merged", "--merge", "--dtype", "f32"});
  CHECK(loss("merged") == Approx(loss("wide.run")).epsilon(1e-6));
  CHECK_FALSE(good(scratch, {"generate", "wide.run", "a", "--tokens", "4"}).out.empty());
}

TEST_CASE("a killed run whose frozen weights come from a tier goes on bit for bit", "[cli]") {
  Scratch scratch;
  scratch.config();
  scratch.write("adapted.toml", read(scratch / "config.toml") + adapter);
  for (const std::string frozen : {"", "nf4"}) {
    const Args what = plus({"precision.plugin=bf16", "checkpoint.every=20", "checkpoint.keep=0", "train.steps=200",
                            "schedule.kind=constant"},
                           frozen.empty() ? Args{} : Args{"precision.frozen=" + frozen});
    good(scratch, plus({"run", "adapted.toml", "--out", "whole" + frozen}, what));
    for (const std::string tier : {"host", "nvme"}) {
      INFO(frozen << " " << tier);
      const std::string name = tier + frozen;
      const Args streamed =
          plus({"offload.parameters=" + tier, "zero.bucket=64KiB"}, tier == "nvme" ? disks(scratch) : Args{});
      Child child(scratch, plus(plus({"run", "adapted.toml", "--out", name}, what), streamed));
      REQUIRE(child.wait_for_path(checkpoint(scratch / name, 20)));
      child.signal(SIGKILL);
      CHECK(child.wait().killed);
      const Result on = engine(scratch, {"run", name});
      INFO(on.err);
      REQUIRE(on.exit == 0);
      CHECK(column(scratch / name, "loss") == column(scratch / ("whole" + frozen), "loss"));
      CHECK((tensors(scratch / name, 200) == tensors(scratch / ("whole" + frozen), 200)));
    }
  }
}

#ifndef SANITIZED
TEST_CASE("runs with adapters, packed and streamed weights take the planned memory", "[cli][.slow]") {
  std::mt19937_64 random(39);
  const auto pick = [&](const std::vector<std::string>& all) { return all[random() % all.size()]; };
  for (int k = 0; k < 20; ++k) {
    Scratch scratch;
    const std::string model = pick({"llama", "opt", "mamba"}), width = pick({"128", "256", "512"});
    std::string text = "[model]\nplugin = \"" + model + "\"\nvocab_size = " + pick({"512", "4000"}) +
                       "\nhidden_size = " + width + "\nnum_hidden_layers = " + pick({"3", "6", "12"}) + "\n";
    if (model != "mamba") text += "num_attention_heads = 4\n";
    if (model == "llama") text += "intermediate_size = " + std::to_string(3 * std::stoi(width)) + "\n";
    text += "[data]\npaths = [\"text.txt\"]\n[train]\nsteps = 2\neval_every = 2\neval_batches = 1\nmicro_batch = " +
            pick({"1", "4"}) + "\naccumulate = " + pick({"1", "3"}) + "\nsequence_length = " + pick({"32", "128"}) +
            "\n[optimizer]\nlearning_rate = 1e-3\n[precision]\nplugin = \"" +
            pick({"bf16", "bf16", "bf16_sr", "fp16", "fp32"}) + "\"\n";
    if (const std::string packed = pick({"", "int8", "e4m3", "nf4", "nf4_double"}); !packed.empty())
      text += "frozen = \"" + packed + "\"\n";
    text += "[adapter]\nplugin = \"lora\"\ntargets = [\"all-linear\"]\nrank = " + pick({"2", "8"}) +
            "\ndropout = " + pick({"0.0", "0.1"}) + "\n[recompute]\npolicy = \"" + pick({"none", "full"}) +
            "\"\n[zero]\nbucket = \"" + pick({"1MiB", "64MiB"}) + "\"\nprefetch = " + pick({"0", "1", "2"}) +
            "\n[checkpoint]\nevery = " + pick({"0", "1"}) + "\n[device]\nthreads = 0\n";
    const std::string tier = pick({"none", "host", "nvme"});
    if (tier != "none") text += "[offload]\nparameters = \"" + tier + "\"\n";
    scratch.write("drawn.toml", text);
    const Args words = tier == "nvme" ? disks(scratch) : Args{};
    INFO(text);
    const Json planned = Json::parse(good(scratch, plus({"plan", "drawn.toml", "--json"}, words)).out);
    const double promise = planned.at("ranks").at(0).at("host_peak_bytes").get<double>();
    const Result result = engine(scratch, plus({"run", "drawn.toml", "--out", "run"}, words), {600, 0});
    INFO(result.err);
    REQUIRE(result.exit == 0);
    const auto peak = static_cast<double>(result.peak_bytes());
    INFO("planned " << promise << ", measured " << peak);
    CHECK(std::abs(peak - promise) <= std::max(0.01 * promise, 1048576.0));
  }
}
#endif

}  // namespace frozen_cli
