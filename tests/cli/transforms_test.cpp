// SPDX-License-Identifier: Apache-2.0
// [[transforms]] as users meet them: what plan and check say, training, checkpoints, from a model without the
// transform, export, mistakes.
#include <algorithm>
#include <cstring>

#include "harness.hpp"

using namespace cli;

namespace {

const std::string low_rank =
    "\n[[transforms]]\nplugin = \"low_rank\"\nrank = 4\ntargets = [\"*.q_proj\", \"*.down_proj\"]\n";

// The names of the tensors in a file, in its order of bytes.
std::vector<std::string> tensor_names(const fs::path& file) {
  const std::string bytes = read(file);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  std::vector<std::string> out;
  const Json header = Json::parse(bytes.substr(8, length));
  for (const auto& [name, entry] : header.items())
    if (name != "__metadata__") out.push_back(name);
  return out;
}

size_t paths(const std::vector<std::string>& names) {
  return static_cast<size_t>(
      std::count_if(names.begin(), names.end(), [](const std::string& name) { return has(name, ".lora_"); }));
}

}  // namespace

TEST_CASE("a transform is trained, planned, saved and resumed", "[cli]") {
  Scratch scratch;
  scratch.config();
  const std::string config = read(scratch / "config.toml");
  scratch.write("adapted.toml", config + low_rank);
  const std::string covered = "low_rank replaces 4 calls in 2 of 4 blocks, adds 8 tensors, freezes ";
  CHECK(has(good(scratch, {"plan", "adapted.toml"}).out, "  transform         " + covered));
  CHECK(has(good(scratch, {"check", "adapted.toml"}).out, "  transform   " + covered));
  const Json planned = Json::parse(good(scratch, {"plan", "adapted.toml", "--json"}).out);
  CHECK(has(planned.at("transforms")[0], covered));
  CHECK_FALSE(Json::parse(good(scratch, {"plan", "config.toml", "--json"}).out).contains("transforms"));
  CHECK(has(good(scratch, {"config", "schema", "transforms"}).out, "with plugin = \"low_rank\""));

  good(scratch, {"run", "adapted.toml", "--out", "whole", "train.steps=6"});
  good(scratch, {"run", "adapted.toml", "--out", "halves", "train.steps=3", "schedule.kind=constant"});
  good(scratch, {"run", "adapted.toml", "--out", "again", "train.steps=6", "schedule.kind=constant"});
  good(scratch, {"run", "halves", "train.steps=6"});
  CHECK(column(scratch / "halves", "loss") == column(scratch / "again", "loss"));
  CHECK((tensors(scratch / "halves", 6) == tensors(scratch / "again", 6)));
  const auto saved = tensor_names(checkpoint(scratch / "whole", 6) / "model-00000.safetensors");
  CHECK(paths(saved) == 8);
  CHECK(paths(tensor_names(checkpoint(scratch / "whole", 6) / "optim-00000.safetensors")) ==
        tensor_names(checkpoint(scratch / "whole", 6) / "optim-00000.safetensors").size());
  const Json e = Json::parse(good(scratch, {"eval", "whole", "--json"}).out);
  CHECK(double(e.at("loss")) > 0);
  CHECK_FALSE(good(scratch, {"generate", "whole", "a", "--tokens", "4"}).out.empty());
  // Another transform is another model.
  const Result other = engine(
      scratch, {"run", "whole", "train.steps=8", "transforms=[{plugin=\"low_rank\",targets=[\"*.q_proj\"],rank=4}]"});
  CHECK(other.exit == 2);
  CHECK(has(other.err, "transforms.list"));
}

