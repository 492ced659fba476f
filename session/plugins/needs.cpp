// SPDX-License-Identifier: Apache-2.0
#include "session/plugins/needs.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <set>

#include "core/base/text.hpp"
#include "session/plugins/elf_rows.hpp"
#include "session/plugins/held_file.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

// Folders in a searched one that the loader prefers on some processors.
constexpr const char* preferred[] = {"glibc-hwcaps", "x86-64-v4", "x86-64-v3", "x86-64-v2", "tls",    "haswell",
                                     "avx512_1",     "xeon_phi",  "x86_64",    "atomics",   "aarch64"};
constexpr const char* of_system[] = {"/lib", "/lib64", "/usr/lib", "/usr/lib64"};

bool is_of_system(const fs::path& folder) {
  return std::any_of(std::begin(of_system), std::end(of_system), [&](const fs::path& top) {
    return std::mismatch(top.begin(), top.end(), folder.begin(), folder.end()).first == top.end();
  });
}

// The folder, and those in it that the loader prefers.
std::vector<fs::path> with_preferred(const fs::path& folder) {
  std::vector<fs::path> out = {folder};
  std::error_code none;
  for (std::size_t k = 0; k < out.size() && out.size() < 1000; ++k)
    for (const char* name : preferred)
      if (fs::is_directory(out[k] / name, none)) out.push_back(out[k] / name);
  return out;
}

// A path of the loader with its $ORIGIN replaced. Throws std::runtime_error for what only the loader knows.
std::string expanded(std::string text, const fs::path& origin) {
  for (const char* word : {"$LIB", "${LIB}", "$PLATFORM", "${PLATFORM}"})
    need(text.find(word) == text.npos, "`{}` has {}, whose value only the loader knows: use a path without it",
         printable(text), word);
  const std::string place = origin.string();
  for (const std::string_view word : {"${ORIGIN}", "$ORIGIN"})
    for (size_t at = 0; (at = text.find(word, at)) != text.npos;) {
      const char next = at + word.size() < text.size() ? text[at + word.size()] : '/';
      const bool longer = word.back() != '}' && (std::isalnum(static_cast<unsigned char>(next)) || next == '_');
      if (!longer) text.replace(at, word.size(), place);
      at += longer ? word.size() : place.size();
    }
  return text;
}

// The folders of a run path. Throws std::runtime_error for one that depends on the working directory.
std::vector<fs::path> run_path(const std::string& list, const char* what, const fs::path& origin) {
  std::vector<fs::path> out;
  for (size_t from = 0, to = 0; !list.empty() && from <= list.size(); from = to + 1) {
    to = std::min(list.find(':', from), list.size());
    const std::string path = expanded(list.substr(from, to - from), origin);
    need(path.starts_with('/'),
         "its {} is `{}`: `{}` depends on the working directory; link it with $ORIGIN or an absolute path", what,
         printable(list), printable(path));
    out.emplace_back(path);
  }
  return out;
}

class Needs {
 public:
  // `inherited`: folders of the RPATH of those that need the file, which are searched for all that they need.
  void follow(const fs::path& file, const ReadAt& in, const std::vector<fs::path>& inherited) {
    const ElfNeeds needs = elf_needs(in);
    const fs::path origin = file.parent_path();
    const std::vector<fs::path> rpath = places(needs.rpath, "RPATH", origin),
                                runpath = places(needs.runpath, "RUNPATH", origin);
    for (const fs::path& folder : rpath) hold_all(folder);
    std::vector<fs::path> passed = inherited;
    passed.insert(passed.end(), rpath.begin(), rpath.end());
    for (const std::string& name : needs.libraries) {
      if (name.find('/') != name.npos) {
        const std::string path = expanded(name, origin);
        need(path[0] == '/', "it needs `{}`, which depends on the working directory", printable(name));
        take(path, passed);
        continue;
      }
      for (const fs::path& folder : needs.runpath.empty() ? passed : runpath)
        for (const fs::path& place : with_preferred(folder)) take(place / name, passed);
    }
  }

 private:
  std::vector<fs::path> places(const std::string& list, const char* what, const fs::path& origin) const {
    const std::vector<fs::path> out = run_path(list, what, origin);
    for (const fs::path& path : out)
      for (const fs::path& place : with_preferred(path)) {
        const std::string why = folder_distrust(place.string());
        need(why.empty(), "its {} has libraries looked for in {}: {}", what, printable(path.string()), why);
      }
    return out;
  }

