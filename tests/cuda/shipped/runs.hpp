// SPDX-License-Identifier: Apache-2.0
// Words of commands for runs on the software CUDA runtime: very small models, and what is added to them.
#pragma once

#include "tests/cli/harness.hpp"

namespace shipped {

inline cli::Args with(cli::Args words, const cli::Args& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline const cli::Args opt = {"model.plugin=opt", "model.ffn_dim=128", "--unset", "model.intermediate_size"};
inline const cli::Args mamba = {
    "model.plugin=mamba",       "model.state_size=5", "--unset", "model.intermediate_size", "--unset",
    "model.num_attention_heads"};
inline const cli::Args moe = {"model.plugin=olmoe", "model.num_experts=3", "model.num_experts_per_tok=2",
                              "model.output_router_logits=true"};
// LoRA beside frozen weights in 4 bits.
inline const cli::Args qlora = {"adapter.plugin=lora", "adapter.targets=[\"all-linear\"]", "adapter.rank=4",
                                "precision.frozen=nf4"};

// Each value of a column of metrics.jsonl is within `limit` of the other run's, relative to it.
inline void check_close(const cli::fs::path& got, const cli::fs::path& want, const char* key, double limit = 1e-4) {
  const std::vector<double> g = cli::column(got, key), w = cli::column(want, key);
  REQUIRE(g.size() == w.size());
  for (size_t k = 0; k < w.size(); ++k) CHECK(g[k] == Approx(w[k]).epsilon(limit));
}

}  // namespace shipped
