// SPDX-License-Identifier: Apache-2.0
// Plugin files from anywhere: the ELF reader, the audit and the description, and the input as a bare description.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "session/plugins/elf_audit.hpp"
#include "session/plugins/needs.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const eng::ElfFile elf = eng::read_elf(text);
  eng::Description description;
  eng::parse_description(elf.description, description);
  eng::audit_elf([&](void* out, uint64_t offset, uint64_t bytes) {
    const uint64_t n = std::min<uint64_t>(bytes, size - std::min<uint64_t>(offset, size));
    if (n) std::memcpy(out, data + offset, n);
    return n;
  });
  try {
    eng::elf_needs([&](void* out, uint64_t offset, uint64_t bytes) {
      const uint64_t n = std::min<uint64_t>(bytes, size - std::min<uint64_t>(offset, size));
      if (n) std::memcpy(out, data + offset, n);
      return n;
    });
  } catch (const std::runtime_error&) {  // refused
  }
  // A description that is accepted names itself.
  if (eng::parse_description(text, description).empty() && description.id.empty()) std::abort();
  return 0;
}
