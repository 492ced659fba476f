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

// A model's folder and files of conversations, as far as they decide a configuration.
struct ChatStart {
  std::string from;                // the folder, as [model] from
  std::vector<std::string> paths;  // of [data]
  std::string chat_template = {};  // [data] chat_template; "": that of the folder
  std::string dtype = {};          // of the folder's weights, as config.json says it; "": not said
  int64_t positions = 0;           // of the model; 0: not known
  int64_t width = 0;               // of the model, hidden_size
  uint64_t bytes = 0;              // of all rows
  uint64_t longest = 0;            // bytes of the longest row; 0: not known, as in compressed files
  bool adapter = false;            // LoRA in place of training all weights
};
// One that trains the answers of conversations. Lengths and batches are estimates: two bytes of a row are at most one
// token, four are one on average.
std::string start_chat(const ChatStart& from);

}  // namespace eng