  // A library of the system may find what it needs in a folder of an RPATH, too.
  void hold_all(const fs::path& folder) const {
    if (is_of_system(folder.lexically_normal())) return;
    std::error_code error;
    for (const fs::path& place : with_preferred(folder))
      for (fs::directory_iterator it(place, error), end; !error && it != end; it.increment(error)) {
        std::error_code none;
        if (it->path().filename().string().find(".so") == std::string::npos || !it->is_regular_file(none)) continue;
        const std::string why = hold(it->path()).refused;
        need(why.empty(), "its RPATH has libraries looked for in {}, and {}: {}", printable(folder.string()),
             printable(it->path().filename()), why);
      }
  }

  void take(const fs::path& file, const std::vector<fs::path>& inherited) {
    std::error_code none;
    if (!fs::exists(file, none) || !seen_.insert(file).second) return;
    const Held held = hold(file);
    need(held.refused.empty(), "it needs {}: {}", printable(file.string()), held.refused);
    const ReadAt read = held.file->reader();
    Elf64_Ehdr head{};
    if (read(&head, 0, sizeof(head)) != sizeof(head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_machine != this_machine)
      return;  // the loader passes over it
    try {
      follow(file, read, inherited);
    } catch (const std::runtime_error& why) {
      throw std::runtime_error(fmt::format("it needs {}: {}", printable(file.string()), why.what()));
    }
  }

  std::set<fs::path> seen_;
};

}  // namespace

ElfNeeds elf_needs(const ReadAt& in) {
  ElfNeeds out;
  const Elf64_Ehdr head = elf_rows<Elf64_Ehdr>(in, 0, 1, "header")[0];
  need(head.e_phentsize == sizeof(Elf64_Phdr), "malformed ELF program headers");
  const auto parts = elf_rows<Elf64_Phdr>(in, head.e_phoff, head.e_phnum, "program headers");
  const auto offset = [&](uint64_t address) {
    for (const Elf64_Phdr& p : parts)
      if (p.p_type == PT_LOAD && address >= p.p_vaddr && address - p.p_vaddr < p.p_filesz)
        return p.p_offset + (address - p.p_vaddr);
    throw std::runtime_error("malformed ELF file: its dynamic section is not in the file");
  };
  for (const Elf64_Phdr& p : parts) {
    if (p.p_type != PT_DYNAMIC) continue;
    std::vector<uint64_t> libraries;
    uint64_t table = 0, size = 0, rpath = 0, runpath = 0;
    for (const Elf64_Dyn& entry :
         elf_rows<Elf64_Dyn>(in, offset(p.p_vaddr), p.p_filesz / sizeof(Elf64_Dyn), "dynamic table")) {
      const uint64_t value = entry.d_un.d_val;
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_NEEDED || entry.d_tag == DT_FILTER || entry.d_tag == DT_AUXILIARY)
        libraries.push_back(value);
      if (entry.d_tag == DT_STRTAB) table = value;
      if (entry.d_tag == DT_STRSZ) size = value;
      if (entry.d_tag == DT_RPATH) rpath = value;
      if (entry.d_tag == DT_RUNPATH) runpath = value;
    }
    if (libraries.empty()) continue;
    const auto bytes = elf_rows<char>(in, offset(table), size, "dynamic string table");
    const std::string strings(bytes.begin(), bytes.end());
    for (const uint64_t at : libraries) out.libraries.push_back(elf_string(strings, at));
    if (rpath) out.rpath = elf_string(strings, rpath);
    if (runpath) out.runpath = elf_string(strings, runpath);
  }
  return out;
}

std::vector<fs::path> run_path_of(const ElfNeeds& needs, const std::string& path) {
  const bool newer = !needs.runpath.empty();
  return run_path(newer ? needs.runpath : needs.rpath, newer ? "RUNPATH" : "RPATH", fs::path(path).parent_path());
}

std::string distrust_of_needs(const std::string& path, const ReadAt& in) try {
  Needs().follow(path, in, {});
  return "";
} catch (const std::runtime_error& why) {
  return why.what();
}

}  // namespace eng
