// SPDX-License-Identifier: Apache-2.0
// From what somebody names (a configuration, a run, a Hugging Face directory) to plugins and a complete configuration.
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
  std::vector<std::filesystem::path> plugin_paths;  // looked in before all others
  std::filesystem::path
      place;  // where relative paths start for a Hugging Face directory; by default the current folder
};

struct Opened {
  std::unique_ptr<Registry> registry;
  Config config;
  // The folders of `plugin_paths`, absolute, and those that the run which goes on was given.
  std::vector<std::filesystem::path> plugin_folders;
  std::optional<Document> before;  // what the run which goes on was resolved to
};

// Scans for plugins and reads a configuration: `target` is its file, or a run, or a Hugging Face directory: then every
// section has its defaults and [model] from is that directory, so that
// Trainer::initialise(weights_of(weights_source(config))) takes its weights. [data] gets the tokenizer of weights that
// exist already, and may not name another one. Throws ConfigError, or Error(usage, data).
// Owner: the caller has both; the registry must outlive what is made of it.
// Thread: any, one call at a time.
Opened open_config(const OpenRequest& request);

// Looks in `first`, then where plugins are installed, then in `more` ([plugins] path).
std::unique_ptr<Registry> scan_plugins(const std::vector<std::filesystem::path>& first,
                                       const std::vector<std::filesystem::path>& more = {});

}  // namespace eng
