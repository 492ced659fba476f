// SPDX-License-Identifier: Apache-2.0
#include "script.hpp"

#include <dlfcn.h>

#include <filesystem>

namespace text_data {
namespace fs = std::filesystem;

std::string shell_word(std::string text) {
  if (text.find_first_of(" \t\n\"'\\$`!&|;<>()[]{}*?#~") == std::string::npos) return text;
  for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) text.replace(at, 1, "'\\''");
  return "'" + text + "'";
}

std::string export_dataset() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&export_dataset), &info) && info.dli_fname) {
    const fs::path here = fs::path(info.dli_fname).parent_path();
    for (const fs::path& top : {here / INSTALLED_DATA, here / "../../.."}) {  // installed; build/plugins/data
      const fs::path file = (top / "tools/export-dataset").lexically_normal();
      std::error_code none;
      if (file.is_absolute() && fs::exists(file, none)) return shell_word(file.string());
    }
  }
  return "tools/export-dataset";
}

}  // namespace text_data
