// SPDX-License-Identifier: Apache-2.0
// tests/paths.hpp for programs of the ladder: one program serves plugins of several folders.
#include "tests/paths.hpp"

#include <cstdlib>

namespace {
const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}
}  // namespace

extern "C" {
const char *const test_plugin_dir = variable("LADDER_PLUGINS"), *const test_command = "", *const test_source_dir = "";
}
