// SPDX-License-Identifier: Apache-2.0
// The plugins that `engine plan --fit` may choose: those whose description has [provides.fit] (engine/plugin.h).
#pragma once

#include "core/registry/registry.hpp"

namespace eng {

struct Offer {
  std::string name;
  int64_t order = 0;                    // those with a lower one are tried first
  std::string effect;                   // which numbers it changes; "": none, or those of a number format
  bool discrete = false;                // a tier that is of use only beside a device with memory of its own
  std::string group = {};               // of a strategy: the option with the number of ranks of a group; "": none
  std::vector<std::string> lossy = {};  // of a strategy: "KEY=VALUE", options that change values it moves
};
using Offers = std::vector<Offer>;

// The plugin of the configuration, `now`, then the others of this kind that may take its place, by order and name.
Offers offers(const Registry& registry, const char* kind, const std::string& now);
// The optimizers that say that they may replace `now`, by order and name.
Offers replacements(const Registry& registry, const std::string& now);
// The tiers, by order and name. A tier whose required options are not all given is left out: they say what there is,
// such as a folder on a disk.
Offers tiers_given(const Registry& registry, const Section& offload);

// The numbers that change if `to` takes the place of `from`; "" if none.
std::string effect_between(const Offer& from, const Offer& to);

}  // namespace eng
