// SPDX-License-Identifier: Apache-2.0
// What a plugin's description says of the options it takes and, of a model, of weights that exist already.
#pragma once

#include <utility>

#include "core/config/value.hpp"

namespace eng {

// [provides.pretrained] of a model plugin (engine/plugin.h): how its options are spelled in a Hugging Face config.json.
// A path is a key of config.json, with dots where it lies inside of others; values are JSON texts.
struct Pretrained {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  std::string model_type;                  // "" if the plugin reads no config.json
  std::vector<std::string> architectures;  // the first is written
  std::vector<std::string> recognise;      // paths that tell its config.json where that has no model_type
  std::map<std::string, std::vector<std::string>> fixed;  // path -> the values that are supported
  // For export, over what the options say: path -> a constant, or {"product": [option, ...]}, a whole number that is
  // written where the options say nothing.
  std::map<std::string, std::string> write;
  std::vector<std::string> ignore;          // paths that change no number
  Pairs rename;                             // prefixes of tensor names: accepted -> the plugin's
  Pairs tied;                               // a tensor that may be there, equal to another, and is not a parameter
  std::vector<std::string> ignore_tensors;  // suffixes
};

// The options of what a plugin provides, and their presets.
struct PluginSchema {
  Schema options;
  std::map<std::string, Preset> presets;
  Pretrained pretrained = {};
};

}  // namespace eng
