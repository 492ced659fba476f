// SPDX-License-Identifier: Apache-2.0
// Plugin files on disk: who may write them, and their descriptions. Runs none of their code.
#pragma once

#include <sys/stat.h>

#include <istream>

#include "core/registry/registry.hpp"

namespace eng {

// "" if only root and this user can write the file, otherwise who else can.
std::string untrusted(const struct stat& info);

// The hash in hexadecimal. Throws Error(Exit::environment) if the file cannot be read.
std::string sha256_file(const std::filesystem::path& path);

struct ElfFile {
  std::string problem;      // "" if the file is a shared object for this machine that exports only its entry
  std::string description;  // text of section .eng_plugin, without its final NUL
};
ElfFile read_elf(std::istream& in);  // does not throw, whatever the bytes are

// Fills `out` from the TOML text of section .eng_plugin (engine/plugin.h). Returns "", or why the text is refused.
std::string parse_description(const std::string& text, Description& out);

}  // namespace eng
