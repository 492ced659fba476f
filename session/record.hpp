// SPDX-License-Identifier: Apache-2.0
// What a run that exists says of itself.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/registry/registry.hpp"

namespace eng {

// Of run.json; what cannot be read is empty.
struct RunRecord {
  std::filesystem::path base_dir;                     // where relative paths of its configuration start
  uint32_t ranks = 0;                                 // of the newest attempt
  std::vector<std::filesystem::path> plugin_folders;  // that it was given by --plugin-path, absolute
  std::vector<std::string> plugins;                   // "ID=HASH" of those that it loaded
};
RunRecord read_record(const std::filesystem::path& run);

// Ties each plugin that `registry` found in the run's own folders to the file that the run was started with: loading
// another one throws Error(Exit::environment). Throws Error(Exit::usage) for a record that holds no hash.
void pin_recorded(Registry& registry, const RunRecord& record);

// The runs in `folder` and in the folders in it, newest last, at most so many.
std::vector<std::filesystem::path> runs_in(const std::filesystem::path& folder, std::size_t most);

}  // namespace eng