TEST_CASE("a transform starts from weights that know nothing of it", "[cli]") {
  Scratch scratch;
  scratch.config();
  const std::string config = read(scratch / "config.toml");
  good(scratch, {"run", "config.toml", "--out", "base", "train.steps=4"});
  const std::string from = (scratch / "base").string();
  const Args one = {"model.from=" + from, "--unset", "model.preset", "train.steps=1"};
  const auto run = [&](const std::string& file, const std::string& out, Args more) {
    Args args = {"run", file, "--out", out};
    args.insert(args.end(), more.begin(), more.end());
    good(scratch, args);
    return column(scratch / out, "loss");
  };
  scratch.write("adapted.toml", config + low_rank);
  // The path begins as zero, so the first loss is that of the model itself.
  CHECK(run("adapted.toml", "adapted", one) == run("config.toml", "plain", one));
  CHECK(good(scratch, {"check", "adapted.toml", one[0], one[1], one[2]}).exit == 0);

  // A model without the transform does not quietly drop what was trained.
  const Result dropped = engine(scratch, {"run", "config.toml", "--out", "dropped", "--unset", "model.preset",
                                          "model.from=" + (scratch / "adapted").string()});
  CHECK(dropped.exit == 9);
  CHECK(has(dropped.err, "this run has no such tensor"));

  // Export: the model alone, unless the transform's option says otherwise.
  good(scratch, {"run", "adapted.toml", "--out", "trained", "train.steps=4"});
  const Result out = good(scratch, {"ckpt", "export", "trained", "--to", "model", "--dtype", "f32"});
  CHECK(has(out.err, "note: 8 tensors are left out"));
  const auto exported = tensor_names(scratch / "model" / "model.safetensors");
  CHECK(paths(exported) == 0);
  CHECK(exported.size() + 8 == tensor_names(checkpoint(scratch / "trained", 4) / "model-00000.safetensors").size());
  scratch.write("exported.toml", config + low_rank + "export = true\n");
  good(scratch, {"run", "exported.toml", "--out", "both", "train.steps=4"});
  const Result all = good(scratch, {"ckpt", "export", "both", "--to", "all", "--dtype", "f32"});
  CHECK_FALSE(has(all.err, "left out"));
  CHECK(paths(tensor_names(scratch / "all" / "model.safetensors")) == 8);
  // A Hugging Face directory gives what it has of the path.
  const Args next = {"model.from=" + (scratch / "all").string(), "--unset", "model.preset", "train.steps=1"};
  const Args same = {"model.from=" + (scratch / "both").string(), "--unset", "model.preset", "train.steps=1"};
  CHECK(run("adapted.toml", "continued", next) == run("adapted.toml", "also", same));
  const Args bare = {"model.from=" + (scratch / "model").string(), "--unset", "model.preset", "train.steps=1"};
  CHECK(run("adapted.toml", "begun", bare) == run("config.toml", "without", bare));
}

TEST_CASE("lengths of DoRA begin as those of the rows that compute reads, and are exported", "[cli]") {
  Scratch scratch;
  scratch.config();
  scratch.write("adapted.toml",
                read(scratch / "config.toml") + "\n[adapter]\nplugin = \"lora\"\ntargets = [\"all-linear\"]\n");
  const auto losses = [&](const std::string& dora) {
    good(scratch, {"run", "adapted.toml", "--out", dora, "train.steps=1", "adapter.dora=" + dora,
                   "precision.plugin=bf16", "precision.frozen=int8"});
    return column(scratch / dora, "loss");
  };
  CHECK(losses("true") == losses("false"));
  const std::string said = good(scratch, {"ckpt", "export", "true", "--to", "adapter", "--format", "peft"}).out;
  CHECK(has(said, "an adapter of 14 maps, 42 tensors of "));
}

