// SPDX-License-Identifier: Apache-2.0
// Ranks that divide sequences ([parallel] context): against one rank, over resumes at other degrees, and in memory.
#include "../sanitized.hpp"
#include "beside_plan.hpp"
#include "divided.hpp"

namespace context_test {

using namespace cli;

namespace {

const std::string rest = rest_of("micro_batch = 4\nsequence_length = 32\n"), llama = small_llama(2, 2),
                  opt = small_opt(2, "0.0"), mamba = small_mamba(2);
const std::string gpt2 =  // with dropout, behind the embeddings too
    "[model]\nplugin = 'gpt2'\nvocab_size = 256\nhidden_size = 32\nnum_hidden_layers = 2\nnum_attention_heads = 4\n"
    "max_position_embeddings = 64\n";
void train(const Scratch& scratch, const std::string& name, const std::string& target, uint32_t ranks, uint32_t context,
           int steps, const Args& more = {}) {
  train_divided(scratch, name, target, ranks, {"parallel.context", context, 4}, steps, more);
}

}  // namespace

TEST_CASE("AdamW on divided sequences goes the way of one rank", "[ranks][.slow]") {
  for (const std::string& model : {llama, opt, gpt2, mamba}) {
    Scratch scratch;
    scratch.config();
    scratch.write("config.toml", model + rest);
    INFO(model);
    train(scratch, "whole", "config.toml", 1, 1, 6);
    for (const uint32_t context : {2u, 4u}) {
      const std::string name = "context-" + std::to_string(context);
      train(scratch, name, "config.toml", context, context, 6);
      for (const char* what : {"loss", "grad_norm"}) near(scratch / name, scratch / "whole", what);
    }
    // Another run has these bits, with the states in parts as well.
    train(scratch, "again", "config.toml", 2, 2, 6, {"zero.plugin=zero3", "recompute.policy=full"});
    CHECK(engine(scratch, {"ckpt", "diff", "again", "context-2"}).exit == 0);
    CHECK(engine(scratch, {"ckpt", "diff", "again", "whole"}).exit != 0);
  }
}

TEST_CASE("a checkpoint of divided sequences goes on with any degree", "[ranks][.slow]") {
  Scratch scratch;
  scratch.config();
  scratch.write("config.toml", llama + rest);
  train(scratch, "whole", "config.toml", 1, 1, 6);
  train(scratch, "two", "config.toml", 2, 2, 6);
  train(scratch, "first", "config.toml", 2, 2, 3);
  struct Case {
    uint32_t ranks, context;
    const char* zero;
  };
  for (const Case& c : {Case{1, 1, "none"}, {2, 2, "zero1"}, {4, 4, "zero2"}, {4, 2, "zero3"}, {2, 1, "none"}}) {
    const std::string name = std::to_string(c.ranks) + "-" + std::to_string(c.context);
    INFO(name);
    fs::copy(scratch / "first", scratch / name, fs::copy_options::recursive);
    train(scratch, name, name, c.ranks, c.context, 6, {std::string("zero.plugin=") + c.zero});
    near(scratch / name, scratch / "whole", "loss");
    CHECK(engine(scratch, {"ckpt", "verify", name}).exit == 0);
    // Every bit is that of the run that never stopped, if the degree is the same.
    CHECK((engine(scratch, {"ckpt", "diff", name, "two"}).exit == 0) == (c.context == 2 && c.ranks == 2));
  }
  // One process evaluates and generates.
  CHECK(engine(scratch, {"eval", "two"}).exit == 0);
  const Result text = engine(scratch, {"generate", "two", "a", "--tokens", "4"});
  INFO(text.err);
  CHECK(text.exit == 0);
  REQUIRE(engine(scratch, {"ckpt", "export", "two", "--to", "hf"}).exit == 0);
}

#ifndef SANITIZED  // a sanitizer's own memory is in no plan
TEST_CASE("a rank with a part of each sequence takes the planned memory", "[ranks][.slow]") {
  Scratch scratch;
  scratch.config();
  scratch.write("config.toml",
                "[model]\nplugin = 'llama'\npreset = 'tiny'\n[data]\npaths = ['text.txt']\nvalidation = 0.1\n[train]\n"
                "steps = 3\nmicro_batch = 2\nsequence_length = 1024\neval_batches = 2\n[checkpoint]\nevery = 1\n");
  double arenas[2];
  BesidePlan beside;
  for (int run = 0; run < 4; ++run) {  // the last one with whole sequences
    const std::string name = "run-" + std::to_string(run), context = run < 3 ? "2" : "1";
    ran(scratch, {"config.toml", "--out", name, "zero.plugin=zero1", "parallel.context=" + context}, 2);
    if (run < 3)
      arenas[0] = beside.add(scratch / name);
    else
      arenas[1] = BesidePlan().add(scratch / name);
  }
  beside.check();
  CHECK(arenas[0] < 0.7 * arenas[1]);
}
#endif

TEST_CASE("ranks that divide no sequence are refused before they start", "[ranks]") {
  Scratch scratch;
  scratch.config();
  scratch.write("config.toml", llama + rest);
  const Result uneven = engine(scratch, {"run", "config.toml", "--out", "no", "--ranks", "3", "parallel.context=2"});
  CHECK(uneven.exit == 2);
  CHECK(has(uneven.err, "parallel.context = 2 does not divide 3 ranks"));
  const Result odd = engine(
      scratch, {"run", "config.toml", "--out", "no", "--ranks", "2", "parallel.context=2", "train.sequence_length=33"});
  CHECK(odd.exit == 2);
  CHECK(has(odd.err, "parallel.context = 2 does not divide train.sequence_length = 33"));
  CHECK_FALSE(fs::exists(scratch / "no" / "metrics.jsonl"));
}

}  // namespace context_test
