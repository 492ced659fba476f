// SPDX-License-Identifier: Apache-2.0
// The record of an existing run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/registry/registry.hpp"

namespace eng {

// From run.json; what cannot be read is empty.
struct RunRecord {
  std::filesystem::path base_dir;                     // relative paths of its configuration refer to it
  std::string job;                                    // of an analysis; "" for a run
  uint32_t ranks = 0;                                 // of the newest attempt
  std::vector<std::filesystem::path> plugin_folders;  // given by --plugin-path, absolute
  std::vector<std::string> plugins;                   // "ID=HASH" of each loaded plugin
};
// True if a directory is that of an analysis (session/job/analysis.hpp).
bool is_analysis(const std::filesystem::path& directory);
RunRecord read_record(const std::filesystem::path& run);

// Pins each plugin that `registry` found in the run's own folders to the file with which the run was started: loading
// another file throws Error(Exit::environment). Throws Error(Exit::usage) for a record without a valid hash.
void pin_recorded(Registry& registry, const RunRecord& record);

// The runs in `folder` and its subfolders, newest last, at most this many.
std::vector<std::filesystem::path> runs_in(const std::filesystem::path& folder, std::size_t most);

}  // namespace eng
