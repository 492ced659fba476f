// SPDX-License-Identifier: Apache-2.0
// Reads the exports and section .eng_plugin of a shared object without running it.
#include <bit>
#include <cstring>

#include "session/config/toml.hpp"
#include "session/plugins/elf_rows.hpp"

namespace eng {
namespace {

static_assert(std::endian::native == std::endian::little, "the ELF reader copies little-endian fields unchanged");

void read(const ReadAt& in, ElfFile& out) {
  char magic[SELFMAG] = {};
  in(magic, 0, SELFMAG);
  need(std::memcmp(magic, ELFMAG, SELFMAG) == 0, "not an ELF file");
  const Elf64_Ehdr head = elf_rows<Elf64_Ehdr>(in, 0, 1, "header")[0];
  need(head.e_ident[EI_CLASS] == ELFCLASS64, "not a 64-bit ELF file");
  need(head.e_machine == this_machine, "built for ELF machine {}, this is {}", +head.e_machine, +this_machine);
  need(head.e_type == ET_DYN, "an ELF file, but not a shared object");
  need(head.e_shentsize == sizeof(Elf64_Shdr) && head.e_shnum < SHN_LORESERVE, "malformed ELF section table");
  const auto sections = elf_rows<Elf64_Shdr>(in, head.e_shoff, head.e_shnum, "section table");
  need(head.e_shstrndx < sections.size(), "malformed ELF file: no section names");
  const std::string names = elf_text(in, sections[head.e_shstrndx], "section name table");
  std::set<std::string> exports;  // defined symbols that others can see
  for (const Elf64_Shdr& section : sections) {
    if (elf_string(names, section.sh_name) == ".eng_plugin") {
      need(out.description.empty(), "malformed ELF file: two sections .eng_plugin");
      out.description = elf_text(in, section, "section .eng_plugin");
      // Must be one string; instrumented builds pad it with NULs.
      out.description.erase(out.description.find_last_not_of('\0') + 1);
      need(out.description.find('\0') == std::string::npos,
           "use ENG_DESCRIPTION once per plugin: section .eng_plugin holds two texts");
    }
    if (section.sh_type != SHT_DYNSYM) continue;
    need(section.sh_entsize == sizeof(Elf64_Sym) && section.sh_link < sections.size(), "malformed ELF symbol table");
    const std::string strings = elf_text(in, sections[section.sh_link], "dynamic string table");
    for (const Elf64_Sym& symbol :
         elf_rows<Elf64_Sym>(in, section.sh_offset, section.sh_size / sizeof(Elf64_Sym), "dynamic symbol table")) {
      const auto seen = ELF64_ST_VISIBILITY(symbol.st_other);
      const bool defined = symbol.st_shndx != SHN_UNDEF && symbol.st_shndx != SHN_ABS;
      if (defined && ELF64_ST_BIND(symbol.st_info) != STB_LOCAL && (seen == STV_DEFAULT || seen == STV_PROTECTED))
        exports.insert(elf_string(strings, symbol.st_name));
    }
  }
  for (const char* linker : {"", "_init", "_fini", "_end", "_edata", "__bss_start"}) exports.erase(linker);
  const std::string prefix = "eng_plugin_query_", entry = prefix + std::to_string(ENG_ABI_MAJOR);
  const bool found = exports.count(entry);
  const auto other = exports.lower_bound(prefix);
  need(found || other == exports.end() || !other->starts_with(prefix), "built for ABI {}, this engine speaks {}",
       other == exports.end() ? "" : other->substr(prefix.size()), ENG_ABI_MAJOR);
  need(found, "exports no {}: define it with ENG_QUERY", entry);
  std::erase_if(exports, [&](const std::string& name) { return name.starts_with(prefix); });
  need(exports.empty(), "exports {} besides {} ({} in all): hide it (-fvisibility=hidden and a version script)",
       exports.empty() ? "" : *exports.begin(), entry, exports.size());
}

}  // namespace

ElfFile read_elf(const ReadAt& in) {
  ElfFile out;
  try {
    read(in, out);
  } catch (const std::exception& refusal) {
    out.problem = refusal.what();
  }
  return out;
}

ElfFile read_elf(const std::string& bytes) {
  return read_elf([&](void* out, uint64_t offset, uint64_t size) {
    const uint64_t n = std::min(size, bytes.size() - std::min<uint64_t>(offset, bytes.size()));
    if (n) std::memcpy(out, bytes.data() + offset, n);
    return n;
  });
}

}  // namespace eng
