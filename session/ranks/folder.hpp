// SPDX-License-Identifier: Apache-2.0
// A place of its own for the temporary files of mpirun and its ranks, so that none of them survives, whoever is killed.
#pragma once

#include <filesystem>

#include "core/base/file.hpp"

namespace eng {

// A new folder for this user alone. It goes with the object; where the process is killed before, the next one that is
// made at the same place removes it, once nobody holds it any more. Throws std::filesystem::filesystem_error.
class LaunchFolder {
 public:
  explicit LaunchFolder(const std::filesystem::path& place);
  ~LaunchFolder();
  LaunchFolder(const LaunchFolder&) = delete;
  LaunchFolder& operator=(const LaunchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  // In a child, before it becomes another program: that one holds the folder, too.
  void hold() const;

 private:
  std::filesystem::path path_;
  Fd fd_;
};

}  // namespace eng
