// SPDX-License-Identifier: Apache-2.0
// Checks a plugin's effects on its process: loading, starting and stopping it must leave no trace.
#pragma once

#include <map>

#include "core/registry/registry.hpp"
#include "tools/engine/plugin_test/verdict.hpp"

namespace eng::plugin_test {

// The state of a process that a plugin may change unnoticed.
class Surroundings {
 public:
  Surroundings();
  // The changes since: "rounding of floats: 0, then 1024". `threads`: also those that run.
  std::vector<std::string> changes(bool threads = true) const;

 private:
  std::map<std::string, std::string> values_;
};

// The threads of this process that are no idle ones of an OpenMP pool, which ends here.
size_t threads_left();

// Loads, asks, starts and stops the file in this process.
void probe(const Candidate& file, Sheet& sheet);

}  // namespace eng::plugin_test
