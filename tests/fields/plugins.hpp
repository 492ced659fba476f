// SPDX-License-Identifier: Apache-2.0
// The plugins of these tests, and configurations for them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "session/config/schemas.hpp"
#include "session/plugins/search.hpp"

namespace fields_test {

inline eng::Registry& registry() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const char* file : {"cpu/cpu", "cpu/reference", "llama/llama", "opt/opt", "mamba/hybrids", "mamba/mamba",
                             "moe/moe", "optim/optim", "precision/precision", "data/data"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
    search.extra.push_back(SCORED);
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

inline eng::Config config_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return eng::Config::parse(text, "c.toml", "/", overrides, schemas_of(registry()));
}

struct Refusal {
  eng::Exit exit = eng::Exit::done;
  std::string text, help;
};

// The error of a call; without one, Exit::done.
template <class F>
Refusal refusal(F call) {
  try {
    call();
  } catch (const eng::Error& e) {
    return {e.exit(), e.what(), e.help()};
  }
  return {};
}

}  // namespace fields_test
