// SPDX-License-Identifier: Apache-2.0
// From a target (a configuration, a run, or a Hugging Face directory) to plugins and a complete configuration.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/registry/registry.hpp"
#include "session/config/source.hpp"

namespace eng {

struct OpenRequest {
  std::filesystem::path target;
  std::vector<std::string> overrides;               // "train.steps=10", "-train.steps": see Config::load
  std::vector<std::filesystem::path> plugin_paths;  // searched before all others
  std::filesystem::path
      place;  // relative paths refer to it for a Hugging Face directory or a text; by default the current folder
  std::optional<std::string> text = {};  // the configuration itself; `target` then stands for its file in messages
};

struct Opened {
  std::unique_ptr<Registry> registry;
  Config config;
  // The folders of `plugin_paths`, absolute, and those that the resumed run was given.
  std::vector<std::filesystem::path> plugin_folders;
  std::optional<Document> before;  // the resolved configuration of the run that is resumed
};

// Scans for plugins and reads a configuration. `target` is a configuration file, a run, or a Hugging Face directory.
// For a Hugging Face directory every section has its defaults and [model] from is that directory, so that
// Trainer::initialise(weights_of(weights_source(config))) reads its weights. [data] gets the tokenizer of existing
// weights, and must not name another one. Throws ConfigError, or Error(usage, data).
// Owner: the caller owns both; the registry must outlive everything made from it.
// Thread: any, one call at a time.
Opened open_config(const OpenRequest& request);

// Searches `first`, then the folders where plugins are installed, then `more` ([plugins] path).
std::unique_ptr<Registry> scan_plugins(const std::vector<std::filesystem::path>& first,
                                       const std::vector<std::filesystem::path>& more = {});

}  // namespace eng
