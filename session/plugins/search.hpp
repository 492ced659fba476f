// SPDX-License-Identifier: Apache-2.0
// Finds plugin files on the search path and reads their descriptions. Runs none of their code.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "core/registry/registry.hpp"

namespace eng {

// The reason for refusing a plugin file that a build folder lacks: a first run builds only what it needs.
inline constexpr const char* not_built = "it is not built yet; `tools/dev build` builds it";
inline constexpr const char* not_in_build = "it is not in this build; ";  // and how it is built

// The places where plugins are looked for, besides the folders of the installation.
struct PluginSearch {
  std::vector<std::filesystem::path> extra;  // --plugin-path, before all others
  bool environment = true;                   // ENGINE_PLUGIN_PATH and XDG_DATA_HOME
};

// Scans the search path. Never throws for a bad file: the registry has it as a candidate with the reason. In a build
// folder that is so for a plugin that is not built, too.
std::unique_ptr<Registry> find_plugins(const PluginSearch& search);

}  // namespace eng
