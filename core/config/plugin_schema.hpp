// SPDX-License-Identifier: Apache-2.0
// The options that a plugin's description declares.
#pragma once

#include <memory>

#include "core/config/value.hpp"

namespace eng {

struct Pretrained;  // session/plugins/pretrained.hpp

// The options of what a plugin provides, and their presets.
struct PluginSchema {
  Schema options;
  std::map<std::string, Preset> presets;
  std::shared_ptr<const Pretrained> pretrained = {};  // of a model; none: it reads no config.json
};

}  // namespace eng
