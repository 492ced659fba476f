// SPDX-License-Identifier: Apache-2.0
// Any bytes as a plugin file: its description and exports are read, or there is a reason why not; a description is
// then judged in the same way.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/registry/description.hpp"
#include "core/registry/elf.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  eng::Bytes bytes;
  bytes.size = size;
  bytes.read = [&](uint64_t offset, void* out, uint64_t count) {
    // The reader's own promise: it never asks for what is not there.
    if (offset > size || count > size - offset) std::abort();
    std::memcpy(out, data + offset, count);
    return true;
  };
  const eng::ElfFile file = eng::read_elf(bytes);
  if (file.description.size() > size) std::abort();
  for (const std::string& name : file.exports)
    if (name.empty() || name.size() > size) std::abort();
  eng::check_exports(file.exports);
  if (!file.has_description) return 0;
  eng::Description description;
  const std::string refused = eng::parse_description(file.description, description);
  if (refused.empty() && (description.id.empty() || description.provides.empty())) std::abort();
  return 0;
}
