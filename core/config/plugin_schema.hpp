// SPDX-License-Identifier: Apache-2.0
// The options, and for a model the pretrained weights, that a plugin's description declares.
#pragma once

#include <utility>

#include "core/config/value.hpp"

namespace eng {

// [provides.pretrained] of a model plugin (engine/plugin.h): how its options are spelled in a Hugging Face config.json.
// A path is a key of config.json, with dots for nested keys; values are JSON texts.
struct Pretrained {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  std::vector<std::string> model_types;    // the first is written; none: the plugin reads no config.json
  std::vector<std::string> architectures;  // the first is written
  std::vector<std::string> recognise;      // paths that identify its config.json if that has no model_type
  std::map<std::string, std::vector<std::string>> fixed;  // path -> the supported values
  // For export, in addition to the options: path -> a constant, or {"product": [option, ...]}, a whole number that is
  // written only if no option gives the path a value.
  std::map<std::string, std::string> write;
  std::vector<std::string> ignore;          // paths that do not change the results
  Pairs rename;                             // prefixes of tensor names: accepted -> the plugin's
  Pairs tied;                               // an optional tensor that is no parameter -> the tensor it must equal
  std::vector<std::string> ignore_tensors;  // suffixes
};

// The options of what a plugin provides, and their presets.
struct PluginSchema {
  Schema options;
  std::map<std::string, Preset> presets;
  Pretrained pretrained = {};
};

}  // namespace eng