TEST_CASE("an adapter is exported as PEFT has it, merged, and read back", "[cli]") {
  Scratch scratch;
  scratch.config();
  const std::string config = read(scratch / "config.toml");
  const std::string lora =
      "\n[[transforms]]\nplugin = \"lora\"\nrank = 4\nalpha = 6.0\ndropout = 0.1\n"
      "ranks = [\"*.k_proj=2\"]\ntargets = [\"all-linear\"]\n";
  scratch.write("adapted.toml", config + lora);
  const std::string plan = good(scratch, {"plan", "adapted.toml"}).out;
  CHECK(has(plan, "lora replaces 14 calls in 2 of 4 blocks, adds 28 tensors, freezes "));
  CHECK(has(plan, "; maps: down_proj 2, gate_proj 2, k_proj 2, o_proj 2, q_proj 2, up_proj 2, v_proj 2; trained: "));
  good(scratch, {"run", "adapted.toml", "--out", "trained", "train.steps=4"});
  CHECK(has(good(scratch, {"ckpt", "export", "trained", "--to", "base"}).err, "28 tensors are left out"));
  CHECK(has(good(scratch, {"ckpt", "export", "trained", "--to", "adapter", "--format", "peft"}).out,
            "of 14 maps, 28 tensors of "));
  CHECK(has(good(scratch, {"ckpt", "export", "trained", "--to", "merged", "--merge"}).out, "paths of 14 maps"));
  const Json about = Json::parse(read(scratch / "adapter" / "adapter_config.json"));
  CHECK(about["r"] == 4);
  CHECK(about["lora_alpha"] == 6);
  CHECK(about["target_modules"].size() == 7);
  CHECK(about["rank_pattern"]["model.layers.1.self_attn.k_proj"] == 2);
  const auto names = tensor_names(scratch / "adapter" / "adapter_model.safetensors");
  CHECK(names.size() == 28);
  for (const std::string& name : names) CHECK(has(name, "base_model.model.model.layers."));

  const auto loss = [&](const std::string& target, Args more) {
    const Args data = {"data.paths=[\"text.txt\"]", "train.sequence_length=32", "train.micro_batch=2", "--all",
                       "--json"};
    Args args = {"eval", target};
    args.insert(args.end(), data.begin(), data.end());
    args.insert(args.end(), more.begin(), more.end());
    return double(Json::parse(good(scratch, args).out).at("loss"));
  };
  const std::string adapter = "model.adapter=" + (scratch / "adapter").string();
  const std::string same =
      "transforms=[{plugin=\"lora\",targets=[\"all-linear\"],rank=4,alpha=6.0,ranks=[\"*.k_proj=2\"]}]";
  const double trained = loss("trained", {});
  CHECK(loss("base", {adapter, same}) == trained);
  CHECK(loss("merged", {}) == Approx(trained).epsilon(1e-6));
  CHECK(loss("base", {}) != Approx(trained).epsilon(1e-6));
  CHECK_FALSE(good(scratch, {"generate", "base", "a", "--tokens", "4", adapter, same}).out.empty());

  // A run from the adapter is a run from the run that trained it.
  const auto begun = [&](const std::string& out, const Args& from) {
    Args args = {"run", "adapted.toml", "--out", out, "train.steps=2", "--unset", "model.preset"};
    args.insert(args.end(), from.begin(), from.end());
    good(scratch, args);
    return column(scratch / out, "loss");
  };
  CHECK(begun("first", {"model.from=" + (scratch / "base").string(), adapter}) ==
        begun("second", {"model.from=" + (scratch / "trained").string()}));
  good(scratch, {"run", "first", "train.steps=3"});

  const auto refused = [&](const Args& args, int code, const char* said) {
    const Result result = engine(scratch, args);
    INFO(result.err);
    CHECK(result.exit == code);
    CHECK(has(result.err, said));
  };
  refused({"check", "adapted.toml", adapter}, 2, "[model] adapter needs the weights of its model");
  refused({"ckpt", "export", "trained", "--to", "x", "--merge", "--format", "peft"}, 2, "leave one of them out");
  good(scratch, {"run", "config.toml", "--out", "plain", "train.steps=1"});
  refused({"ckpt", "export", "plain", "--to", "x", "--merge"}, 2, "no adapter to merge");
  refused({"ckpt", "export", "plain", "--to", "x", "--format", "peft"}, 2, "has no adapter");
  const std::string from = "model.from=" + (scratch / "base").string();
  refused({"check", "config.toml", "--unset", "model.preset", from, adapter}, 9, "no transform `lora`");
  refused({"check", "adapted.toml", "--unset", "model.preset", from, "model.adapter=" + (scratch / "base").string()}, 2,
          "has no adapter_config.json");
}

