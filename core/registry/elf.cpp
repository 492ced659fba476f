// SPDX-License-Identifier: Apache-2.0
#include "core/registry/elf.hpp"

#include <elf.h>
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "engine/base.h"

namespace eng {
namespace {

static_assert(std::endian::native == std::endian::little, "the ELF reader copies little-endian fields as they are");

#if defined(__x86_64__)
constexpr uint16_t this_machine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t this_machine = EM_AARCH64;
#else
#error "name this machine's ELF number here"
#endif

constexpr uint64_t most_sections = 4096;
constexpr uint64_t most_bytes = 16u << 20;  // of a symbol or string table
constexpr uint64_t most_text = 1u << 20;    // of a description
constexpr const char* entry_prefix = "eng_plugin_query_";

std::string machine_name(uint16_t machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "aarch64";
    case EM_386:
      return "x86 (32 bit)";
    case EM_RISCV:
      return "RISC-V";
    default:
      return fmt::format("machine {}", machine);
  }
}

// Reads the file step by step; the first step that fails sets `out.problem`.
class Reader {
 public:
  Reader(const Bytes& bytes, ElfFile& out) : bytes_(bytes), out_(out) {}

  void run() {
    if (!header() || !sections() || !names()) return;
    description();
    if (out_.problem.empty()) symbols();
  }

 private:
  bool fail(const std::string& why) {
    out_.problem = why;
    return false;
  }

  bool inside(uint64_t offset, uint64_t count) const { return offset <= bytes_.size && count <= bytes_.size - offset; }

  bool take(uint64_t offset, void* to, uint64_t count, const char* what) {
    if (!inside(offset, count))
      return fail(
          fmt::format("truncated ELF file: its {} ends behind the end of the file ({} bytes)", what, bytes_.size));
    if (count && !bytes_.read(offset, to, count)) return fail(fmt::format("cannot read its {}", what));
    return true;
  }

  bool header() {
    unsigned char ident[EI_NIDENT] = {};
    if (bytes_.size < sizeof(ident) || !bytes_.read(0, ident, sizeof(ident)) || std::memcmp(ident, ELFMAG, SELFMAG))
      return fail("not an ELF file");
    if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB)
      return fail("not a 64-bit little-endian ELF file");
    if (!take(0, &head_, sizeof(head_), "header")) return false;
    if (head_.e_machine != this_machine)
      return fail(fmt::format("built for {}, this engine runs on {}", machine_name(head_.e_machine),
                              machine_name(this_machine)));
    if (head_.e_type != ET_DYN) return fail("an ELF file, but no shared object");
    return true;
  }

  bool sections() {
    if (head_.e_shnum == 0) return fail("the ELF file has no section table, so no section .eng_plugin");
    if (head_.e_shentsize != sizeof(Elf64_Shdr) || head_.e_shnum > most_sections)
      return fail(fmt::format("malformed ELF file: {} sections of {} bytes", head_.e_shnum, head_.e_shentsize));
    table_.resize(head_.e_shnum);
    return take(head_.e_shoff, table_.data(), table_.size() * sizeof(Elf64_Shdr), "section table");
  }

  bool text_of(const Elf64_Shdr& section, uint64_t most, std::string& to, const char* what) {
    if (section.sh_type == SHT_NOBITS) return fail(fmt::format("malformed ELF file: its {} has no bytes", what));
    if (section.sh_size > most)
      return fail(fmt::format("malformed ELF file: its {} is {} bytes, {} is the most", what, section.sh_size, most));
    // Compare before the resize: a size that the file cannot hold must not be allocated.
    if (!inside(section.sh_offset, section.sh_size)) return take(section.sh_offset, nullptr, section.sh_size, what);
    to.resize(section.sh_size);
    return take(section.sh_offset, to.data(), to.size(), what);
  }

