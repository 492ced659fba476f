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
// A mixer of mamba2, attention, and experts with a router of sigmoids.
inline const cli::Args hybrid = {"model.plugin=nemotron_h",
                                 "model.hybrid_override_pattern=\"M*E\"",
                                 "model.head_dim=16",
                                 "model.mamba_num_heads=4",
                                 "model.mamba_head_dim=16",
                                 "model.ssm_state_size=16",
                                 "model.n_groups=2",
                                 "model.n_routed_experts=4",
                                 "model.num_experts_per_tok=2",
                                 "model.moe_intermediate_size=24",
                                 "model.moe_shared_expert_intermediate_size=24",
                                 "model.n_group=2",
                                 "model.topk_group=1",
                                 "--unset",
                                 "model.num_hidden_layers"};
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