TEST_CASE("mistakes in [[transforms]] are reported", "[cli]") {
  Scratch scratch;
  scratch.config();
  const std::string config = read(scratch / "config.toml");
  const auto refused = [&](const std::string& text, const char* said) {
    scratch.write("wrong.toml", config + "\n[[transforms]]\n" + text);
    const Result result = engine(scratch, {"check", "wrong.toml"});
    INFO(result.err);
    CHECK(result.exit == 2);
    CHECK(has(result.err, said));
  };
  refused("rank = 2\n", "[[transforms]] 1: it needs `plugin`");
  refused("plugin = \"lowrank\"\n", "no transform plugin named `lowrank`");
  refused("plugin = \"low_rank\"\nwidth = 2\n", "[[transforms]] 1: `width` is unknown");
  refused("plugin = \"low_rank\"\n", "[[transforms]] low_rank: it needs targets");
  refused("plugin = \"low_rank\"\ntargets = [\"*.q_porj\"]\n", "`*.q_porj` matches no parameter of llama");
  refused("plugin = \"low_rank\"\ntargets = [\"*layernorm*\"]\n", "is read by eng.rms_norm/1");
  refused("plugin = \"low_rank\"\ntargets = [\"*.q_proj\"]\nrank = 33\n", "rank is 33");
  refused("plugin = \"low_rank\"\ntargets = [\"*.q_proj\"]\n[[transforms]]\nplugin = \"low_rank\"\n" +
              std::string("targets = [\"*.k_proj\"]\n"),
          "two are called low_rank");
}

TEST_CASE("low-rank paths beside weights in 4 bits are planned, trained, saved, resumed and exported", "[cli]") {
  Scratch scratch;
  scratch.config();
  const std::string text = read(scratch / "config.toml");
  scratch.write("config.toml", text + low_rank);
  const Args four = {"precision.frozen=nf4", "schedule.kind=constant"};
  const auto run = [&](Args args, const Args& more) {
    args.insert(args.end(), more.begin(), more.end());
    good(scratch, args);
  };
  // The base, in full precision and in 4 bits: codes and scales take 9/64 of the bytes of f32.
  const auto persistent = [&](const Args& more) {
    Args args = {"plan", "config.toml", "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return uint64_t(Json::parse(good(scratch, args).out).at("ranks")[0].at("arenas")[0].at("persistent"));
  };
  CHECK(persistent(four) < persistent({}));
  // Weights of a layer begin at a multiple of 64 KiB, so only large ones show the smaller scales.
  const auto of_large = [&](const std::string& frozen) {
    return persistent({"precision.frozen=" + frozen, "model.hidden_size=512", "model.intermediate_size=1024"});
  };
  CHECK(of_large("nf4_double") < of_large("nf4"));
  CHECK(has(good(scratch, {"plan", "config.toml", "precision.frozen=nf4_double"}).out, " of them in nf4_double: "));
  CHECK(has(good(scratch, {"plan", "config.toml", four[0]}).out, " of them in nf4: "));
  run({"run", "config.toml", "--out", "whole", "train.steps=6"}, four);
  run({"run", "config.toml", "--out", "halves", "train.steps=3"}, four);
  good(scratch, {"run", "halves", "train.steps=6"});
  run({"run", "config.toml", "--out", "hidden", "train.steps=6", "offload.parameters=host", "offload.master=host",
       "recompute.policy=full"},
      four);
  for (const char* other : {"halves", "hidden"}) {
    CHECK(column(scratch / other, "loss") == column(scratch / "whole", "loss"));
    CHECK((tensors(scratch / other, 6) == tensors(scratch / "whole", 6)));
  }
  CHECK(double(Json::parse(good(scratch, {"eval", "whole", "--json"}).out).at("loss")) > 0);
  CHECK_FALSE(good(scratch, {"generate", "whole", "a", "--tokens", "4"}).out.empty());
  good(scratch, {"ckpt", "export", "whole", "--to", "model", "--dtype", "f32"});
  // The export is the decoded base: in 4 bits it is the same base again.
  const Args from = {"model.from=" + (scratch / "model").string(), "--unset", "model.preset", "precision.frozen=nf4"};
  run({"run", "config.toml", "--out", "packed", "train.steps=1"}, from);
  run({"run", "config.toml", "--out", "plain", "train.steps=1"}, {from[0], from[1], from[2]});
  CHECK(column(scratch / "packed", "loss") == column(scratch / "plain", "loss"));

  scratch.write("bare.toml", text);
  const Result bare = engine(scratch, {"check", "bare.toml", "precision.frozen=nf4"});
  CHECK(bare.exit == 2);
  CHECK(has(bare.err, "packs frozen matrices of layers, and this model has none"));
}
