// SPDX-License-Identifier: Apache-2.0
// A plugin file's own description. Runs none of its code.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/registry/registry.hpp"

namespace eng {

// Reads bytes from `offset` on and returns their number, less than `bytes` at the end.
using ReadAt = std::function<uint64_t(void* out, uint64_t offset, uint64_t bytes)>;

struct ElfFile {
  std::string problem;      // "" if the file is a shared object for this machine that exports only its entry
  std::string description;  // text of section .eng_plugin, without its final NUL
};
ElfFile read_elf(const ReadAt& in);          // does not throw, whatever the bytes are
ElfFile read_elf(const std::string& bytes);  // of a file in memory

// Fills `out` from the TOML text of section .eng_plugin (engine/plugin.h). Returns "", or why the text is refused.
std::string parse_description(const std::string& text, Description& out);

}  // namespace eng
