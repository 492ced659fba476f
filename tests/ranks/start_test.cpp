// SPDX-License-Identifier: Apache-2.0
// Ranks that are started: models of every kind become one run; if they cannot, it is reported once, and nothing hangs.
#include "../cli/harness.hpp"

using namespace cli;

namespace {

const Args flags = {"--allow-run-as-root", "--oversubscribe", "--bind-to", "none"};

// mpirun with one process of each command.
Result mpirun(const Scratch& scratch, const std::vector<Args>& commands) {
  Args args = flags;
  for (const Args& command : commands) {
    if (&command != &commands[0]) args.push_back(":");
    args.insert(args.end(), {"-n", "1"});
    args.insert(args.end(), command.begin(), command.end());
  }
  return engine(scratch, args, {.program = "/usr/bin/mpirun"});
}

size_t times(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

}  // namespace

TEST_CASE("ranks with different configurations do not start", "[ranks]") {
  Scratch scratch;
  scratch.config();
  const Args run = {ENGINE_COMMAND, "run", "config.toml"};
  Args other = run;
  other.emplace_back("optimizer.learning_rate=2e-4");
  const Result result = mpirun(scratch, {run, other});
  INFO(result.err);
  CHECK(result.exit == 2);
  CHECK(times(result.err,
              "the ranks do not have the same configuration: rank 1 has optimizer.learning_rate = 0.0002, "
              "rank 0 has optimizer.learning_rate = 0.003") >= 1);
  CHECK(result.seconds < 15 * patience);
  CHECK(names(scratch / "runs").empty());
}

TEST_CASE("a mistake that all ranks find is reported by the first", "[ranks][.slow]") {
  Scratch scratch;
  scratch.config();
  const Args run = {ENGINE_COMMAND, "run", "config.toml", "train.stepz=3"};
  const Result result = mpirun(scratch, {run, run, run});
  INFO(result.err);
  CHECK(result.exit == 2);
  CHECK(times(result.err, "nothing was started") == 1);
}

TEST_CASE("a rank that never comes is waited for no longer than the timeout", "[ranks][.slow]") {
  Scratch scratch;
  scratch.config();
  const Result result =
      mpirun(scratch, {{ENGINE_COMMAND, "run", "config.toml", "comm.timeout=2s"}, {"/bin/sleep", "60"}});
  INFO(result.err);
  CHECK(result.exit == 8);
  CHECK(has(result.err, "one is missing"));
  CHECK(result.seconds < 12 * patience);
}

TEST_CASE("ranks train a model with ops of its own", "[ranks]") {
  Scratch scratch;
  scratch.write("config.toml",
                "[model]\nplugin = \"mamba\"\npreset = \"tiny\"\nhidden_size = 32\nnum_hidden_layers = 2\n"
                "[data]\npaths = [\"text.txt\"]\n[train]\nsteps = 2\nmicro_batch = 1\nsequence_length = 32\n");
  const Result result = engine(scratch, {"run", "config.toml", "--out", "run", "--ranks", "2", "zero.plugin=zero3"});
  INFO(result.err);
  CHECK(result.exit == 0);
  CHECK(numbers(scratch / "run").size() == 2);
}
