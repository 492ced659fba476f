// SPDX-License-Identifier: Apache-2.0
// The transform fp8 as users meet it: what plan and check say, training, resuming, evaluating, generating, mistakes.
#include "harness.hpp"

using namespace cli;

namespace {

const std::string fp8 = "\n[[transforms]]\nplugin = \"fp8\"\n";

}  // namespace

TEST_CASE("products in fp8 are planned, trained and resumed with the same bits", "[cli]") {
  Scratch scratch;
  scratch.config();
  const std::string config = read(scratch / "config.toml") + "\n[precision]\nplugin = \"bf16\"\n";
  scratch.write("config.toml", config);
  scratch.write("fp8.toml", config + fp8);
  const std::string maps = "down_proj 2, gate_proj 2, k_proj 2, o_proj 2, q_proj 2, up_proj 2, v_proj 2";
  for (const char* command : {"plan", "check"}) {
    const std::string out = good(scratch, {command, "fp8.toml"}).out;
    INFO(out);
    CHECK(has(out, "fp8 replaces 14 calls in 2 of 4 blocks"));
    CHECK(has(out, "fp8 multiplies 14 maps, "));
    CHECK(has(out, " % of the FLOPs of a forward: " + maps));
  }
  const Json planned = Json::parse(good(scratch, {"plan", "fp8.toml", "--json"}).out);
  CHECK(has(planned.at("transforms")[1], "fp8 multiplies 14 maps"));
  // The work is that of the products that it replaces.
  CHECK(planned.at("flops_per_step") ==
        Json::parse(good(scratch, {"plan", "config.toml", "--json"}).out).at("flops_per_step"));

  good(scratch, {"run", "fp8.toml", "--out", "whole", "train.steps=6", "schedule.kind=constant"});
  good(scratch, {"run", "fp8.toml", "--out", "halves", "train.steps=3", "schedule.kind=constant"});
  good(scratch, {"run", "halves", "train.steps=6"});
  CHECK(column(scratch / "halves", "loss") == column(scratch / "whole", "loss"));
  CHECK((tensors(scratch / "halves", 6) == tensors(scratch / "whole", 6)));
  good(scratch, {"run", "config.toml", "--out", "plain", "train.steps=6", "schedule.kind=constant"});
  CHECK(column(scratch / "plain", "loss") != column(scratch / "whole", "loss"));
  CHECK(double(Json::parse(good(scratch, {"eval", "whole", "--json"}).out).at("loss")) > 0);
  CHECK_FALSE(good(scratch, {"generate", "whole", "a", "--tokens", "4"}).out.empty());
  // A run keeps its transforms.
  CHECK(engine(scratch, {"run", "whole", "train.steps=8", "transforms=[]"}).exit == 2);

  // Behind an adapter: the frozen maps, not its paths.
  const std::string lora = "\n[[transforms]]\nplugin = \"lora\"\nrank = 4\ntargets = [\"*.q_proj\"]\n";
  scratch.write("both.toml", config + lora + fp8);
  CHECK(has(good(scratch, {"plan", "both.toml"}).out, maps + "; as they are: lora_A 2, lora_B 2"));
  scratch.write("some.toml", config + fp8 + "exclude = [\"*.down_proj\", \"*.0.self_attn.*\"]\n");
  CHECK(has(good(scratch, {"plan", "some.toml"}).out,
            "gate_proj 2, k_proj 1, o_proj 1, q_proj 1, up_proj 2, v_proj 1; as they are: down_proj 2, k_proj 1"));
  // Ranks that divide layers or sequences multiply their parts so.
  for (const char* degree : {"parallel.tensor=2", "parallel.context=2"})
    CHECK(has(good(scratch, {"plan", "fp8.toml", "--ranks", "2", degree}).out, maps));
}

