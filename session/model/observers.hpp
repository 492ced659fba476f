// SPDX-License-Identifier: Apache-2.0
// [[observers]]: which there are, and which of their numbers are shown when.
#pragma once

#include "core/plan/request.hpp"
#include "session/config/config.hpp"

namespace eng {

class Registry;

struct Observers {
  struct One {
    int64_t every = 1;
    std::vector<std::string> progress;  // patterns of names
    int64_t sample_length = 0;          // positions of the longest text that it may ask for; 0: none
  };
  std::vector<Observer> objects;
  std::vector<One> shown;  // per object
};

// Loads their plugins. Throws Error(Exit::usage) for two of one name, and for texts that one cannot ask for.
Observers make_observers(const Config& config, Registry& registry);

}  // namespace eng
