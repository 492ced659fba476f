// SPDX-License-Identifier: Apache-2.0
// Help where a library that a plugin needs is missing.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "core/base/text.hpp"
#include "session/plugins/needs.hpp"
#include "session/plugins/paths.hpp"
#include "session/shell.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

// Libraries that only some plugins need, and Debian's packages of them. tools/packing.py has the same list.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> of_debian = {{
    {"libmpi.so", "openmpi-bin"},
    {"libsentencepiece.so", "libsentencepiece0"},
    {"libcairo.so", "libcairo2"},
    {"libfreetype.so", "libfreetype6"},
}};
constexpr std::array<std::string_view, 3> of_nvidia = {"libcudart.so", "libcublasLt.so", "libnccl.so"};
constexpr std::array<std::string_view, 2> of_arrow = {"libarrow.so", "libparquet.so"};
constexpr const char* wheel_folder = "nvidia/cu13/lib";  // of NVIDIA's wheels, in site-packages
constexpr const char* arrow_folder = "pyarrow";          // of Arrow's

bool is_of_python(const fs::path& folder) {
  return folder.filename() == "site-packages" || folder.filename() == "dist-packages";
}

// The folder that holds the wheels of which `part` is a folder, by the run path of a package; "" for a plugin that was
// built in a source tree. One of a Python comes first.
fs::path folder_of_wheels(const std::vector<fs::path>& folders, const char* part) {
  fs::path found;
  for (const fs::path& folder : folders) {
    const std::string text = folder.lexically_normal().string(), end = std::string("/") + part;
    if (!text.ends_with(end)) continue;
    const fs::path top = text.substr(0, text.size() - end.size());
    if (is_of_python(top)) return top;
    if (found.empty()) found = top;
  }
  return found;
}

// The command that brings them into the folder. That of a Python is left to its pip.
std::string pip(const fs::path& to, const char* wheels) {
  const bool of_python = is_of_python(to);
  const fs::path version = to.parent_path(), own = version.parent_path().parent_path() / "bin" / "python3";
  std::error_code none;
  const bool has_own = of_python && version.filename().string().starts_with("python") && fs::exists(own, none);
  const std::string python = has_own ? shell_word(own.string()) : "python3";
  return fmt::format("{} -m pip install {}{}", python, of_python ? "" : "--target " + shell_word(to.string()) + " ",
                     wheels);
}

// The way to get a library; "" if it is not known.
std::string remedy(const std::string& library, const std::vector<fs::path>& folders) {
  const auto is = [&](std::string_view name) { return library.starts_with(name); };
  for (const auto& [name, package] : of_debian)
    if (is(name)) return fmt::format("apt-get install {}", package);
  if (std::any_of(of_arrow.begin(), of_arrow.end(), is)) {
    const fs::path to = folder_of_wheels(folders, arrow_folder);
    return to.empty() ? "run `tools/arrow-library`, or name the folder of these libraries in LD_LIBRARY_PATH"
                      : pip(to, arrow_wheel);
  }
  if (std::none_of(of_nvidia.begin(), of_nvidia.end(), is)) return "";
  const fs::path to = folder_of_wheels(folders, wheel_folder);
  return to.empty()
             ? "build the plugin again with `tools/dev build --cuda`, which brings CUDA 13, or name the folder of "
               "CUDA 13's libraries in LD_LIBRARY_PATH"
             : pip(to, cuda_wheels);
}

bool is_in(const std::vector<fs::path>& folders, const std::string& name) {
  std::error_code none;
  return std::any_of(folders.begin(), folders.end(), [&](const fs::path& f) { return fs::exists(f / name, none); });
}

bool system_has(const std::string& name) {
  void* const library = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library) dlclose(library);
  return library;
}

}  // namespace

std::string help_of_missing(const std::string& path, const ReadAt& in) try {
  const ElfNeeds needs = elf_needs(in);
  std::vector<fs::path> folders;
  const char* given = secure_getenv("LD_LIBRARY_PATH");
  std::istringstream list(given ? given : "");
  for (std::string folder; std::getline(list, folder, ':');)
    if (!folder.empty()) folders.emplace_back(folder);
  for (const fs::path& folder : run_path_of(needs, path)) folders.push_back(folder.lexically_normal());
  std::vector<std::string> missing, remedies, places;
  for (const std::string& name : needs.libraries) {
    if (name.find('/') != name.npos || is_in(folders, name) || system_has(name)) continue;
    missing.push_back(printable(name));
    const std::string how = remedy(name, folders);
    if (!how.empty() && std::find(remedies.begin(), remedies.end(), how) == remedies.end()) remedies.push_back(how);
  }
  if (missing.empty()) return none_missing;
  for (const fs::path& folder : folders) places.push_back(printable(folder.string()));
  places.emplace_back("the folders of the system (ldconfig -p lists them)");
  return fmt::format("{} {} in none of these: {}{}{}", fmt::join(missing, " and "), missing.size() > 1 ? "are" : "is",
                     fmt::join(places, ", "), remedies.empty() ? "" : ". To install: ", fmt::join(remedies, "; "));
} catch (const std::runtime_error& why) {
  return fmt::format("a library it needs is missing or of another version (ldd shows which); {}", why.what());
}

}  // namespace eng
