// SPDX-License-Identifier: Apache-2.0
// Stages of ranks ([parallel] pipeline): against one rank, over resumes with other numbers of stages, in memory, and
// when a rank dies.
#include <signal.h>

#include "../sanitized.hpp"
#include "beside_plan.hpp"
#include "divided.hpp"
#include "training.hpp"

namespace pipeline_test {

using namespace cli;

namespace {

const std::string rest = rest_of("micro_batch = 2\naccumulate = 3\nsequence_length = 32\n"), llama = small_llama(3, 2),
                  opt = small_opt(3, "0.1"), mamba = small_mamba(3);

void train(const Scratch& scratch, const std::string& name, const std::string& target, uint32_t ranks, uint32_t stages,
           int steps, const Args& more = {}) {
  train_divided(scratch, name, target, ranks, {"parallel.pipeline", stages, 2}, steps, more);
}

// The losses of all evaluations.
std::vector<double> evaluated(const fs::path& run) {
  const std::string text = read(run / "metrics.jsonl"), key = "\"eval_loss\":";
  std::vector<double> out;
  for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1))
    out.push_back(std::atof(text.c_str() + at + key.size()));
  return out;
}
bool same_weights(const Scratch& scratch, const std::string& a, const std::string& b) {
  return engine(scratch, {"ckpt", "diff", a, b}).exit == 0;
}

}  // namespace

TEST_CASE("stages train as one rank does", "[ranks][.slow]") {
  for (const std::string& model : {llama, opt, mamba}) {
    Scratch scratch;
    scratch.config();
    scratch.write("config.toml", model + rest);
    INFO(model);
    const bool tied = model != llama;  // mamba's head is its embedding, too
    train(scratch, "whole", "config.toml", 1, 1, 6);
    for (const uint32_t stages : {2u, 4u}) {
      const std::string name = "stages-" + std::to_string(stages);
      train(scratch, name, "config.toml", stages, stages, 6);
      CHECK(same_weights(scratch, name, "whole") == !tied);
      for (const char* what : {"loss", "grad_norm"}) near(scratch / name, scratch / "whole", what);
      if (tied) continue;
      CHECK(column(scratch / name, "loss") == column(scratch / "whole", "loss"));
      CHECK(evaluated(scratch / name) == evaluated(scratch / "whole"));
      CHECK(evaluated(scratch / name).size() >= 2);
    }
    // Data ranks in each stage, and parts of their states.
    train(scratch, "data", "config.toml", 4, 2, 6);
    train(scratch, "again", "config.toml", 4, 2, 6, {"zero.plugin=zero1", "recompute.policy=full"});
    CHECK(same_weights(scratch, "again", "data"));
  }
}

TEST_CASE("a checkpoint of stages goes on with any number of them", "[ranks][.slow]") {
  for (const std::string& model : {llama, opt}) {
    Scratch scratch;
    scratch.config();
    scratch.write("config.toml", model + rest);
    train(scratch, "whole", "config.toml", 1, 1, 6);
    train(scratch, "first", "config.toml", 2, 2, 3);
    struct Case {
      uint32_t ranks, stages;
      const char* zero;
    };
    for (const Case& c : {Case{1, 1, "none"}, {2, 2, "none"}, {4, 4, "none"}, {4, 2, "zero2"}}) {
      const std::string name = std::to_string(c.ranks) + "-" + std::to_string(c.stages);
      INFO(name);
      fs::copy(scratch / "first", scratch / name, fs::copy_options::recursive);
      train(scratch, name, name, c.ranks, c.stages, 6, {std::string("zero.plugin=") + c.zero});
      near(scratch / name, scratch / "whole", "loss");
      CHECK(engine(scratch, {"ckpt", "verify", name}).exit == 0);
      if (model == llama && c.ranks == c.stages) CHECK(same_weights(scratch, name, "whole"));
    }
    // One process evaluates and generates.
    CHECK(engine(scratch, {"eval", "4-4"}).exit == 0);
    const Result text = engine(scratch, {"generate", "4-4", "a", "--tokens", "4"});
    INFO(text.err);
    CHECK(text.exit == 0);
    REQUIRE(engine(scratch, {"ckpt", "export", "4-4", "--to", "hf"}).exit == 0);
  }
}

