// SPDX-License-Identifier: Apache-2.0
// The libraries that come into the process with a plugin file, as the dynamic loader finds them.
#pragma once

#include <string>
#include <vector>

#include "session/plugins/plugin_file.hpp"

namespace eng {

// The requirements that the dynamic section of a file states for the loader.
struct ElfNeeds {
  std::vector<std::string> libraries;  // DT_NEEDED, DT_FILTER and DT_AUXILIARY
  std::string rpath, runpath;
};
// Through the program headers, as the loader reads it. Throws std::runtime_error if it cannot be read.
ElfNeeds elf_needs(const ReadAt& in);

// The reason why another user could have code of his loaded with the plugin file `path`; "" if nobody can. Each folder
// that the file, or a library that it needs, has searched before those of the system is held to what `hold` asks of a
// plugin, and so is each library that is found there. A folder must not depend on the working directory.
// LD_LIBRARY_PATH and what is loaded already are the user's own, the folders of the system root's. Runs none of their
// code.
std::string distrust_of_needs(const std::string& path, const ReadAt& in);

}  // namespace eng
