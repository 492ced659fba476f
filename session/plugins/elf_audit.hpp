// SPDX-License-Identifier: Apache-2.0
// The needs of a plugin file, and its actions when it is loaded, as far as that can be seen without loading it.
#pragma once

#include <vector>

#include "session/plugins/plugin_file.hpp"

namespace eng {

struct ElfAudit {
  std::string problem;                // of read_elf, or what is malformed in the tables below
  std::vector<std::string> needed;    // libraries, in their order
  std::vector<std::string> too_new;   // versions of libc that this system does not have: "libc.so.6 GLIBC_2.99"
  std::vector<std::string> segments;  // what is wrong with segments: writable and executable ones, text relocations
  uint64_t constructors = 0;          // functions that run when it is loaded; the compiler's start files add one
};
ElfAudit audit_elf(const ReadAt& in);  // does not throw, whatever the bytes are

}  // namespace eng