TEST_CASE("histories of delayed scaling are planned, saved, resumed and only read by evaluations", "[cli]") {
  Scratch scratch;
  scratch.config();
  const std::string config = read(scratch / "config.toml") + "\n[precision]\nplugin = \"bf16\"\n" + fp8;
  scratch.write("current.toml", config);
  scratch.write("fp8.toml", config + "recipe = \"delayed\"\nhistory = 4\n");
  CHECK(has(good(scratch, {"plan", "fp8.toml"}).out, "v_proj 2; histories of 4 steps: 1008 B"));  // 14 x 3 x 6 x 4
  CHECK(has(good(scratch, {"plan", "current.toml", "transforms=[{plugin = 'fp8', recipe = 'delayed'}]"}).out,
            "histories of 1024 steps"));
  const Args more = {"schedule.kind=constant", "train.steps=6"};
  const auto run = [&](Args args) {
    args.insert(args.end(), more.begin(), more.end());
    good(scratch, args);
  };
  run({"run", "fp8.toml", "--out", "whole"});
  run({"run", "fp8.toml", "--out", "seen", "train.eval_every=1"});
  good(scratch, {"run", "fp8.toml", "--out", "halves", "train.steps=3", "schedule.kind=constant"});
  good(scratch, {"run", "halves", "train.steps=6"});
  run({"run", "current.toml", "--out", "current"});
  for (const char* same : {"halves", "seen"}) {
    CHECK(column(scratch / same, "loss") == column(scratch / "whole", "loss"));
    CHECK((tensors(scratch / same, 6) == tensors(scratch / "whole", 6)));
  }
  CHECK(column(scratch / "current", "loss") != column(scratch / "whole", "loss"));
  // In checkpoints each map has its own.
  size_t own = 0;
  const Json manifest = Json::parse(read(checkpoint(scratch / "whole", 6) / "manifest.json"));
  for (const Json& t : manifest.at("tensors"))
    own += t.at("name").get<std::string>().rfind("transform.fp8.model.layers.", 0) == 0 && t.at("role") == "policy";
  CHECK(own == 14);
  const double loss = Json::parse(good(scratch, {"eval", "whole", "--json"}).out).at("loss");
  CHECK(loss > 0);
  CHECK(Json::parse(good(scratch, {"eval", "whole", "--json"}).out).at("loss") == loss);
  CHECK_FALSE(good(scratch, {"generate", "whole", "a", "--tokens", "4"}).out.empty());
  const Result other = engine(
      scratch, {"run", "whole", "train.steps=8", "transforms=[{plugin = 'fp8', recipe = 'delayed', history = 5}]"});
  CHECK(other.exit == 2);
}

TEST_CASE("mistakes with products in fp8 are reported", "[cli]") {
  Scratch scratch;
  scratch.config();
  const std::string config = read(scratch / "config.toml");
  const auto refused = [&](const std::string& text, int code, const std::string& said, const Args& more = {}) {
    scratch.write("wrong.toml", config + text);
    Args args = {"plan", "wrong.toml"};
    args.insert(args.end(), more.begin(), more.end());
    const Result result = engine(scratch, args);
    INFO(result.err);
    CHECK(result.exit == code);
    CHECK(has(result.err, said));
  };
  refused(fp8 + "targets = [\"lm_head\"]\n", 2, "embeddings and heads stay as they are");
  refused(fp8 + "targets = [\"*layernorm*\"]\n", 2, "`*layernorm*` matches no call that it replaces");
  refused(fp8 + "recipe = \"block\"\n", 2, "recipe");
  refused(fp8 + "history = 8\n", 2, "history has no effect with recipe = \"current\"");
  refused(fp8 + "recipe = \"delayed\"\nhistory = 0\n", 2, "history");
  refused(fp8 + "margin = -1\n", 2, "margin");
  // The path of an adapter stands beside eng.linear/1, which is not there any more.
  refused(fp8 + "\n[[transforms]]\nplugin = \"lora\"\ntargets = [\"*.q_proj\"]\n", 2, "is read by eng.fp8.linear/1");
  refused(fp8, 3, "a100-80g has compute capability 8.0: the kernels of eng.fp8.linear/1 for device cuda need compute",
          {"device.describe=a100-80g"});
  for (const char* card : {"rtx4090", "h100-80g", "b200"})
    CHECK(has(good(scratch, {"plan", "wrong.toml", std::string("device.describe=") + card}).out, "in fp8, memory"));
}
