// SPDX-License-Identifier: Apache-2.0
// Runs of stages with activations on a tier, updates beside passes, sums in fewer bits, a reference: against ranks
// without stages, over resumes, and in memory.

#include "../cli/harness.hpp"
#include "../sanitized.hpp"
#include "beside_plan.hpp"

namespace pipeline_policies_runs {

using namespace cli;

namespace {

const std::string model =
    "[model]\nplugin = 'llama'\nvocab_size = 512\nhidden_size = 32\nintermediate_size = 64\nnum_hidden_layers = 4\n"
    "num_attention_heads = 4\nnum_key_value_heads = 2\n[device]\nthreads = 1\n"
    "[optimizer]\nlearning_rate = 1e-2\n[checkpoint]\nevery = 2\nkeep = 0\n";
const std::string train = "[train]\nsteps = 4\nmicro_batch = 2\nsequence_length = 64\naccumulate = 4\n";
const std::string text = "[data]\npaths = ['text.txt']\n";
const std::string pairs =
    "[data]\nplugin = 'pairs'\npaths = ['pairs.jsonl']\ntokenizer = 'bytes'\n[loss]\nplugin = 'preference'\n";

struct Runs : Scratch {
  explicit Runs(const std::string& data) {
    config();
    write("config.toml", model + train + data);
    std::string rows;
    for (int k = 0; k < 24; ++k)
      rows += "{\"prompt\": \"question " + std::to_string(k) + "\", \"chosen\": \" the answer is " +
              std::to_string(k * 7) + "\", \"rejected\": \" no idea\"}\n";
    write("pairs.jsonl", rows);
  }
  void run(const std::string& from, const std::string& out, uint32_t ranks, Args more) const {
    Args words = {"run", from};
    if (!out.empty()) words.insert(words.end(), {"--out", out});
    if (ranks > 1) words.insert(words.end(), {"--ranks", std::to_string(ranks)});
    words.insert(words.end(), more.begin(), more.end());
    const Result result = engine(*this, words, {300, 0});
    INFO(from << " " << out << "\n" << result.err);
    REQUIRE(result.exit == 0);
  }
  bool same(const std::string& a, const std::string& b) const {
    for (const char* key : {"loss", "grad_norm"})
      if (column(*this / a, key) != column(*this / b, key)) return false;
    return engine(*this, {"ckpt", "diff", a, b}).exit == 0;
  }
};

Args with(Args words, const Args& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("stages with tiers, late and early updates train as one rank does", "[ranks][.slow]") {
  const Runs runs(text);
  runs.run("config.toml", "whole", 1, {});
  const Args stages = {"parallel.pipeline=2"}, host = {"offload.optimizer=host"};
  const std::vector<std::pair<std::string, Args>> all = {
      {"activations", {"offload.activations=host"}},
      {"late", with(host, {"offload.update_late=true", "parallel.virtual_stages=2"})},
      {"early", with(host, {"offload.update_early=true", "offload.early_share=0.5", "offload.activations=host"})}};
  for (const auto& [name, more] : all) {
    runs.run("config.toml", name, 2, with(stages, more));
    CHECK(runs.same(name, "whole"));
    // It goes on from a checkpoint of its own.
    runs.run(name, "", 2, {"--resume", "2"});
    CHECK(runs.same(name, "whole"));
  }
}

TEST_CASE("what sums of stages left out is in checkpoints, for stages and for ranks without", "[ranks][.slow]") {
  const Runs runs(text);
  const Args narrow = {"zero.plugin=zero2", "zero.sum=int8", "zero.bucket=64KiB"};
  runs.run("config.toml", "whole", 2, narrow);
  runs.run("config.toml", "stages", 4, with(narrow, {"parallel.pipeline=2"}));
  CHECK(runs.same("stages", "whole"));
  CHECK(engine(runs, {"ckpt", "verify", "stages"}).exit == 0);
  for (const auto& [ranks, words] : {std::pair<uint32_t, Args>{4, {"parallel.pipeline=2", "parallel.virtual_stages=2"}},
                                     {2, {"parallel.pipeline=1", "parallel.virtual_stages=1"}}}) {
    runs.run("stages", "", ranks, with({"--resume", "2"}, words));
    CHECK(runs.same("stages", "whole"));
  }
}

TEST_CASE("stages compare pairs of answers with a reference as one rank does", "[ranks][.slow]") {
  const Runs runs(pairs);
  const Args own = {"reference.from=start"},
             base = {"reference.from=base", "transforms=[{plugin='lora', rank=4, targets=['all-linear']}]"};
  for (const auto& [kind, words] : {std::pair<std::string, Args>{"start", own}, {"base", base}}) {
    runs.run("config.toml", kind, 1, words);
    for (const Args& more : {Args{}, Args{"parallel.virtual_stages=2"}, Args{"offload.activations=host"}}) {
      const std::string name = kind + "-" + (more.empty() ? "stages" : more[0].substr(0, more[0].find('.')));
      runs.run("config.toml", name, 2, with(with(words, {"parallel.pipeline=2"}), more));
      CHECK(runs.same(name, kind));
    }
    runs.run(kind + "-stages", "", 1, {"--resume", "2", "parallel.pipeline=1"});
    CHECK(runs.same(kind + "-stages", kind));
  }
  // The weights of a reference come from a run, to each stage its own.
  runs.run("config.toml", "other", 1, {"reference.from=" + (runs / "start").string()});
  runs.run("config.toml", "other-stages", 2,
           {"reference.from=" + (runs / "start").string(), "parallel.pipeline=2", "zero.plugin=zero3"});
  CHECK(runs.same("other-stages", "other"));
  CHECK_FALSE(runs.same("other", "start"));
}

#ifndef SANITIZED  // a sanitizer's own memory is in no plan
TEST_CASE("stages with these take the planned memory", "[ranks][.slow]") {
  const Runs runs(pairs);
  for (const Args& more : {Args{"reference.from=start", "offload.activations=host"},
                           Args{"loss.kind=simpo", "offload.optimizer=host", "offload.update_late=true"}}) {
    BesidePlan memory;
    for (int k = 0; k < 3; ++k) {
      const std::string name = "run-" + more.back() + std::to_string(k);
      runs.run("config.toml", name, 2,
               with(more, {"parallel.pipeline=2", "model.hidden_size=512", "model.intermediate_size=1024",
                           "train.accumulate=2"}));
      memory.add(runs / name);
    }
    memory.check();
  }
}
#endif

}  // namespace pipeline_policies_runs
