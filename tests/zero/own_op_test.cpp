// SPDX-License-Identifier: Apache-2.0
// A strategy can emit ops of its own plugin, which no other section of the configuration names, and ops of another
// plugin, which its description lists.
#include <catch2/catch.hpp>

#include <cstring>

#include "session/config/schemas.hpp"
#include "session/planning/setup.hpp"
#include "session/plugins/search.hpp"

using Catch::Matchers::Contains;

namespace {

struct Planned {
  std::unique_ptr<eng::Registry> registry;
  std::ptrdiff_t sums = 0;  // uses of the op
  std::vector<std::string> notes = {};

  bool loaded(const std::string& id) const {
    const auto& all = registry->loaded();
    return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.id == id; });
  }
};

// A plan of two ranks with the strategy `own_op`, which one of these files provides.
Planned plan_with(const std::vector<std::string>& files) {
  eng::PluginSearch search;
  for (const char* file : {"cpu/reference", "llama/llama", "optim/optim", "precision/precision", "data/data"})
    search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
  search.extra.insert(search.extra.end(), files.begin(), files.end());
  search.environment = false;
  Planned out{eng::find_plugins(search)};
  const auto config = eng::Config::parse(
      "[model]\nplugin = 'llama'\npreset = 'tiny'\n[device]\nplugin = 'reference'\n[zero]\nplugin = 'own_op'\n"
      "[train]\nsequence_length = 8\n",
      "own_op.toml", ".", {}, schemas_of(*out.registry));
  const eng::Setup setup = eng::make_setup(config, *out.registry, 0, {0, 2, 0, 2});
  out.sums = std::count_if(setup.plan.calls.begin(), setup.plan.calls.end(),
                           [](const eng::Call& call) { return !std::strcmp(call.op->id, "org.example.own_op.sum/1"); });
  out.notes = setup.notes;
  return out;
}

}  // namespace

TEST_CASE("a strategy's own ops are known where [zero] alone names its plugin") {
  CHECK(plan_with({OWN_OP}).sums > 0);
}

TEST_CASE("a file whose ops another plugin uses is loaded, although no section names it") {
  const Planned planned = plan_with({BORROWER, OWN_OP});
  CHECK(planned.sums > 0);
  CHECK(planned.loaded("org.example.borrower"));
  CHECK(planned.loaded("org.example.own_op"));  // so run.json records it
}

TEST_CASE("an op that a plugin uses and that no file brings is an error before anything is traced") {
  CHECK_THROWS_WITH(plan_with({BORROWER}),
                    Contains("plugin org.example.borrower uses the op org.example.own_op.sum/1, which no plugin file "
                             "brings"));
  CHECK_THROWS_WITH(plan_with({WRONG_BORROWER, OWN_OP}),
                    Contains("plugin org.example.borrower uses the op org.example.own_op.product/1, which ") &&
                        Contains("own_op.eng.so does not have"));
}

TEST_CASE("a plan says that a strategy is lossy") {
  const auto lossy = [](const std::string& note) { return note.find("is lossy") != std::string::npos; };
  const auto notes = plan_with({LOSSY, OWN_OP}).notes;
  REQUIRE(std::count_if(notes.begin(), notes.end(), lossy) == 1);
  CHECK_THAT(*std::find_if(notes.begin(), notes.end(), lossy), Contains("zero.plugin = \"own_op\" is lossy"));
  const auto exact = plan_with({OWN_OP}).notes;
  CHECK(std::none_of(exact.begin(), exact.end(), lossy));
}
