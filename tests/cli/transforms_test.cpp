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
