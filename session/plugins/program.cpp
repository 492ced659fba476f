// SPDX-License-Identifier: Apache-2.0
#include "session/plugins/program.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>

#include "session/plugins/paths.hpp"
#include "session/shell.hpp"

namespace eng {
namespace fs = std::filesystem;

fs::path program_file(const fs::path& link) {
  std::error_code none;
  if (const fs::path file = fs::read_symlink(link, none); !none) return file;
  // The name with which it was started, relative to the folder of that moment.
  const auto* name = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (!name || !*name) return {};
  const fs::path file = fs::canonical(name, none);
  return none ? fs::path() : file;
}

fs::path library_file() {
  Dl_info info{};
  void* found = nullptr;
  if (!dladdr1(reinterpret_cast<const void*>(&library_file), &info, &found, RTLD_DL_LINKMAP)) return {};
  const char* name = static_cast<const link_map*>(found)->l_name;  // empty for the program itself
  std::error_code none;
  const fs::path file = name && *name ? fs::canonical(name, none) : fs::path();
  return none ? fs::path() : file;
}

std::string script(const std::string& name) {
  std::error_code none;
  const fs::path program = program_file(), library = library_file();
  const fs::path libraries = fs::path(installed_plugins).parent_path().parent_path().parent_path();
  const auto from = [](const fs::path& file, const fs::path& installed) {
    return file.parent_path() / fs::path(installed_data).lexically_relative(installed);
  };
  for (const fs::path& top : {from(program, installed_commands), from(library, libraries),
                              program.parent_path().parent_path().parent_path()}) {
    const fs::path file = (top / "tools" / name).lexically_normal();
    if (file.is_absolute() && fs::exists(file, none)) return shell_word(file.string());
  }
  return "tools/" + name;
}

}  // namespace eng
