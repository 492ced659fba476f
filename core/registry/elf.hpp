// SPDX-License-Identifier: Apache-2.0
// What a plugin file says about itself, read without running it. Every offset and size of the file is doubted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace eng {

// Random access to a file's bytes. `read` copies [offset, offset + count) and returns false if it cannot.
struct Bytes {
  uint64_t size = 0;
  std::function<bool(uint64_t offset, void* out, uint64_t count)> read;
};

struct ElfFile {
  std::string problem;               // "" if the file is a shared object of this machine, else why not
  bool has_description = false;      // section .eng_plugin exists
  std::string description;           // its text, the final NUL removed
  std::vector<std::string> exports;  // defined dynamic symbols that others can see, sorted
};

ElfFile read_elf(const Bytes& bytes);

// "" if the exports are right: eng_plugin_query_1, and besides it only entries of other ABI majors.
std::string check_exports(const std::vector<std::string>& exports);

}  // namespace eng
