// SPDX-License-Identifier: Apache-2.0
// Runs whose ranks are killed at a given place, by plugins that kill their own process.
#pragma once

#include <random>
#include <sstream>

#include "tests/paths.hpp"
#include "training.hpp"

namespace cli {

// The folder of the plugin `killer` and of the program `engine-killer`.
inline fs::path killer_folder() {
  return fs::path(ENGINE_PLUGIN_DIR).parent_path() / "tests" / "ranks";
}
inline fs::path killer() {
  return killer_folder() / "killer.eng.so";
}

// Six steps of twelve sequences, by three ranks in two micro-batches or by two in three. keep: checkpoints, 0 for all.
inline void write_config(const Scratch& scratch, int keep = 0) {
  scratch.write("config.toml", R"([model]
plugin = "killer"

[data]
paths = ["text.txt"]

[train]
steps = 6
micro_batch = 2
accumulate = 2
sequence_length = 32
eval_every = 0

[optimizer]
plugin = "killer"
learning_rate = 0.02

[device]
threads = 1

[checkpoint]
every = 2
keep = )" + std::to_string(keep) + "\n");
}

inline Result train(const Scratch& scratch, Args words, const Args& more = {}) {
  words.insert(words.begin(), {"--plugin-path", killer().string()});
  words.insert(words.end(), more.begin(), more.end());
  return engine(scratch, words);
}

inline std::vector<Json> events(const fs::path& run) {
  std::vector<Json> out;
  std::istringstream lines(read(run / "restarts.jsonl"));
  for (std::string line; std::getline(lines, line);) out.push_back(Json::parse(line));
  return out;
}

inline void same_bits(const Scratch& scratch, const fs::path& a, const fs::path& b) {
  for (const char* key : {"step", "loss", "grad_norm", "tokens"}) CHECK(column(a, key) == column(b, key));
  const Result diff = engine(scratch, {"ckpt", "diff", checkpoint(a, 6).string(), checkpoint(b, 6).string()});
  INFO(diff.out << diff.err);
  CHECK(diff.exit == 0);
}

// A place for a kill, as words of a command. `number`: the micro-batch of the step.
struct Place {
  int rank, step;
  std::string where;
  int number = 1;
  Args words() const {
    const std::string of = std::to_string(rank);
    if (where == "optimizer")
      return {"optimizer.kill=true", "optimizer.kill_rank=" + of, "optimizer.kill_at=" + std::to_string(step)};
    return {"model.kill=" + where, "model.kill_rank=" + of, "model.kill_at=" + std::to_string(step * 2 - 2 + number)};
  }
};

inline Place random_place(std::mt19937& random, int ranks) {
  const char* const where[] = {"forward", "backward", "optimizer"};
  const int rank = static_cast<int>(random() % static_cast<unsigned>(ranks)), step = 1 + static_cast<int>(random() % 6);
  return {rank, step, where[random() % 3]};
}

}  // namespace cli
