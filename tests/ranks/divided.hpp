// SPDX-License-Identifier: Apache-2.0
// Runs of ranks that divide a model or its sequences, beside those of one rank.
#pragma once

#include <cmath>

#include "../cli/harness.hpp"

namespace cli {

inline std::string small_llama(int layers, int key_value_heads) {
  return "[model]\nplugin = 'llama'\nvocab_size = 256\nhidden_size = 32\nintermediate_size = 64\nnum_hidden_layers = " +
         std::to_string(layers) +
         "\nnum_attention_heads = 4\nnum_key_value_heads = " + std::to_string(key_value_heads) + "\n";
}
inline std::string small_opt(int layers, const std::string& dropout) {
  return "[model]\nplugin = 'opt'\nvocab_size = 256\nhidden_size = 32\nffn_dim = 64\nnum_hidden_layers = " +
         std::to_string(layers) + "\nnum_attention_heads = 4\nmax_position_embeddings = 64\ndropout = " + dropout +
         "\n";
}
inline std::string small_mamba(int layers) {
  return "[model]\nplugin = 'mamba'\nvocab_size = 256\nhidden_size = 32\nnum_hidden_layers = " +
         std::to_string(layers) + "\nstate_size = 4\ntime_step_rank = 4\n";
}
// The sections behind [model]. `train`: lines of [train].
inline std::string rest_of(const std::string& train) {
  return "[data]\npaths = ['text.txt']\nvalidation = 0.1\n[train]\n" + train +
         "eval_every = 3\n[optimizer]\nlearning_rate = 1e-2\n[checkpoint]\nevery = 3\nkeep = 0\n[device]\nthreads = "
         "1\n";
}

inline Result ran(const Scratch& scratch, Args args, uint32_t ranks) {
  args.insert(args.begin(), "run");
  if (ranks > 1) args.insert(args.end(), {"--ranks", std::to_string(ranks)});
  Result result = engine(scratch, args, {300, 0});
  INFO(result.err);
  REQUIRE(result.exit == 0);
  return result;
}

// A degree of division: "parallel.tensor" and 2. One rank alone has `rows` sequences in a micro-batch.
struct Degree {
  const char* key;
  uint32_t of;
  uint32_t rows;
};
// Trains `target`, a configuration or a run, on this many ranks. Each step takes the same sequences, whatever the
// degree.
inline void train_divided(const Scratch& scratch, const std::string& name, const std::string& target, uint32_t ranks,
                          const Degree& degree, int steps, Args more = {}) {
  more.insert(
      more.begin(),
      {target, std::string(degree.key) + "=" + std::to_string(degree.of), "train.steps=" + std::to_string(steps),
       "train.micro_batch=" + std::to_string(degree.rows * degree.of / ranks), "zero.bucket=64KiB"});
  if (target.ends_with(".toml")) more.insert(more.end(), {"--out", name});
  ran(scratch, more, ranks);
}

inline void near(const fs::path& run, const fs::path& whole, const char* what) {
  const std::vector<double> mine = column(run, what), theirs = column(whole, what);
  REQUIRE(mine.size() == theirs.size());
  for (size_t k = 0; k < mine.size(); ++k) {
    INFO(what << " " << k);
    CHECK(std::abs(mine[k] / theirs[k] - 1) < 1e-5);
  }
}

}  // namespace cli
