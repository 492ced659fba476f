// SPDX-License-Identifier: Apache-2.0
// engine plugins.
#include <fmt/format.h>

#include <algorithm>

#include "session/report/plugins.hpp"
#include "tools/engine/command.hpp"
#include "tools/engine/plugin_test/tester.hpp"

namespace eng {
namespace {

struct TestFlags {
  plugin_test::Request request;
  std::string rank_of;
  bool json = false;
};

void test(Common& common, TestFlags& flags) {
  flags.request.plugin_paths = common.plugin_paths;
  if (!flags.rank_of.empty()) return plugin_test::test_as_rank(flags.request, flags.rank_of);
  const auto verdicts = plugin_test::test_plugin(flags.request);
  fmt::print("{}", flags.json ? plugin_test::json_of(flags.request.file.string(), verdicts, flags.request.seed)
                              : plugin_test::table_of(verdicts));
  const bool failed = std::any_of(verdicts.begin(), verdicts.end(), [](const plugin_test::Verdict& v) {
    return v.outcome == plugin_test::Outcome::fail;
  });
  common.exit = static_cast<int>(failed ? Exit::environment : Exit::done);
}

void add_test(CLI::App& command, Common& common) {
  auto flags = std::make_shared<TestFlags>();
  auto* app = command.add_subcommand("test", "try a plugin file: what it is, does to its process, and computes");
  app->add_option("file", flags->request.file, "NAME.eng.so")->required();
  app->add_option("options", flags->request.given, "KEY=VALUE of what it provides");
  app->add_option("--kind", flags->request.kind, "only this kind, for example eng.optimizer/1");
  app->add_option("--name", flags->request.name, "only what has this name");
  app->add_option("--seed", flags->request.seed, "of shapes and values; 1 by default");
  app->add_option("--rounds", flags->request.rounds, "how much is tried; 2 by default")->check(CLI::Range(1, 1000));
  app->add_option("--timeout", flags->request.seconds, "seconds for each thing that it provides; 300 by default");
  app->add_flag("--json", flags->json, "print one JSON object");
  app->add_option("--rank-of", flags->rank_of)->group("");  // for the ranks that it starts
  app->callback([&common, flags] { test(common, *flags); });
}

}  // namespace

void add_plugins(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("plugins", "list plugins, describe or try one, or write one to start from");
  command->require_subcommand(1);
  auto why = std::make_shared<bool>(false);
  auto* ls = command->add_subcommand("ls", "list them");
  ls->add_flag("--why", *why, "also print the folders searched, and why files were refused");
  ls->callback([&common, why] { fmt::print("{}", print_plugins(*scan_plugins(common), *why)); });
  auto what = std::make_shared<std::string>();
  auto* info = command->add_subcommand("info", "print the options and presets of a plugin");
  info->add_option("name", *what, "an id, the name of something it provides, or a file's name")->required();
  info->callback([&common, what] {
    auto registry = scan_plugins(common);
    std::string text = print_plugin(*registry, *what);
    if (text.empty())
      throw Error(Exit::environment, "there is no plugin `" + *what + "`", near_plugins(*registry, *what));
    fmt::print("{}", text);
  });
  add_test(*command, common);
  add_plugins_new(*command, common);
}

}  // namespace eng
