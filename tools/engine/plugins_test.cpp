// SPDX-License-Identifier: Apache-2.0
// engine plugins test.
#include <fmt/format.h>

#include <algorithm>

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
  put_out(flags.json ? plugin_test::json_of(flags.request.file.string(), verdicts, flags.request.seed)
                     : plugin_test::table_of(verdicts));
  const bool failed = std::any_of(verdicts.begin(), verdicts.end(), [](const plugin_test::Verdict& v) {
    return v.outcome == plugin_test::Outcome::fail;
  });
  common.exit = static_cast<int>(failed ? Exit::environment : Exit::done);
}

}  // namespace

void add_plugins_test(CLI::App& plugins, Common& common) {
  auto* command = plugins.add_subcommand("test", "try a plugin file: what it is, does to its process, and computes");
  auto flags = std::make_shared<TestFlags>();
  command->add_option("file", flags->request.file, "NAME.eng.so")->required();
  command->add_option("options", flags->request.given, "KEY=VALUE of what it provides");
  command->add_option("--kind", flags->request.kind, "only this kind, for example eng.optimizer/1");
  command->add_option("--name", flags->request.name, "only what has this name");
  command->add_option("--seed", flags->request.seed, "of shapes and values; 1 by default");
  command->add_option("--rounds", flags->request.rounds, "how much is tried; 2 by default")->check(CLI::Range(1, 1000));
  command->add_option("--timeout", flags->request.seconds, "seconds for each thing that it provides; 300 by default");
  command->add_flag("--json", flags->json, "print one JSON object");
  command->add_option("--rank-of", flags->rank_of)->group("");  // for the ranks that it starts
  command->callback([&common, flags] { test(common, *flags); });
}

}  // namespace eng
