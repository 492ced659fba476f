// SPDX-License-Identifier: Apache-2.0
// What must hold between keys, and values that are derived from others.
#pragma once

#include <functional>
#include <set>

#include "core/config/config.hpp"
#include "core/config/source.hpp"

namespace eng {

struct Rules {
  const Document& document;
  Problems& problems;
  std::vector<std::string>& notes;
  std::function<Section&(const char*)> section;
  const std::set<std::string>& broken;  // sections with problems of their own: rules about them stay silent
};
void apply_rules(const Rules& rules);

}  // namespace eng
