// SPDX-License-Identifier: Apache-2.0
// Plugin files on disk: can they be trusted, and what do they say about themselves? Nothing of them is run.
#pragma once

#include <sys/stat.h>

#include <istream>

#include "core/registry/registry.hpp"

namespace eng {

// "" if nobody but root and we can write it, else who can.
std::string untrusted(const struct stat& info);

// Hexadecimal. Throws Error(Exit::environment) if the file cannot be read.
std::string sha256_file(const std::filesystem::path& path);

struct ElfFile {
  std::string problem;      // "" if the file is a shared object of this machine that exports its entry alone
  std::string description;  // of section .eng_plugin, the final NUL removed
};
ElfFile read_elf(std::istream& in);  // does not throw, whatever the bytes are

// Fills `out` from the TOML text of section .eng_plugin (engine/plugin.h); "" or why the text is refused.
std::string parse_description(const std::string& text, Description& out);

}  // namespace eng
