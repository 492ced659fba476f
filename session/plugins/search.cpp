// SPDX-License-Identifier: Apache-2.0
#include "session/plugins/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "session/plugins/held_file.hpp"
#include "session/plugins/needs.hpp"
#include "session/plugins/paths.hpp"
#include "session/plugins/plugin_file.hpp"
#include "session/plugins/program.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

// Entries of `folder` with this ending, sorted; none if it cannot be read.
std::vector<fs::path> files_in(const fs::path& folder, const std::string& ending) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().string().ends_with(ending)) out.push_back(*it);
  std::sort(out.begin(), out.end());
  return out;
}

std::string environment(const char* name) {
  const char* value = secure_getenv(name);
  return value ? value : "";
}

// The reason why the plugins of the installation are missing.
constexpr const char* unknown_place =
    "it cannot be read, so it is not known where this program lies, nor its plugins: mount /proc, start the program by "
    "its full path, or name the folder of its plugins with --plugin-path";

// The plugins of a build folder that are not built yet, from the list that meson writes: a path below plugins/ and,
// after a blank, the words for `tools/dev` that build it.
std::vector<Candidate> unbuilt(const fs::path& top) {
  std::vector<Candidate> out;
  std::ifstream list(top / "plugins" / "declared");
  std::error_code none;
  for (std::string line; std::getline(list, line);) {
    const size_t end = std::min(line.find(' '), line.size());
    const fs::path path = top / "plugins" / line.substr(0, end);
    const std::string how = line.substr(end);
    if (line.empty() || fs::exists(path, none)) continue;
    out.push_back(
        {path, {}, how.empty() ? not_built : fmt::format("{}`tools/dev{}` builds it", not_in_build, how), {}, nullptr});
  }
  return out;
}

// Folders (or files, which --plugin-path may name), absolute and without duplicates. `ignored` receives relative paths
// from the environment, which would depend on the working directory; `missing` the plugins that a build folder lacks.
std::vector<fs::path> search_path(const PluginSearch& search, std::vector<Candidate>& ignored,
                                  std::vector<Candidate>& missing) {
  std::vector<fs::path> out;
  const auto add = [&](const fs::path& path) {
    const fs::path place = (path / "").lexically_normal().parent_path();  // no trailing slash
    if (std::find(out.begin(), out.end(), place) == out.end()) out.push_back(place);
  };
  const fs::path below = fs::path("engine") / "plugins" / std::to_string(ENG_ABI_MAJOR);
  for (const fs::path& path : search.extra) add(fs::absolute(path));
  if (search.environment) {
    std::istringstream list(environment("ENGINE_PLUGIN_PATH"));
    for (std::string path; std::getline(list, path, ':');) {
      if (fs::path(path).is_absolute())
        add(path);
      else if (!path.empty())
        ignored.push_back({path, {}, "ENGINE_PLUGIN_PATH must list absolute folders", {}, nullptr});
    }
    fs::path data = environment("XDG_DATA_HOME");
    if (!data.is_absolute()) data = fs::path(environment("HOME")) / ".local" / "share";
    if (data.is_absolute()) add(data / below);
  }
  std::error_code none;
  const auto add_built = [&](const fs::path& top) {
    if (!fs::exists(top / "build.ninja", none)) return;
    for (const fs::path& folder : files_in(top / "plugins", ""))
      if (fs::is_directory(folder, none)) add(folder);
    missing = unbuilt(top);
  };
  const fs::path program = program_file();
  const fs::path library = library_file();
  if (!library.empty()) {
    add(library.parent_path() / below);
    add_built(library.parent_path().parent_path().parent_path());  // build/session/embed/libengine.so
  }
  if (!program.empty()) {
    // The installed tree, which may have been moved: lib/ or, on Debian, lib/x86_64-linux-gnu/.
    add(program.parent_path() / fs::path(installed_plugins).lexically_relative(installed_commands));
    add_built(program.parent_path().parent_path());  // build/tools/engine and build/plugins/NAME
  } else if (library.empty()) {
    ignored.push_back({own_link, {}, unknown_place, {}, nullptr});
  }
  add(installed_plugins);
  return out;
}

// Reads and checks one file.
Candidate inspect(const fs::path& path) {
  Candidate out;
  out.path = path;
  const Held held = hold(path);
  if (out.refused = held.refused; !held.file) return out;
  const ElfFile elf = read_elf(held.file->reader());
  // The description is read even if the file is refused, so that messages can name the plugin.
  const std::string described = elf.description.empty() ? "has no section .eng_plugin: add ENG_DESCRIPTION(...)"
                                                        : parse_description(elf.description, out.description);
  const std::string needs = elf.problem.empty() ? distrust_of_needs(held.file->path(), held.file->reader()) : "";
  for (const std::string& why : {elf.problem, described, needs})
    if (out.refused.empty()) out.refused = why;
  const auto& all = out.description.provides;
  const bool none = std::none_of(all.begin(), all.end(), [](const Provided& one) { return one.refused.empty(); });
  if (out.refused.empty() && none) out.refused = all[0].refused;
  if (out.refused.empty()) out.file = held.file;
  return out;
}

}  // namespace

std::unique_ptr<Registry> find_plugins(const PluginSearch& search) {
  std::vector<Candidate> ignored, missing;
  const std::vector<fs::path> places = search_path(search, ignored, missing);
  auto out = std::make_unique<Registry>(places);
  for (Candidate& one : ignored) out->add(std::move(one));
  std::error_code none;
  for (const fs::path& place : places) {
    const bool file = fs::exists(place, none) && !fs::is_directory(place, none);
    for (const fs::path& path : file ? std::vector{place} : files_in(place, ".eng.so")) out->add(inspect(path));
  }
  for (Candidate& one : missing) out->add(std::move(one));
  return out;
}

}  // namespace eng
