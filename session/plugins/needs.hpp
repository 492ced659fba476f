// SPDX-License-Identifier: Apache-2.0
// The libraries that come into the process with a plugin file, as the dynamic loader finds them.
#pragma once

#include <filesystem>
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
// The folders of the run path of the file `path`, in the loader's order. Throws std::runtime_error for a folder that
// only the loader knows.
std::vector<std::filesystem::path> run_path_of(const ElfNeeds& needs, const std::string& path);

// The reason why another user could have code of his loaded with the plugin file `path`; "" if nobody can. Each folder
// that the file, or a library that it needs, has searched before those of the system is held to what `hold` asks of a
// plugin, and so is each library that is found there. A folder must not depend on the working directory.
// LD_LIBRARY_PATH and what is loaded already are the user's own, the folders of the system root's. Runs none of their
// code.
std::string distrust_of_needs(const std::string& path, const ReadAt& in);

// Help for a plugin file that the loader refuses: the libraries that it needs and that are not found, the folders in
// which they are looked for, and the command that installs them. It loads and unloads libraries of the system.
std::string help_of_missing(const std::string& path, const ReadAt& in);
// The help where all of them are found.
inline constexpr const char* none_missing =
    "a library it needs is of another version, or lacks a library itself (ldd shows which)";

}  // namespace eng
