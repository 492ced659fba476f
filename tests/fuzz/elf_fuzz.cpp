// SPDX-License-Identifier: Apache-2.0
// Plugin files from anywhere: the ELF reader and the description in it, and the input as a bare description.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/registry/description.hpp"
#include "core/registry/elf.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const eng::ElfFile elf = eng::read_elf({size, [&](uint64_t offset, void* out, uint64_t count) {
                                            // The reader promises to stay inside.
                                            if (offset > size || count > size - offset) std::abort();
                                            std::memcpy(out, data + offset, count);
                                            return true;
                                          }});
  eng::check_exports(elf.exports);
  eng::Description description;
  if (elf.has_description) eng::parse_description(elf.description, description);
  // A description that is accepted names itself.
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (eng::parse_description(text, description).empty() && description.id.empty()) std::abort();
  return 0;
}
