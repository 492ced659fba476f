// SPDX-License-Identifier: Apache-2.0
// The plugins that were built, and the kernels that a fleet runs.
#pragma once

#include <memory>

#include "fleet.hpp"
#include "session/plugins/search.hpp"

namespace equality {

inline eng::Registry& registry() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const char* file :
         {"cpu/reference", "llama/llama", "decoders/decoders", "opt/opt", "mamba/hybrids", "mamba/mamba", "moe/moe",
          "optim/optim", "optim/muon", "optim/adamw8bit", "precision/precision", "zero/zero", "offload/host",
          "observe/stats", "transform/fp8", "transform/low_rank", "loss/preference"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
#ifdef TWO_LEVEL
    search.extra.push_back(TWO_LEVEL);
#endif
#ifdef ROWS
    search.extra.push_back(ROWS);
#endif
#ifdef HALF
    search.extra.push_back(HALF);
    search.extra.push_back(DITHER);
#endif
#ifdef SHELF
    search.extra.push_back(SHELF);
    search.extra.push_back(PRESS);
#endif
#ifdef SCORED
    search.extra.push_back(SCORED);
#endif
#ifdef ODD
    search.extra.push_back(ODD);
#endif
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

inline const eng::Kernels& reference() {
  static const eng::Kernels kernels(registry(), "reference", eng::Section());
  return kernels;
}

}  // namespace equality
