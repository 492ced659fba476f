// SPDX-License-Identifier: Apache-2.0
// Plugin files on disk: where they are looked for, whether they can be trusted, what they say about themselves.
// Nothing of them is run, and whatever their bytes are, nothing is thrown.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <istream>
#include <string>
#include <vector>

#include "core/registry/registry.hpp"

namespace eng {

// Folders (or files, as --plugin-path may name) in search order, each absolute and once. `ignored` receives the
// relative ones of the environment, which would depend on the working directory.
std::vector<std::filesystem::path> search_path(const Registry::Search& search, std::vector<Candidate>& ignored);

// The files NAME.eng.so in `place`, sorted; `place` itself if it is no folder.
std::vector<std::filesystem::path> plugin_files(const std::filesystem::path& place);

// "" if nobody but root and we can write it, else who can.
std::string untrusted(const struct stat& info);

struct ElfFile {
  std::string problem;      // "" if the file is a shared object of this machine that exports its entry alone
  std::string description;  // of section .eng_plugin, the final NUL removed
};
ElfFile read_elf(std::istream& in);

// Fills `out` from the TOML text of section .eng_plugin (engine/plugin.h); "" or why the text is refused.
std::string parse_description(const std::string& text, Description& out);

// Reads and judges one file.
Candidate inspect(const std::filesystem::path& path);

// Hexadecimal. Throws Error(Exit::environment) if the file cannot be read.
std::string sha256_file(const std::filesystem::path& path);

}  // namespace eng
