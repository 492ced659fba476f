// SPDX-License-Identifier: Apache-2.0
// From a DeepSpeed file, a launch line or Hugging Face's training arguments to a configuration.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "session/config/config.hpp"

namespace eng {

struct ForeignRun {
  std::string name = {}, text = {};  // the file, JSON or YAML; "" if there is none
  std::string arguments = {};        // the launch line, or only its flags
  // The text of a file that these name. Throws Error(Exit::usage).
  std::function<std::string(const std::string& path)> read = {};
  std::vector<std::string> ignored = {};  // keys that are not read, as if they were not there
};

struct Converted {
  std::string text;                // TOML; what is not known is commented out
  std::vector<std::string> notes;  // what has no equivalent or means something else, and what is not known
  int64_t ranks = 0;               // 0: not known
};

// Throws Error(Exit::usage) with every reason why the run cannot mean anything.
Converted convert_run(const ForeignRun& run, const SchemaSource& plugins);

}  // namespace eng
