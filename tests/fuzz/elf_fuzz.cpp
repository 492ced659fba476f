// SPDX-License-Identifier: Apache-2.0
// Plugin files from anywhere: the ELF reader and the description in it, and the input as a bare description.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "session/plugins/plugin_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const eng::ElfFile elf = eng::read_elf(text);
  eng::Description description;
  eng::parse_description(elf.description, description);
  // A description that is accepted names itself.
  if (eng::parse_description(text, description).empty() && description.id.empty()) std::abort();
  return 0;
}
