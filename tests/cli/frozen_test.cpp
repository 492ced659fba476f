// SPDX-License-Identifier: Apache-2.0
// Frozen weights beside adapters, in 16 bits or packed, on the device or on tiers: checkpoints, older ones, kills.
#include <csignal>

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

}  // namespace frozen_cli
