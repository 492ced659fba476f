// SPDX-License-Identifier: Apache-2.0
// A checkpoint of four ranks goes on with any number of ranks and any strategy.
#include <cmath>
#include <sstream>

#include "../cli/harness.hpp"

using namespace cli;

namespace {

// The loss of a step.
double loss(const fs::path& run, size_t step) {
  std::istringstream lines(read(run / "metrics.jsonl"));
  std::string line;
  for (size_t k = 0; k < step; ++k) std::getline(lines, line);
  const Json json = Json::parse(line);
  REQUIRE(json.at("step") == step);
  return json.at("loss").get<double>();
}

}  // namespace

TEST_CASE("odd parameters of many ranks are saved and go on", "[ranks][.slow]") {
  // Tied, unused, without elements: tests/equality/odd.
  Scratch scratch;
  scratch.config();
  scratch.write("odd.toml",
                "[model]\nplugin = 'odd'\n[data]\npaths = ['text.txt']\n[zero]\nbucket = '1B'\n"
                "[train]\nsteps = 4\nmicro_batch = 2\nsequence_length = 16\n"
                "[optimizer]\nlearning_rate = 1e-2\n[checkpoint]\nevery = 2\nkeep = 0\n[device]\nthreads = 1\n");
  const auto odd = [&](Args args, int exit = 0) {
    args.insert(args.begin(), {"--plugin-path", ODD_DIR});
    const Result result = engine(scratch, args);
    INFO(result.err);
    CHECK(result.exit == exit);
  };
  odd({"run", "odd.toml", "--out", "none", "--ranks", "3"});
  for (const std::string strategy : {"zero2", "zero3"}) {
    INFO(strategy);
    odd({"run", "odd.toml", "--out", strategy, "--ranks", "3", "zero.plugin=" + strategy});
    odd({"ckpt", "verify", strategy});
    odd({"ckpt", "diff", "none", strategy});
  }
  // From the middle, with another strategy and with another number of ranks.
  odd({"run", "zero3", "--resume", "2", "--ranks", "3", "zero.plugin=zero1"});
  odd({"ckpt", "diff", "none", "zero3"});
  odd({"run", "zero2", "--resume", "2", "train.micro_batch=6"});
  odd({"ckpt", "verify", "zero2"});
  CHECK(std::abs(loss(scratch / "zero2", 4) / loss(scratch / "none", 4) - 1) < 1e-5);
}

TEST_CASE("with train.global_batch any number of ranks takes the same batch", "[ranks][.slow]") {
  Scratch scratch;
  scratch.config();
  for (const char* ranks : {"1", "2", "3"}) {
    const Result result = engine(scratch, {"run", "config.toml", "--out", ranks, "--ranks", ranks, "train.steps=3",
                                           "train.micro_batch=2", "train.global_batch=12"});
    INFO(result.err);
    REQUIRE(result.exit == 0);
    for (size_t step : {1, 2, 3}) CHECK(std::abs(loss(scratch / ranks, step) / loss(scratch / "1", step) - 1) < 1e-5);
    CHECK(column(scratch / ranks, "tokens") == column(scratch / "1", "tokens"));
  }
  const Result uneven = engine(scratch, {"run", "config.toml", "--out", "uneven", "--ranks", "4", "train.micro_batch=2",
                                         "train.global_batch=12"});
  CHECK(uneven.exit == 2);
  CHECK(has(uneven.err, "is not a multiple of 4 ranks x train.micro_batch = 2"));
  CHECK_FALSE(fs::exists(scratch / "uneven"));
}

TEST_CASE("a checkpoint of four ranks goes on anywhere", "[ranks][.slow]") {
  Scratch scratch;
  scratch.config();
  const auto train = [&](const fs::path& run, uint32_t ranks, const std::string& strategy, const char* steps) {
    // Each step takes the same twelve sequences, whichever rank takes them.
    Args args = {"run",
                 fs::exists(run) ? run.string() : "config.toml",
                 "zero.plugin=" + strategy,
                 "zero.bucket=64KiB",
                 "train.accumulate=1",
                 "train.micro_batch=" + std::to_string(12 / ranks),
                 std::string("train.steps=") + steps};
    if (!fs::exists(run)) args.insert(args.end(), {"--out", run.string()});
    if (ranks > 1) args.insert(args.end(), {"--ranks", std::to_string(ranks)});
    const Result result = engine(scratch, args);
    INFO(result.err);
    REQUIRE(result.exit == 0);
  };
  const fs::path whole = scratch / "whole", four = scratch / "four";
  train(whole, 4, "zero3", "6");
  train(four, 4, "zero3", "3");
  for (uint32_t ranks : {1u, 2u, 3u, 4u})
    for (const std::string strategy : {"none", "zero1", "zero2", "zero3"}) {
      if (ranks == 1 && strategy != "none") continue;  // one rank has no strategy
      INFO(ranks << " ranks, " << strategy);
      const fs::path run = scratch / (strategy + std::to_string(ranks));
      fs::copy(four, run, fs::copy_options::recursive);
      train(run, ranks, strategy, "6");
      for (size_t step : {4, 5, 6}) CHECK(std::abs(loss(run, step) / loss(whole, step) - 1) < 1e-5);
      // With as many ranks as before, every bit of weights and optimizer is that of the run that never stopped.
      const Result diff = engine(scratch, {"ckpt", "diff", run.string(), whole.string()});
      if (ranks == 4) CHECK(diff.exit == 0);
    }
}

TEST_CASE("histories of products in fp8 go on with any number of ranks", "[ranks][.slow]") {
  Scratch scratch;
  scratch.config();
  scratch.write("fp8.toml",
                read(scratch / "config.toml") + "\n[[transforms]]\nplugin = 'fp8'\nrecipe = 'delayed'\nhistory = 4\n");
  const auto train = [&](const fs::path& run, uint32_t ranks, const char* steps) {
    Args args = {"run",
                 fs::exists(run) ? run.string() : "fp8.toml",
                 "zero.plugin=zero2",
                 "train.accumulate=1",
                 "train.micro_batch=" + std::to_string(12 / ranks),
                 std::string("train.steps=") + steps};
    if (!fs::exists(run)) args.insert(args.end(), {"--out", run.string()});
    if (ranks > 1) args.insert(args.end(), {"--ranks", std::to_string(ranks)});
    const Result result = engine(scratch, args);
    INFO(result.err);
    REQUIRE(result.exit == 0);
  };
  train(scratch / "whole", 2, "6");
  train(scratch / "half", 2, "3");
  for (uint32_t ranks : {1u, 2u, 3u}) {
    INFO(ranks << " ranks");
    const fs::path run = scratch / std::to_string(ranks);
    fs::copy(scratch / "half", run, fs::copy_options::recursive);
    train(run, ranks, "6");
    // Current scaling would be another for each number of ranks.
    for (size_t step : {4, 5, 6}) CHECK(std::abs(loss(run, step) / loss(scratch / "whole", step) - 1) < 2e-3);
    const Result diff = engine(scratch, {"ckpt", "diff", run.string(), (scratch / "whole").string()});
    if (ranks == 2) CHECK(diff.exit == 0);
  }
}