  // The NUL-terminated string at `offset`, or an empty view if it starts or ends outside.
  static std::string_view string_at(const std::string& strings, uint64_t offset) {
    if (offset >= strings.size()) return {};
    const size_t end = strings.find('\0', offset);
    if (end == std::string::npos) return {};
    return std::string_view(strings).substr(offset, end - offset);
  }

  bool names() {
    if (head_.e_shstrndx >= table_.size()) return fail("malformed ELF file: no section names");
    return text_of(table_[head_.e_shstrndx], most_bytes, names_, "section name table");
  }

  void description() {
    for (const Elf64_Shdr& section : table_) {
      if (string_at(names_, section.sh_name) != ".eng_plugin") continue;
      if (out_.has_description) {
        fail("malformed ELF file: two sections .eng_plugin");
        return;
      }
      if (!text_of(section, most_text, out_.description, "section .eng_plugin")) return;
      out_.has_description = true;
      if (!out_.description.empty() && out_.description.back() == '\0') out_.description.pop_back();
      if (out_.description.find('\0') != std::string::npos) {
        fail("section .eng_plugin holds more than one text: use ENG_DESCRIPTION once per plugin");
        return;
      }
    }
  }

  void symbols() {
    for (const Elf64_Shdr& section : table_) {
      if (section.sh_type != SHT_DYNSYM) continue;
      if (section.sh_entsize != sizeof(Elf64_Sym) || section.sh_link >= table_.size()) {
        fail("malformed ELF file: its dynamic symbol table has another entry size, or no names");
        return;
      }
      std::string raw, strings;
      if (!text_of(section, most_bytes, raw, "dynamic symbol table")) return;
      if (!text_of(table_[section.sh_link], most_bytes, strings, "dynamic string table")) return;
      for (size_t at = 0; at + sizeof(Elf64_Sym) <= raw.size(); at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        std::memcpy(&symbol, raw.data() + at, sizeof(symbol));
        const auto bind = ELF64_ST_BIND(symbol.st_info), visible = ELF64_ST_VISIBILITY(symbol.st_other);
        if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS || bind == STB_LOCAL) continue;
        if (visible != STV_DEFAULT && visible != STV_PROTECTED) continue;
        const std::string_view name = string_at(strings, symbol.st_name);
        if (!name.empty()) out_.exports.emplace_back(name);
      }
    }
    std::sort(out_.exports.begin(), out_.exports.end());
    out_.exports.erase(std::unique(out_.exports.begin(), out_.exports.end()), out_.exports.end());
  }

  const Bytes& bytes_;
  ElfFile& out_;
  Elf64_Ehdr head_{};
  std::vector<Elf64_Shdr> table_;
  std::string names_;
};

}  // namespace

ElfFile read_elf(const Bytes& bytes) {
  ElfFile out;
  Reader(bytes, out).run();
  return out;
}

std::string check_exports(const std::vector<std::string>& exports) {
  const std::string entry = entry_prefix + std::to_string(ENG_ABI_MAJOR);
  bool found = false;
  std::string others, strangers;
  size_t n_strangers = 0;
  for (const std::string& name : exports) {
    if (name == entry) {
      found = true;
    } else if (name.starts_with(entry_prefix)) {
      others += (others.empty() ? "" : ", ") + name.substr(std::strlen(entry_prefix));
    } else if (name != "_init" && name != "_fini" && name != "_end" && name != "_edata" && name != "__bss_start") {
      // The five above come from linkers, not from the author.
      if (++n_strangers <= 3) strangers += (strangers.empty() ? "" : ", ") + name;
    }
  }
  if (!found && !others.empty()) return fmt::format("built for ABI {}, this engine speaks {}", others, ENG_ABI_MAJOR);
  if (!found) return fmt::format("exports no {}: define it with ENG_QUERY", entry);
  if (n_strangers)
    return fmt::format("exports {} symbol{} besides {} ({}{}): hide them (-fvisibility=hidden and a version script)",
                       n_strangers, n_strangers == 1 ? "" : "s", entry, strangers, n_strangers > 3 ? ", ..." : "");
  return "";
}

}  // namespace eng
