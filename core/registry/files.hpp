// SPDX-License-Identifier: Apache-2.0
// Plugin files on disk: where they are looked for, whether they can be trusted, what they describe.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/registry/registry.hpp"

namespace eng {

// Folders (or files, as --plugin-path may name) in search order, each absolute and once. `ignored` receives the
// relative ones of the environment, which would depend on the working directory.
std::vector<std::filesystem::path> search_path(const Registry::Search& search, std::vector<Candidate>& ignored);

// The files NAME.eng.so in `place`, sorted; `place` itself if it is no folder.
std::vector<std::filesystem::path> plugin_files(const std::filesystem::path& place);

// "" if nobody but root and we can write it, else who can.
std::string untrusted(const struct stat& info);

// Tells whether a path still leads to the file that was read.
struct FileIdentity {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t seconds = 0, nanoseconds = 0;
  bool operator==(const FileIdentity&) const = default;
};
FileIdentity identity(const std::filesystem::path& path);  // zero if there is none

// Reads and judges one file; sets path, description, refused.
Candidate inspect(const std::filesystem::path& path, FileIdentity& identity);

// Hexadecimal. Throws Error(Exit::environment) if the file cannot be read.
std::string sha256_file(const std::filesystem::path& path);

}  // namespace eng
