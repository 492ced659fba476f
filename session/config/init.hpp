// SPDX-License-Identifier: Apache-2.0
// A configuration to start from.
#pragma once

#include <string>
#include <vector>

#include "session/config/config.hpp"

namespace eng {

struct ModelChoice {
  std::string plugin, preset;
  std::vector<std::string> others;  // other plugins with a preset of this name
};
// A model by its usual name: a preset ("7b"), a plugin ("llama": its smallest), or both ("llama tiny", "llama/tiny",
// "opt-125m", "facebook/opt-125m"). Throws an Error(Exit::usage) that lists the presets.
ModelChoice choose_model(const SchemaSource& plugins, const std::vector<std::string>& words);

// `needs`: the keys that must be set before it can train, each with its section if they are of several ones.
struct Start {
  std::string text;
  std::vector<std::string> needs;
};
Start start_config(const PluginSchema& model, const ModelChoice& choice);
// One that trains an adapter beside the weights of a Hugging Face directory.
Start start_adapter();

}  // namespace eng
