// SPDX-License-Identifier: Apache-2.0
// The sources of [data]: that of its plugin, or those of [[data.sources]].
#pragma once

#include "core/registry/registry.hpp"
#include "engine/data.h"
#include "session/config/config.hpp"

namespace eng {

// A source as the configuration describes it; it is not opened.
struct DataSource {
  std::string name;  // in metrics and messages; "": the only one, of [data] itself
  std::string plugin;
  Section section;  // [data] as its plugin reads it
  eng_data table{};
  std::string label;   // in messages: "text", or "text, source `code`"
  uint32_t group = 1;  // of so many samples, the first at a multiple of it, none is read without the others
  // The loss is the mean over loss_weights: the sum of the weighted losses, divided by the sum of the weights.
  bool weighted_mean = false;
  // Given by its entry: its part of the samples, or how often an epoch of the mixture reads it.
  std::optional<double> weight = {}, epochs = {};
  std::string where() const { return "data plugin " + label; }
};

// Loads their plugins. Throws Error(Exit::usage) if a key of [data] does not fit one of them.
std::vector<DataSource> data_sources(const Config& config, Registry& registry);
// The names of their plugins: "text", "text, tokens".
std::string data_plugins(const Config& config);

}  // namespace eng
