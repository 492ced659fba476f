// SPDX-License-Identifier: Apache-2.0
// engine plugins.
#include <fmt/format.h>

#include "session/plugins/listing.hpp"
#include "tools/engine/command.hpp"

namespace eng {

void add_plugins(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("plugins", "list plugins, describe or try one, or write one to start from");
  command->require_subcommand(1);
  auto why = std::make_shared<bool>(false);
  auto* ls = command->add_subcommand("ls", "list them");
  ls->add_flag("--why", *why, "also print the folders searched, and why files were refused");
  ls->callback([&common, why] { put_out(print_plugins(*scan_plugins(common), *why)); });
  auto what = std::make_shared<std::string>();
  auto* info =
      command->add_subcommand("info", "print the options and presets of a plugin, and of a device what it finds here");
  info->add_option("name", *what, "an id, the name of something it provides, or a file's name")->required();
  info->callback([&common, what] {
    auto registry = scan_plugins(common);
    std::string text = print_plugin(*registry, *what);
    if (text.empty())
      throw Error(Exit::environment, "there is no plugin `" + *what + "`", near_plugins(*registry, *what));
    put_out(text);
    if (registry->find(ENG_DEVICE_KIND, *what)) put_out("\non this machine:\n" + device_here(*registry, *what));
  });
  add_plugins_test(*command, common);
  add_plugins_new(*command, common);
}

}  // namespace eng
