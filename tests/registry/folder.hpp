// SPDX-License-Identifier: Apache-2.0
// A folder for one test, filled with copies of fixture plugins.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "session/plugins/held_file.hpp"
#include "session/plugins/search.hpp"

struct Folder {
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "engine-registry-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("cannot make " + pattern);
    path = std::filesystem::canonical(pattern);
  }
  ~Folder() {
    std::error_code none;
    std::filesystem::remove_all(path, none);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // Copies fixture_NAME.eng.so here, as TO (the same name if empty).
  std::filesystem::path put(const std::string& name, const std::string& to = "") const {
    const std::string file = "fixture_" + name + ".eng.so";
    const std::filesystem::path target = path / (to.empty() ? file : to);
    std::filesystem::copy_file(std::filesystem::path(FIXTURES) / file, target);
    std::filesystem::permissions(target, std::filesystem::perms(0644));
    return target;
  }

  std::unique_ptr<eng::Registry> scan() const { return eng::find_plugins({{path}, false}); }

  std::filesystem::path path;
};

// The candidate at `path`; throws if the scan did not see it.
inline const eng::Candidate& at(const eng::Registry& registry, const std::filesystem::path& path) {
  for (const eng::Candidate& candidate : registry.candidates())
    if (candidate.path == path) return candidate;
  throw std::runtime_error("not scanned: " + path.string());
}

// The hash of a file that may be loaded.
inline std::string sha256_of(const std::filesystem::path& path) {
  const eng::Held held = eng::hold(path);
  if (!held.file || !held.refused.empty()) throw std::runtime_error(held.refused);
  return held.file->sha256();
}
