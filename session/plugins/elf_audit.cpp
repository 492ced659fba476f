// SPDX-License-Identifier: Apache-2.0
#include "session/plugins/elf_audit.hpp"

#include <gnu/libc-version.h>

#include <cstdlib>
#include <cstring>

#include "session/plugins/elf_rows.hpp"

namespace eng {
namespace {

// "2.36" -> 2036; 0 if it is no version.
uint64_t number_of(const std::string& version) {
  char* end = nullptr;
  const uint64_t major = std::strtoul(version.c_str(), &end, 10);
  return *end == '.' ? major * 1000 + std::strtoul(end + 1, nullptr, 10) : 0;
}

// Versions of libc above this system's.
void read_versions(const ReadAt& in, const Elf64_Shdr& section, const std::string& strings, ElfAudit& out) {
  const std::string table = elf_text(in, section, "version table");
  const auto row = [&]<class Row>(uint64_t at, Row& to) {
    need(at <= table.size() && table.size() - at >= sizeof(Row), "malformed ELF file: its version table is cut");
    std::memcpy(&to, table.data() + at, sizeof(Row));
  };
  const uint64_t here = number_of(gnu_get_libc_version());
  uint64_t at = 0;
  for (uint64_t files = 0; files < section.sh_info && files < 4096; ++files) {
    Elf64_Verneed file;
    row(at, file);
    uint64_t one = at + file.vn_aux;
    for (uint64_t k = 0; k < file.vn_cnt; ++k) {
      Elf64_Vernaux version;
      row(one, version);
      const std::string name = elf_string(strings, version.vna_name);
      if (name.starts_with("GLIBC_2") && number_of(name.substr(6)) > here)
        out.too_new.push_back(fmt::format("it needs {} of {}, this system has glibc {}", name,
                                          elf_string(strings, file.vn_file), gnu_get_libc_version()));
      if (!version.vna_next) break;
      one += version.vna_next;
    }
    if (!file.vn_next) break;
    at += file.vn_next;
  }
}

void read(const ReadAt& in, ElfAudit& out) {
  const Elf64_Ehdr head = elf_rows<Elf64_Ehdr>(in, 0, 1, "header")[0];
  need(head.e_phentsize == sizeof(Elf64_Phdr), "malformed ELF program headers");
  for (const Elf64_Phdr& p : elf_rows<Elf64_Phdr>(in, head.e_phoff, head.e_phnum, "program headers")) {
    if (p.p_type == PT_LOAD && (p.p_flags & PF_W) && (p.p_flags & PF_X))
      out.segments.push_back(fmt::format("a segment of {} bytes is writable and executable", +p.p_memsz));
    if (p.p_type == PT_GNU_STACK && (p.p_flags & PF_X))
      out.segments.push_back("it asks for an executable stack: link with -z noexecstack");
  }
  const auto sections = elf_rows<Elf64_Shdr>(in, head.e_shoff, head.e_shnum, "section table");
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type == SHT_INIT_ARRAY) out.constructors += section.sh_size / sizeof(uint64_t);
    if (section.sh_type != SHT_DYNAMIC && section.sh_type != SHT_GNU_verneed) continue;
    need(section.sh_link < sections.size(), "malformed ELF section table");
    const std::string strings = elf_text(in, sections[section.sh_link], "dynamic string table");
    if (section.sh_type == SHT_GNU_verneed) {
      read_versions(in, section, strings, out);
      continue;
    }
    for (const Elf64_Dyn& entry :
         elf_rows<Elf64_Dyn>(in, section.sh_offset, section.sh_size / sizeof(Elf64_Dyn), "dynamic table")) {
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_NEEDED) out.needed.push_back(elf_string(strings, entry.d_un.d_val));
      if (entry.d_tag == DT_TEXTREL || (entry.d_tag == DT_FLAGS && (entry.d_un.d_val & DF_TEXTREL)))
        out.segments.push_back("loading it writes to its code (text relocations): compile with -fPIC");
    }
  }
}

}  // namespace

ElfAudit audit_elf(const ReadAt& in) {
  ElfAudit out;
  if (out.problem = read_elf(in).problem; !out.problem.empty()) return out;
  try {
    read(in, out);
  } catch (const std::exception& refusal) {
    out.problem = refusal.what();
  }
  return out;
}

}  // namespace eng