TEST_CASE("states of policies and transforms are in a checkpoint of stages once", "[ranks][.slow]") {
  for (const char* states :
       {"[precision]\nplugin = 'fp16'\n",
        "[precision]\nplugin = 'bf16'\n[[transforms]]\nplugin = 'fp8'\nrecipe = 'delayed'\nhistory = 4\n"}) {
    INFO(states);
    Scratch scratch;
    scratch.config();
    scratch.write("config.toml", llama + rest + states);
    train(scratch, "whole", "config.toml", 1, 1, 6);
    train(scratch, "stages", "config.toml", 2, 2, 3);
    train(scratch, "parts", "config.toml", 2, 2, 3, {"parallel.virtual_stages=2"});
    train(scratch, "data", "config.toml", 4, 2, 3);
    for (const char* name : {"stages", "parts", "data"}) {
      INFO(name);
      CHECK(engine(scratch, {"ckpt", "verify", name}).exit == 0);
      train(scratch, name, name, 1, 1, 6, {"parallel.virtual_stages=1"});
      if (name != std::string("data")) CHECK(same_weights(scratch, name, "whole"));
    }
  }
}

TEST_CASE("virtual stages train as one rank does, and go on with any number of them", "[ranks][.slow]") {
  for (const std::string& model : {llama, opt}) {
    Scratch scratch;
    scratch.config();
    std::string deeper = model;
    deeper.replace(deeper.find("layers = 3"), 10, "layers = 6");
    scratch.write("config.toml", deeper + rest);
    train(scratch, "whole", "config.toml", 1, 1, 6);
    train(scratch, "first", "config.toml", 2, 2, 3, {"parallel.virtual_stages=2"});
    struct Case {
      uint32_t ranks, stages, parts;
      const char* zero;
    };
    for (const Case& c :
         {Case{1, 1, 1, "none"}, {2, 2, 1, "none"}, {2, 2, 4, "none"}, {4, 4, 2, "none"}, {4, 2, 3, "zero3"}}) {
      const std::string name = std::to_string(c.ranks) + "-" + std::to_string(c.stages) + "-" + std::to_string(c.parts);
      INFO(name);
      fs::copy(scratch / "first", scratch / name, fs::copy_options::recursive);
      train(scratch, name, name, c.ranks, c.stages, 6,
            {std::string("zero.plugin=") + c.zero, "parallel.virtual_stages=" + std::to_string(c.parts)});
      for (const char* what : {"loss", "grad_norm"}) near(scratch / name, scratch / "whole", what);
      if (model != llama || c.ranks != c.stages) continue;
      CHECK(same_weights(scratch, name, "whole"));
      CHECK(column(scratch / name, "loss") == column(scratch / "whole", "loss"));
      CHECK(evaluated(scratch / name) == evaluated(scratch / "whole"));
    }
  }
}

#ifndef SANITIZED  // a sanitizer's own memory is in no plan
TEST_CASE("a stage takes the planned memory", "[ranks][.slow]") {
  Scratch scratch;
  scratch.config();
  scratch.write("config.toml",
                "[model]\nplugin = 'llama'\npreset = 'tiny'\n[data]\npaths = ['text.txt']\nvalidation = 0.1\n[train]\n"
                "steps = 3\nmicro_batch = 2\naccumulate = 4\nsequence_length = 512\neval_batches = 2\n[checkpoint]\n"
                "every = 1\n");
  for (const char* parts : {"1", "2"}) {
    BesidePlan memory;
    for (int run = 0; run < 3; ++run) {
      const std::string name = std::string("run-") + parts + "-" + std::to_string(run);
      ran(scratch,
          {"config.toml", "--out", name, "parallel.pipeline=2", std::string("parallel.virtual_stages=") + parts}, 2);
      memory.add(scratch / name);
    }
    memory.check();
  }
}
#endif

TEST_CASE("a stage that is killed ends the run", "[ranks][.slow]") {
  Training training({"parallel.pipeline=2"});
  REQUIRE(training.child->wait_for("saved step-"));
  const auto begin = Clock::now();
  kill(pid_of(training.run, 1), SIGKILL);
  const Result result = training.child->wait();
  INFO(result.err);
  CHECK(seconds_since(begin) < 10 * patience);
  CHECK(result.exit == 8);
  CHECK(has(result.err, "was killed by signal 9 (SIGKILL)"));
  CHECK(processes(training.run.string()).empty());
  training.goes_on();
}

TEST_CASE("ranks that stages do not divide are refused before they start", "[ranks]") {
  Scratch scratch;
  scratch.config();
  scratch.write("config.toml", llama + rest);
  const Result uneven = engine(scratch, {"run", "config.toml", "--out", "no", "--ranks", "3", "parallel.pipeline=2"});
  CHECK(uneven.exit == 2);
  CHECK(has(uneven.err, "parallel.pipeline = 2 does not divide 3 ranks"));
  CHECK_FALSE(fs::exists(scratch / "no" / "metrics.jsonl"));
}

}  // namespace pipeline_test
