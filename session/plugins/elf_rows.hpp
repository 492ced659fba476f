// SPDX-License-Identifier: Apache-2.0
// Reads tables of an ELF file whose places come from the file, and are checked.
#pragma once

#include <elf.h>

#include <vector>

#include "core/base/error.hpp"
#include "session/plugins/plugin_file.hpp"

namespace eng {

#if defined(__x86_64__)
constexpr uint16_t this_machine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t this_machine = EM_AARCH64;
#else
#error "name this machine's ELF number here"
#endif

constexpr uint64_t most_elf_bytes = 16u << 20;  // of one table

// `count` rows at `offset`. Throws std::runtime_error naming `what`.
template <class Row>
std::vector<Row> elf_rows(const ReadAt& in, uint64_t offset, uint64_t count, const char* what) {
  need(count <= most_elf_bytes / sizeof(Row), "malformed ELF file: its {} has {} entries", what, count);
  std::vector<Row> out(count);
  const uint64_t size = count * sizeof(Row);
  need(in(out.data(), offset, size) == size, "truncated ELF file: its {} ends after the end of the file", what);
  return out;
}

inline std::string elf_text(const ReadAt& in, const Elf64_Shdr& section, const char* what) {
  need(section.sh_type != SHT_NOBITS, "malformed ELF file: its {} has no bytes", what);
  const auto bytes = elf_rows<char>(in, section.sh_offset, section.sh_size, what);
  return std::string(bytes.begin(), bytes.end());
}

// The NUL-terminated string at `offset`; "" if it starts or ends outside `strings`.
inline std::string elf_string(const std::string& strings, uint64_t offset) {
  const size_t end = strings.find('\0', std::min<uint64_t>(offset, strings.size()));
  return end == std::string::npos ? "" : strings.substr(offset, end - offset);
}

}  // namespace eng
