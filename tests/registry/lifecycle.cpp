// SPDX-License-Identifier: Apache-2.0
// plugin-lifecycle PATH: loads the plugin that provides a counter from PATH (a file or a folder) through two
// registries, stops it, and reports what it counted.
// Exit code 0 if it was started once and stopped once.
#include <cstdio>
#include <exception>

#include "fixture.h"
#include "session/plugins/search.hpp"

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  counter table{};
  for (int k = 0; k < 2; ++k) {
    const auto registry = eng::find_plugins({{argv[1]}, false});
    table = registry->table<counter>(COUNTER_KIND, "counter");
    if (k == 1) std::printf("%s %s\n", registry->loaded().at(0).id.c_str(), registry->loaded().at(0).version.c_str());
  }
  const int before = table.stops();
  eng::stop_plugins();
  eng::stop_plugins();
  std::printf("starts %d, stops %d\n", table.starts(), table.stops());
  bool refused = false;
  try {
    eng::find_plugins({{argv[1]}, false})->table<counter>(COUNTER_KIND, "counter");
  } catch (const std::exception& error) {
    refused = true;
    std::printf("%s\n", error.what());
  }
  return before == 0 && table.starts() == 1 && table.stops() == 1 && refused ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
