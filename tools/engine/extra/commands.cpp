// SPDX-License-Identifier: Apache-2.0
// The subcommands of engine-extra.
#include <map>

#include "tools/engine/extra.hpp"

namespace eng {

void add_commands(CLI::App& app, Common& common) {
  const std::map<std::string, void (*)(CLI::App&, Common&)> fill = {
      {"analyse", fill_analyse}, {"ckpt", fill_ckpt},         {"report", fill_report},
      {"convert", fill_convert}, {"test", fill_plugins_test}, {"new", fill_plugins_new}};
  for (const ExtraCommand& one : extra_commands) {
    CLI::App* group = &app;
    if (app.get_name() != one.group) {
      const auto have = app.get_subcommands([&](const CLI::App* other) { return other->get_name() == one.group; });
      group = have.empty() ? app.add_subcommand(one.group)->require_subcommand(1) : have.front();
    }
    fill.at(one.name)(*group->add_subcommand(one.name, one.help), common);
  }
}

}  // namespace eng
