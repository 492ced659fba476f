// SPDX-License-Identifier: Apache-2.0
// Plans of llama models for tests, with the device `reference`.
#pragma once

#include "session/config/config.hpp"
#include "session/config/schemas.hpp"
#include "session/planning/setup.hpp"
#include "session/plugins/search.hpp"

namespace planned {

using Words = std::vector<std::string>;

inline eng::Registry& plugins() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const char* file :
         {"cpu/reference", "llama/llama", "optim/optim", "precision/precision", "transform/fp8", "zero/zero"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

inline eng::Config config_of(const std::string& preset, const std::string& strategy, Words more = {},
                             eng::Registry& registry = plugins()) {
  more.insert(more.begin(), "zero.plugin=" + strategy);
  return eng::Config::parse("[model]\nplugin = 'llama'\npreset = '" + preset +
                                "'\n[device]\nplugin = 'reference'\n[train]\nsequence_length = 16\n",
                            "test.toml", ".", more, schemas_of(registry));
}

inline eng::Setup setup_of(const std::string& preset, const std::string& strategy, uint32_t ranks, Words more = {},
                           uint32_t rank = 0) {
  return eng::make_setup(config_of(preset, strategy, std::move(more)), plugins(), 0, {rank, ranks, 0, 1});
}

inline const Words tiny_width = {
    "model.hidden_size=16",        "model.intermediate_size=32", "model.num_attention_heads=2",
    "model.num_key_value_heads=1", "model.head_dim=8",           "model.vocab_size=64"};

}  // namespace planned
