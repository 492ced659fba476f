// SPDX-License-Identifier: Apache-2.0
// A strategy can emit ops of its own plugin, which no other section of the configuration names.
#include <catch2/catch.hpp>

#include <cstring>

#include "session/config/schemas.hpp"
#include "session/plugins/search.hpp"
#include "session/train/setup.hpp"

TEST_CASE("a strategy's own ops are known where [zero] alone names its plugin") {
  eng::PluginSearch search;
  for (const char* file : {"cpu/reference", "llama/llama", "optim/optim", "precision/precision", "data/data"})
    search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
  search.extra.push_back(OWN_OP);
  search.environment = false;
  const auto registry = eng::find_plugins(search);
  const auto config = eng::Config::parse(
      "[model]\nplugin = 'llama'\npreset = 'tiny'\n[device]\nplugin = 'reference'\n[zero]\nplugin = 'own_op'\n"
      "[train]\nsequence_length = 8\n",
      "own_op.toml", ".", {}, schemas_of(*registry));
  const eng::Setup setup = eng::make_setup(config, *registry, 0, {0, 2, 0, 2});
  const auto summed = std::count_if(setup.plan.calls.begin(), setup.plan.calls.end(), [](const eng::Call& call) {
    return !std::strcmp(call.op->id, "org.example.own_op.sum/1");
  });
  CHECK(summed > 0);
}
